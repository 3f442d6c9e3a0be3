-- name: has_any
-- Whether any task waits to be accepted.
SELECT EXISTS (SELECT 1 FROM inbox)

-- name: put
-- Insert a task to be accepted.
INSERT INTO inbox (key, task, created_at_ms) VALUES (:key, :task, :created_at_ms)

-- name: take
-- Delete and return the oldest tasks: limited in number, and in bytes but for the first.
DELETE FROM inbox WHERE id IN (
  SELECT id FROM (
    SELECT id, sum(length(task)) OVER (ORDER BY id) - length(task) AS before
      FROM (SELECT id, task FROM inbox ORDER BY id LIMIT :limit) AS head) AS measured
   WHERE before < :max_bytes)
RETURNING id, key, task
