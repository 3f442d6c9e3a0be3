-- name: has_tasks
-- Whether any session waits for a task.
SELECT 1 FROM session_task LIMIT 1

-- name: last_notification
-- The highest number of an undelivered notification.
SELECT coalesce(max(news), 0) FROM session_task WHERE news IS NOT NULL

-- name: add
-- Record that a session submitted a task.
INSERT OR IGNORE INTO session_task (id, session) VALUES (:task_id, :session_id)

-- name: of_tasks
-- The sessions that submitted these tasks.
SELECT id AS task_id, session AS session_id FROM session_task WHERE id IN carray(:ids)

-- name: add_notification
-- Record the end of a task for a session.
UPDATE session_task SET news = :seq WHERE id = :task_id AND session = :session_id

-- name: drop_oldest
-- Drop all but the newest notifications of a session.
UPDATE session_task SET news = NULL
 WHERE session = :session_id AND news IS NOT NULL
   AND news <= (SELECT news FROM session_task WHERE session = :session_id AND news IS NOT NULL
                 ORDER BY news DESC LIMIT 1 OFFSET :kept)

-- name: notifications
-- Notifications of a session, the oldest first.
SELECT news AS seq, session AS session_id, id AS task_id FROM session_task
 WHERE session = :session_id AND news > :after ORDER BY news LIMIT :limit

-- name: drop_notification
-- Drop a notification. Matches no row when the task has ended again since.
UPDATE session_task SET news = NULL
 WHERE id = :task_id AND session = :session_id AND news = :seq

-- name: drop_tasks
-- Delete which sessions submitted these tasks.
DELETE FROM session_task WHERE id IN carray(:ids)
