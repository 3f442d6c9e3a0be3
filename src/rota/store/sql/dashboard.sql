-- name: tasks_by_state
-- Number of tasks in each table, and of finished tasks in the states that have an index.
SELECT (SELECT count(*) FROM scheduled) AS scheduled,
       (SELECT count(*) FROM ready) AS queued,
       (SELECT count(*) FROM lease) AS running,
       (SELECT count(*) FROM history) AS finished,
       (SELECT count(*) FROM history WHERE state = 'failed') AS failed,
       (SELECT count(*) FROM history
         WHERE state = 'failed' AND is_acknowledged = 0) AS unacknowledged,
       (SELECT count(*) FROM history WHERE state = 'cancelled') AS cancelled

-- name: runs_by_state
-- Number of runs in each state.
SELECT state, count(*) FROM run GROUP BY state

-- name: run_work
-- Live tasks of open runs, by lane and state.
SELECT w.run, t.lane,
       CASE WHEN l.id IS NOT NULL THEN 'running' WHEN s.id IS NOT NULL THEN 'scheduled'
            ELSE 'queued' END AS state,
       count(*) AS count
  FROM carray(:runs) AS wanted
 CROSS JOIN run_task AS w ON w.run = wanted.value
 CROSS JOIN task AS t ON t.id = w.task
  LEFT JOIN lease AS l ON l.id = t.id
  LEFT JOIN scheduled AS s ON s.id = t.id
 GROUP BY w.run, t.lane, state

-- name: failures
-- Failed tasks that nobody has acknowledged, by cause and lane.
-- They are counted along the index of that order: no error is read.
SELECT coalesce(cause, '') AS cause, lane, count(*) AS count,
       min(finished_at_ms) AS first_failed_at_ms, max(finished_at_ms) AS last_failed_at_ms
  FROM history WHERE state = 'failed' AND is_acknowledged = 0 GROUP BY history.cause, lane

-- name: newest_failed
-- The newest tasks of one lane that failed of one cause and that nobody has acknowledged.
SELECT finished_at_ms, id FROM history
 WHERE state = 'failed' AND is_acknowledged = 0 AND cause = :cause AND lane = :lane
 ORDER BY finished_at_ms DESC, id DESC LIMIT :limit

-- name: acknowledged_failures
-- As `failures`, of the acknowledged tasks.
SELECT coalesce(cause, '') AS cause, lane, count(*) AS count,
       min(finished_at_ms) AS first_failed_at_ms, max(finished_at_ms) AS last_failed_at_ms
  FROM history WHERE state = 'failed' AND is_acknowledged = 1 GROUP BY history.cause, lane

-- name: newest_acknowledged
-- As `newest_failed`, of the acknowledged tasks.
SELECT finished_at_ms, id FROM history
 WHERE state = 'failed' AND is_acknowledged = 1 AND cause = :cause AND lane = :lane
 ORDER BY finished_at_ms DESC, id DESC LIMIT :limit

-- name: errors
-- The errors of finished tasks.
SELECT id, error FROM history WHERE id IN carray(:ids)

-- name: without_cause
-- Failed tasks of stores from before causes were stored.
SELECT id, error FROM history WHERE state = 'failed' AND is_acknowledged = 0 AND cause IS NULL
 LIMIT :limit

-- name: set_cause
-- Store the cause of a failed task.
UPDATE history SET cause = :cause WHERE id = :id

-- name: put_minute
-- Insert or replace one minute of the charts.
INSERT OR REPLACE INTO minute (started_at_ms, queue, slots) VALUES (:started_at_ms, :queue, :slots)

-- name: minutes
-- Minutes of the charts, the oldest first.
SELECT started_at_ms, queue, slots FROM minute
 WHERE started_at_ms >= :since_ms ORDER BY started_at_ms

-- name: prune_minutes
-- Delete old minutes of the charts.
DELETE FROM minute WHERE started_at_ms < :before_ms

-- name: size
-- Size of the database in bytes.
SELECT page_count * page_size FROM pragma_page_count() CROSS JOIN pragma_page_size()
