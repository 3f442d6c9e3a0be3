-- name: any_task
SELECT 1 FROM session_task LIMIT 1

-- name: last_news
SELECT coalesce(max(news), 0) FROM session_task WHERE news IS NOT NULL

-- name: add
INSERT OR IGNORE INTO session_task (id, session) VALUES (?, ?)

-- name: of_tasks
SELECT id, session FROM session_task WHERE id IN carray(?)

-- name: note_end
UPDATE session_task SET news = ? WHERE id = ? AND session = ?

-- name: forget_oldest
-- What is older than the newest so many.
UPDATE session_task SET news = NULL
 WHERE session = ? AND news IS NOT NULL
   AND news <= (SELECT news FROM session_task WHERE session = ? AND news IS NOT NULL
                 ORDER BY news DESC LIMIT 1 OFFSET ?)

-- name: news
SELECT news, session, id FROM session_task
 WHERE session = ? AND news > ? ORDER BY news LIMIT ?

-- name: clear
-- Matches no row when the task has ended anew since.
UPDATE session_task SET news = NULL WHERE id = ? AND session = ? AND news = ?

-- name: forget
DELETE FROM session_task WHERE id IN carray(?)
