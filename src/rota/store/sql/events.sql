-- name: add
-- Append an event to the log.
INSERT INTO event (seq, at_ms, type, subject, data) VALUES (:seq, :at_ms, :type, :subject, :data)

-- name: bounds
-- The oldest stored number (NULL: the log is empty), and the last that was given.
SELECT (SELECT min(seq) FROM event),
       max(coalesce((SELECT max(seq) FROM event), 0), value)
  FROM counter WHERE name = 'event'

-- name: all
-- Every event of a range, the oldest first.
SELECT seq, at_ms, type, subject, data FROM event
 WHERE seq > :after AND seq <= :until ORDER BY seq LIMIT :limit

-- name: matching
-- The events of a range that match a filter, the oldest first.
SELECT seq, at_ms, type, subject, data
  FROM event
 WHERE seq > :after AND seq <= :until
   AND (:any_type OR type IN (SELECT CAST(value AS TEXT) FROM carray(:types)))
   AND (:any_subject OR subject = :subject)
   AND substr(subject, 1, length(:prefix)) = :prefix
 ORDER BY seq LIMIT :limit

-- name: newest_matching
-- The events of a range that match a filter, the newest first.
SELECT seq, at_ms, type, subject, data
  FROM event
 WHERE seq > :after AND seq <= :until
   AND (:any_type OR type IN (SELECT CAST(value AS TEXT) FROM carray(:types)))
   AND (:any_subject OR subject = :subject)
   AND substr(subject, 1, length(:prefix)) = :prefix
 ORDER BY seq DESC LIMIT :limit

-- name: prune
-- Delete events below a number that are too old or too many.
DELETE FROM event WHERE seq < :below_seq AND (at_ms < :before_ms OR seq <= :last_excess_seq)

-- name: raise_last_seq
-- Keep the last number that was given, for when the log is empty.
UPDATE counter SET value = max(value, :seq) WHERE name = 'event'
