-- name: usages
-- What is kept of the logs of these tasks, by attempt.
SELECT task, fence, attempt, last, lines, size, sent, left_out, cut
  FROM attempt_log WHERE task IN carray(:tasks)
 ORDER BY task, fence

-- name: put_usage
-- Write what is kept of the log of an attempt.
INSERT INTO attempt_log (task, fence, attempt, last, lines, size, sent, left_out, cut)
VALUES (:task, :fence, :attempt, :last, :lines, :size, :sent, :left_out, :cut)
    ON CONFLICT (task, fence) DO UPDATE
   SET last = excluded.last, lines = excluded.lines, size = excluded.size, sent = excluded.sent,
       left_out = excluded.left_out, cut = excluded.cut

-- name: add
-- Add the lines of one report.
INSERT INTO log_lines (task, last, fence, content) VALUES (:task, :last, :fence, :content)

-- name: forget_usages
-- Delete what is kept of the older attempts of a task.
DELETE FROM attempt_log WHERE task = :task AND fence < :fence

-- name: forget_lines
-- Delete the lines of the older attempts of a task.
DELETE FROM log_lines WHERE task = :task AND fence < :fence

-- name: drop_usages
-- Delete what is kept of the logs of these tasks.
DELETE FROM attempt_log WHERE task IN carray(:tasks)

-- name: drop_lines
-- Delete the lines of these tasks.
DELETE FROM log_lines WHERE task IN carray(:tasks)

-- name: page
-- Reports with lines after a number, the oldest first, of the attempts with these fences.
SELECT last, fence, content FROM log_lines
 WHERE task = :task AND last > :after AND fence IN carray(:fences)
 ORDER BY last LIMIT :limit
