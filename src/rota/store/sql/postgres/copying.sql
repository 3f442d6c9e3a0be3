-- name: is_unfinished
SELECT to_regclass('copy_progress') IS NOT NULL
