-- name: one
SELECT key, value, version, updated_at_ms, expires_at_ms FROM memory WHERE key = ?

-- name: by_keys
SELECT m.key, m.value, m.version, m.updated_at_ms, m.expires_at_ms
  FROM carray(?) AS wanted CROSS JOIN memory AS m ON m.key = CAST(wanted.value AS TEXT)

-- name: put
INSERT INTO memory (key, value, version, updated_at_ms, expires_at_ms) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (key) DO UPDATE
   SET value = excluded.value, version = excluded.version,
       updated_at_ms = excluded.updated_at_ms, expires_at_ms = excluded.expires_at_ms

-- name: drop
DELETE FROM memory WHERE key = ?

-- name: keys
-- In their order, from one on; the upper bound keeps a prefix to its own part of the index. How
-- long a value is stands before it, so that no value is read here.
SELECT key, length(value) FROM memory
 WHERE key >= ? AND key > ? AND key < ? AND key GLOB ? AND (expires_at_ms IS NULL OR expires_at_ms > ?)
 ORDER BY key LIMIT ?

-- name: over
SELECT key, version FROM memory WHERE expires_at_ms <= ? ORDER BY expires_at_ms LIMIT ?
