-- name: any
SELECT EXISTS (SELECT 1 FROM inbox)

-- name: put
INSERT INTO inbox (key, task, created_at_ms) VALUES (?, ?, ?)

-- name: take
-- So many, and of these no more than so many bytes, but for the first.
DELETE FROM inbox WHERE id IN (
  SELECT id FROM (
    SELECT id, sum(length(task)) OVER (ORDER BY id) - length(task) AS before
      FROM (SELECT id, task FROM inbox ORDER BY id LIMIT ?) AS head) AS measured
   WHERE before < ?)
RETURNING id, key, task
