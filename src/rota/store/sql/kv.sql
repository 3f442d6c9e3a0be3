-- name: get
-- One entry, also one past its expiry.
SELECT key, value, version, updated_at_ms, expires_at_ms, owner FROM memory WHERE key = :key

-- name: by_keys
-- The entries of these keys.
SELECT m.key, m.value, m.version, m.updated_at_ms, m.expires_at_ms, m.owner
  FROM carray(:keys) AS wanted CROSS JOIN memory AS m ON m.key = CAST(wanted.value AS TEXT)

-- name: put
-- Insert or update an entry.
INSERT INTO memory (key, value, version, updated_at_ms, expires_at_ms, owner)
VALUES (:key, :value, :version, :updated_at_ms, :expires_at_ms, :owner)
    ON CONFLICT (key) DO UPDATE
   SET value = excluded.value, version = excluded.version,
       updated_at_ms = excluded.updated_at_ms, expires_at_ms = excluded.expires_at_ms,
       owner = excluded.owner

-- name: delete
-- Delete an entry.
DELETE FROM memory WHERE key = :key

-- name: keys
-- Keys and sizes in the order of the keys. The upper bound keeps a prefix to its part of the index.
-- The length of a value is stored before it, so that no value is read here.
SELECT key, length(value) FROM memory
 WHERE key >= :first AND key > :after AND key < :end AND key GLOB :pattern
   AND (expires_at_ms IS NULL OR expires_at_ms > :now_ms)
 ORDER BY key LIMIT :limit

-- name: expired
-- Entries past their expiry, the oldest first.
SELECT key, version, length(value) AS size, owner FROM memory
 WHERE expires_at_ms <= :now_ms ORDER BY expires_at_ms LIMIT :limit

-- name: usage
-- Number and size of all entries, by owner. Reads a whole index.
SELECT owner, count(*), sum(length(value)) FROM memory GROUP BY owner
