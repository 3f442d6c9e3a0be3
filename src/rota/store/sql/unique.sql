-- name: hold
-- Give a key to a task; the task that held it before has let go of it.
INSERT INTO unique_key (queue, key, id, release, until_ms)
VALUES (:queue, :key, :id, :release, :until_ms)
    ON CONFLICT (key, queue) DO UPDATE
   SET id = excluded.id, release = excluded.release, until_ms = excluded.until_ms

-- name: holders
-- The tasks that hold these keys, in any queue: one key is rarely used in several queues.
SELECT u.queue, u.key, u.id, u.until_ms
  FROM carray(:keys) AS wanted CROSS JOIN unique_key AS u ON u.key = CAST(wanted.value AS TEXT)

-- name: release
-- Take the keys of these tasks from them. A key that another task has got since stays.
DELETE FROM unique_key WHERE id IN carray(:ids)

-- name: leased_holders
-- The leased tasks that hold a key.
SELECT id FROM lease AS l WHERE EXISTS (SELECT 1 FROM unique_key AS u WHERE u.id = l.id)
