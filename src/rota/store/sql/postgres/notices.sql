-- name: add
INSERT INTO event (seq, at_ms, type, subject, data)
SELECT * FROM unnest(?::bigint[], ?::bigint[], ?::text[], ?::text[], ?::bytea[])

-- name: bounds
-- The oldest number that is kept (NULL: none is), and the last that was given.
SELECT (SELECT min(seq) FROM event),
       greatest(coalesce((SELECT max(seq) FROM event), 0), value)
  FROM counter WHERE name = 'event'

-- name: matching
SELECT seq, at_ms, type, subject, data
  FROM event
 WHERE seq > ? AND seq <= ?
   AND (?::boolean OR type = ANY(?::text[]))
   AND (?::boolean OR subject = ?::text)
   AND starts_with(subject, ?::text) AND ?::text IS NOT NULL
 ORDER BY seq LIMIT ?

-- name: newest_matching
SELECT seq, at_ms, type, subject, data
  FROM event
 WHERE seq > ? AND seq <= ?
   AND (?::boolean OR type = ANY(?::text[]))
   AND (?::boolean OR subject = ?::text)
   AND starts_with(subject, ?::text) AND ?::text IS NOT NULL
 ORDER BY seq DESC LIMIT ?

-- name: keep_number
UPDATE counter SET value = greatest(value, ?) WHERE name = 'event'
