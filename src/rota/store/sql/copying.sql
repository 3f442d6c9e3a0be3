-- name: is_under_way
SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'copy_progress')
