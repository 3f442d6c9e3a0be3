-- name: drop
DELETE FROM memory WHERE key = ANY(?::text[])

-- name: keys
-- In their order, from one on; the upper bound keeps a prefix to its own part of the index.
SELECT key, octet_length(value)::bigint FROM memory
 WHERE key >= ? AND key > ? AND key < ? AND key ~ ?::glob
   AND (expires_at_ms IS NULL OR expires_at_ms > ?)
 ORDER BY key LIMIT ?
