-- name: add
INSERT INTO event (seq, at_ms, type, subject, data)
SELECT * FROM unnest(:seq::bigint[], :at_ms::bigint[], :type::text[], :subject::text[],
                     :data::bytea[])

-- name: bounds
SELECT (SELECT min(seq) FROM event),
       greatest(coalesce((SELECT max(seq) FROM event), 0), value)
  FROM counter WHERE name = 'event'

-- name: matching
SELECT seq, at_ms, type, subject, data
  FROM event
 WHERE seq > :after AND seq <= :until
   AND (:any_type::boolean OR type = ANY(:types::text[]))
   AND (:any_subject::boolean OR subject = :subject::text)
   AND starts_with(subject, :prefix::text)
 ORDER BY seq LIMIT :limit

-- name: newest_matching
SELECT seq, at_ms, type, subject, data
  FROM event
 WHERE seq > :after AND seq <= :until
   AND (:any_type::boolean OR type = ANY(:types::text[]))
   AND (:any_subject::boolean OR subject = :subject::text)
   AND starts_with(subject, :prefix::text)
 ORDER BY seq DESC LIMIT :limit

-- name: raise_last_seq
UPDATE counter SET value = greatest(value, :seq) WHERE name = 'event'
