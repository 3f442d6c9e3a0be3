-- name: every
SELECT token FROM access_token ORDER BY id

-- name: ids
SELECT id FROM access_token

-- name: put
INSERT OR REPLACE INTO access_token (id, token) VALUES (?, ?)

-- name: drop
DELETE FROM access_token WHERE id = ?
