-- name: add
INSERT INTO workflow (name, version, hash, definition, created_at_ms) VALUES (?, ?, ?, ?, ?)

-- name: by_hash
SELECT version FROM workflow WHERE name = ? AND hash = ?

-- name: newest
SELECT max(version) FROM workflow WHERE name = ?

-- name: one
SELECT version, hash, definition, created_at_ms FROM workflow WHERE name = ? AND version = ?

-- name: versions
SELECT version, hash, created_at_ms FROM workflow WHERE name = ? ORDER BY version DESC

-- name: every
SELECT name, max(version), hash, created_at_ms FROM workflow GROUP BY name ORDER BY name
