-- name: ids
SELECT id FROM history WHERE id >= ? AND id < ? ORDER BY id LIMIT ?

-- name: clean
UPDATE history_stretch SET cleaned_to = ? WHERE first_id = ?

-- name: drop
SELECT * FROM drop_stretch(?::bigint)
