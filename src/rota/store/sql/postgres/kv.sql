-- name: delete
DELETE FROM memory WHERE key = ANY(:key::text[])

-- name: keys
SELECT key, octet_length(value)::bigint FROM memory
 WHERE key >= :first AND key > :after AND key < :end AND key ~ :pattern::glob
   AND (expires_at_ms IS NULL OR expires_at_ms > :now_ms)
 ORDER BY key LIMIT :limit

-- name: usage
SELECT owner, count(*), sum(octet_length(value))::bigint FROM memory GROUP BY owner
