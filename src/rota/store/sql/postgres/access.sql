-- name: put
INSERT INTO access_token (id, token) VALUES (:id, :token)
    ON CONFLICT (id) DO UPDATE SET token = excluded.token
