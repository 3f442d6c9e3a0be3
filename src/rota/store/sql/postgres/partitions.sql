-- name: ids
-- Finished tasks of a range of ids.
SELECT id FROM history WHERE id >= :first AND id < :end ORDER BY id LIMIT :limit

-- name: set_cleaned
-- Record up to which id the keys and labels of a partition are deleted.
UPDATE history_stretch SET cleaned_to = :cleaned_to WHERE first_id = :first_id

-- name: drop
-- Drop a partition of history.
SELECT * FROM drop_stretch(:first_id::bigint)
