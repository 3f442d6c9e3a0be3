-- name: is_unfinished
-- Whether this store is the target of a copy that is not finished.
SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'copy_progress')
