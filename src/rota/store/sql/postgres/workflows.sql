-- name: all
SELECT DISTINCT ON (name) name, version, hash, created_at_ms
  FROM workflow ORDER BY name, version DESC
