-- name: add
INSERT INTO event (seq, at_ms, type, subject, data) VALUES (?, ?, ?, ?, ?)

-- name: bounds
-- The oldest number that is kept (NULL: none is), and the last that was given.
SELECT (SELECT min(seq) FROM event),
       max(coalesce((SELECT max(seq) FROM event), 0), value)
  FROM counter WHERE name = 'event'

-- name: every
SELECT seq, at_ms, type, subject, data FROM event WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?

-- name: matching
SELECT seq, at_ms, type, subject, data
  FROM event
 WHERE seq > ? AND seq <= ?
   AND (? OR type IN (SELECT CAST(value AS TEXT) FROM carray(?)))
   AND (? OR subject = ?)
   AND substr(subject, 1, length(?)) = ?
 ORDER BY seq LIMIT ?

-- name: newest_matching
SELECT seq, at_ms, type, subject, data
  FROM event
 WHERE seq > ? AND seq <= ?
   AND (? OR type IN (SELECT CAST(value AS TEXT) FROM carray(?)))
   AND (? OR subject = ?)
   AND substr(subject, 1, length(?)) = ?
 ORDER BY seq DESC LIMIT ?

-- name: forget
DELETE FROM event WHERE seq < ? AND (at_ms < ? OR seq <= ?)

-- name: keep_number
UPDATE counter SET value = max(value, ?) WHERE name = 'event'
