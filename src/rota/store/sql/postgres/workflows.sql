-- name: all
SELECT DISTINCT ON (name) name, version, hash, created_at_ms, put_number
  FROM workflow ORDER BY name, put_number DESC, version DESC
