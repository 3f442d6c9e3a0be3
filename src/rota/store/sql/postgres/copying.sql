-- name: is_under_way
SELECT to_regclass('copy_progress') IS NOT NULL
