-- name: all
-- Every access token.
SELECT token FROM access_token ORDER BY id

-- name: ids
-- The ids of every access token.
SELECT id FROM access_token

-- name: put
-- Insert or replace an access token.
INSERT OR REPLACE INTO access_token (id, token) VALUES (:id, :token)

-- name: delete
-- Delete an access token.
DELETE FROM access_token WHERE id = :id
