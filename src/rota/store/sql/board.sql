-- name: tasks_by_state
SELECT (SELECT count(*) FROM scheduled),
       (SELECT count(*) FROM ready),
       (SELECT count(*) FROM lease),
       (SELECT count(*) FROM history),
       (SELECT count(*) FROM history WHERE state = 'failed'),
       (SELECT count(*) FROM history WHERE state = 'cancelled')

-- name: runs_by_state
SELECT state, count(*) FROM run GROUP BY state

-- name: work_of_runs
-- What open runs are at: their live tasks, by lane and by where they stand.
SELECT w.run, t.lane,
       CASE WHEN l.id IS NOT NULL THEN 'running' WHEN s.id IS NOT NULL THEN 'scheduled'
            ELSE 'queued' END AS state,
       count(*)
  FROM carray(?) AS wanted
 CROSS JOIN run_task AS w ON w.run = wanted.value
 CROSS JOIN task AS t ON t.id = w.task
  LEFT JOIN lease AS l ON l.id = t.id
  LEFT JOIN scheduled AS s ON s.id = t.id
 GROUP BY w.run, t.lane, state

-- name: failures
-- Counted along the index, which is in this order: no error is read.
SELECT cause, lane, count(*), min(finished_at_ms), max(finished_at_ms)
  FROM history WHERE state = 'failed' GROUP BY cause, lane

-- name: failed_of
-- The newest of one kind in one lane.
SELECT finished_at_ms, id FROM history
 WHERE state = 'failed' AND cause = ? AND lane = ? ORDER BY finished_at_ms DESC, id DESC LIMIT ?

-- name: errors
SELECT id, error FROM history WHERE id IN carray(?)

-- name: without_cause
SELECT id, error FROM history WHERE state = 'failed' AND cause IS NULL LIMIT ?

-- name: set_cause
UPDATE history SET cause = ? WHERE id = ?

-- name: add_minute
INSERT OR REPLACE INTO minute (started_at_ms, queue, slots) VALUES (?, ?, ?)

-- name: minutes
SELECT started_at_ms, queue, slots FROM minute WHERE started_at_ms >= ? ORDER BY started_at_ms

-- name: drop_minutes
DELETE FROM minute WHERE started_at_ms < ?

-- name: size
SELECT page_count * page_size FROM pragma_page_count() CROSS JOIN pragma_page_size()
