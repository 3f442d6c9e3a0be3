-- name: last_id
SELECT max(coalesce((SELECT max(id) FROM task), 0), coalesce((SELECT max(id) FROM history), 0))

-- name: add
INSERT INTO task (id, lane, priority, payload, options, key, created_at_ms) VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: add_ready_range
-- New tasks whose ids follow each other are queued by one statement.
INSERT INTO ready (lane, rank, id, fence, attempt, since_ms)
SELECT lane, -priority, id, 0, 0, created_at_ms FROM task WHERE id BETWEEN ? AND ?

-- name: add_scheduled
INSERT INTO scheduled (due_at_ms, id, fence, attempt) VALUES (?, ?, 0, 0)

-- name: add_start_limit
INSERT OR IGNORE INTO start_limit (start_by_ms, id) VALUES (?, ?)

-- name: add_key
INSERT INTO task_key (key, id) VALUES (?, ?)

-- name: add_label
INSERT OR IGNORE INTO task_label (label, id) VALUES (?, ?)

-- name: ids_by_keys
SELECT k.key, k.id
  FROM carray(?) AS wanted CROSS JOIN task_key AS k ON k.key = CAST(wanted.value AS TEXT)

-- name: open_lanes
-- Walks from lane to lane over the index: costs a step for each lane that holds anything.
WITH RECURSIVE open (lane) AS (
  SELECT min(lane) FROM ready
   UNION ALL
  SELECT (SELECT min(lane) FROM ready WHERE lane > open.lane) FROM open WHERE open.lane IS NOT NULL
)
SELECT lane FROM open WHERE lane IS NOT NULL

-- name: head
-- The tasks of one lane in the order of their turn.
SELECT r.lane, r.rank, r.id, r.fence, r.attempt, t.payload, t.options, t.key, t.created_at_ms
  FROM ready AS r CROSS JOIN task AS t ON t.id = r.id
 WHERE r.lane = ?
 ORDER BY r.rank, r.id
 LIMIT ?

-- name: take_ready
DELETE FROM ready WHERE lane = ? AND rank = ? AND id IN carray(?)

-- name: count_ready_between
SELECT count(*) FROM ready WHERE lane = ? AND rank = ? AND id BETWEEN ? AND ?

-- name: take_ready_between
DELETE FROM ready WHERE lane = ? AND rank = ? AND id BETWEEN ? AND ?

-- name: take_ready_one
DELETE FROM ready WHERE (lane, rank, id) = (SELECT lane, -priority, id FROM task WHERE id = ?)

-- name: take_scheduled_one
DELETE FROM scheduled WHERE id = ?

-- name: lease
INSERT INTO lease (id, lane, incarnation, fence, attempt, started_at_ms, deadline_ms, holder)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)

-- name: lease_alike
-- Many tasks under the same terms.
INSERT INTO lease (id, lane, incarnation, fence, attempt, started_at_ms, deadline_ms)
SELECT value, ?, ?, ?, ?, ?, ? FROM carray(?)

-- name: leases
SELECT l.id, l.lane, l.incarnation, l.fence, l.attempt, l.started_at_ms, l.deadline_ms, l.holder
  FROM carray(?) AS wanted CROSS JOIN lease AS l ON l.id = wanted.value

-- name: leases_of
SELECT id, lane, incarnation, fence, attempt, started_at_ms, deadline_ms, holder
  FROM lease WHERE incarnation IN carray(?)

-- name: held
SELECT incarnation, count(*) FROM lease WHERE incarnation IN carray(?) GROUP BY incarnation

-- name: held_in_lane
SELECT count(*) FROM lease WHERE incarnation = ? AND lane = ?

-- name: stage_finished
INSERT INTO temp.finishing (state, fence, attempt, worker_id, finished_at_ms, result, error, cause, id)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: finish_running
-- A lease that has moved on to another fence matches no row.
INSERT INTO history (id, lane, priority, payload, options, key, created_at_ms, log,
                     state, fence, attempt, incarnation, worker_id, started_at_ms,
                     finished_at_ms, result, error, cause, progress, partial)
SELECT t.id, t.lane, t.priority, t.payload, t.options, t.key, t.created_at_ms, t.log,
       f.state, f.fence, f.attempt, l.incarnation, f.worker_id, l.started_at_ms,
       f.finished_at_ms, f.result, f.error, f.cause, l.progress, l.partial
  FROM temp.finishing AS f
 CROSS JOIN lease AS l ON l.id = f.id AND l.fence = f.fence
 CROSS JOIN task AS t ON t.id = f.id

-- name: finish_alike
-- Many tasks that ended at one moment in the same way; a lease that has moved on matches no row.
INSERT INTO history (id, lane, priority, payload, options, key, created_at_ms, log,
                     state, fence, attempt, incarnation, worker_id, started_at_ms,
                     finished_at_ms, result, progress, partial)
SELECT t.id, t.lane, t.priority, t.payload, t.options, t.key, t.created_at_ms, t.log,
       ?, l.fence, ?, l.incarnation, ?, l.started_at_ms,
       ?, ?, l.progress, l.partial
  FROM carray(?) AS f
 CROSS JOIN lease AS l ON l.id = f.value AND l.fence = ?
 CROSS JOIN task AS t ON t.id = f.value

-- name: finish_waiting
INSERT INTO history (id, lane, priority, payload, options, key, created_at_ms, log,
                     state, fence, attempt, incarnation, worker_id, started_at_ms,
                     finished_at_ms, result, error, cause)
SELECT t.id, t.lane, t.priority, t.payload, t.options, t.key, t.created_at_ms, t.log,
       f.state, f.fence, f.attempt, NULL, f.worker_id, NULL,
       f.finished_at_ms, f.result, f.error, f.cause
  FROM temp.finishing AS f CROSS JOIN task AS t ON t.id = f.id

-- name: unstage_finished
DELETE FROM temp.finishing

-- name: drop_leases
DELETE FROM lease WHERE id IN carray(?)

-- name: drop_tasks
DELETE FROM task WHERE id IN carray(?)

-- name: drop_leases_between
DELETE FROM lease WHERE id BETWEEN ? AND ?

-- name: drop_tasks_between
DELETE FROM task WHERE id BETWEEN ? AND ?

-- name: drop_lease_at
-- Matches no row when the lease has moved on.
DELETE FROM lease WHERE id = ? AND fence = ?

-- name: before
-- What is told of attempts so far, and what a time limit to start follows from.
SELECT id, log, options, created_at_ms FROM task WHERE id IN carray(?)

-- name: set_log
UPDATE task SET log = ? WHERE id = ?

-- name: queue_again
INSERT INTO ready (lane, rank, id, fence, attempt, since_ms)
SELECT lane, -priority, id, ?, ?, ? FROM task WHERE id = ?

-- name: schedule_again
INSERT INTO scheduled (due_at_ms, id, fence, attempt) VALUES (?, ?, ?, ?)

-- name: due
SELECT id FROM scheduled WHERE due_at_ms <= ? ORDER BY due_at_ms, id LIMIT ?

-- name: next_due
SELECT min(due_at_ms) FROM scheduled

-- name: queue_scheduled
INSERT INTO ready (lane, rank, id, fence, attempt, since_ms)
SELECT t.lane, -t.priority, t.id, s.fence, s.attempt, ?
  FROM carray(?) AS wanted
 CROSS JOIN scheduled AS s INDEXED BY scheduled_by_id ON s.id = wanted.value
 CROSS JOIN task AS t ON t.id = s.id

-- name: drop_scheduled
DELETE FROM scheduled WHERE id IN carray(?)

-- name: overdue
SELECT id FROM lease WHERE deadline_ms IS NOT NULL AND deadline_ms <= ?
 ORDER BY deadline_ms LIMIT ?

-- name: next_deadline
SELECT min(deadline_ms) FROM lease WHERE deadline_ms IS NOT NULL

-- name: unstarted
SELECT id FROM start_limit WHERE start_by_ms <= ? ORDER BY start_by_ms LIMIT ?

-- name: next_start_limit
SELECT min(start_by_ms) FROM start_limit

-- name: drop_start_limits
DELETE FROM start_limit WHERE start_by_ms <= ? AND id IN carray(?)

-- name: live
-- Live tasks with the state that follows from where they stand.
SELECT t.id, t.lane, t.priority, t.payload, t.options, t.key, t.created_at_ms, t.log,
       coalesce(l.fence, r.fence, s.fence), coalesce(l.attempt, r.attempt, s.attempt),
       l.incarnation, coalesce(l.holder, w.id), l.started_at_ms, l.deadline_ms, l.progress,
       l.partial, s.due_at_ms
  FROM carray(?) AS wanted
 CROSS JOIN task AS t ON t.id = wanted.value
  LEFT JOIN lease AS l ON l.id = t.id
  LEFT JOIN ready AS r ON r.lane = t.lane AND r.rank = -t.priority AND r.id = t.id
  LEFT JOIN scheduled AS s ON s.id = t.id
  LEFT JOIN worker AS w ON w.incarnation = l.incarnation

-- name: finished
SELECT h.id, h.lane, h.priority, h.payload, h.options, h.key, h.created_at_ms, h.log,
       h.fence, h.attempt, h.incarnation, h.worker_id, h.started_at_ms, h.finished_at_ms,
       h.progress, h.partial, h.state, h.result, h.error
  FROM carray(?) AS wanted CROSS JOIN history AS h ON h.id = wanted.value

-- name: revive
INSERT INTO task (id, lane, priority, payload, options, key, created_at_ms, log)
SELECT id, lane, priority, payload, options, key, created_at_ms, ? FROM history WHERE id = ?

-- name: revive_ready
INSERT INTO ready (lane, rank, id, fence, attempt, since_ms)
SELECT lane, -priority, id, fence, 0, ? FROM history WHERE id = ?

-- name: drop_history
DELETE FROM history WHERE id IN carray(?)

-- name: note_progress
UPDATE lease SET progress = coalesce(?, progress), partial = coalesce(?, partial)
 WHERE id = ? AND fence = ?

-- name: old_stretch
-- A stretch of history that can be dropped as a whole. There are none here: see PostgreSQL's.
SELECT 0, 0, 0 WHERE ? < 0 AND ? < 0 AND ? < 0

-- name: prunable
SELECT id FROM history WHERE finished_at_ms < ? ORDER BY finished_at_ms LIMIT ?

-- name: drop_keys
DELETE FROM task_key
 WHERE key IN (SELECT key FROM history WHERE id IN carray(?) AND key IS NOT NULL)

-- name: labelled
SELECT id, options FROM history WHERE id IN carray(?) AND options IS NOT NULL

-- name: drop_label
DELETE FROM task_label WHERE label = ? AND id = ?

-- name: queued_ranks
-- The ranks at which something waits in a lane: a step over the index for each.
WITH RECURSIVE step (rank) AS (
  SELECT min(rank) FROM ready WHERE lane = ?
   UNION ALL
  SELECT (SELECT min(rank) FROM ready WHERE lane = ? AND rank > step.rank)
    FROM step WHERE step.rank IS NOT NULL
)
SELECT rank FROM step WHERE rank IS NOT NULL

-- name: queued_ids
-- Of one lane and rank, newest first.
SELECT id FROM ready WHERE lane = ? AND rank = ? AND id < ? ORDER BY id DESC LIMIT ?

-- name: scheduled_ids
SELECT s.id FROM scheduled AS s CROSS JOIN task AS t ON t.id = s.id
 WHERE t.lane IN carray(?) AND s.id < ? ORDER BY s.id DESC LIMIT ?

-- name: running_ids
SELECT id FROM lease WHERE lane IN carray(?) AND id < ? ORDER BY id DESC LIMIT ?

-- name: succeeded_ids
SELECT id FROM history WHERE state = 'succeeded' AND lane = ? AND id < ? ORDER BY id DESC LIMIT ?

-- name: failed_ids
SELECT id FROM history WHERE state = 'failed' AND lane = ? AND id < ? ORDER BY id DESC LIMIT ?

-- name: cancelled_ids
SELECT id FROM history WHERE state = 'cancelled' AND lane = ? AND id < ? ORDER BY id DESC LIMIT ?

-- name: labelled_among
SELECT id FROM task_label WHERE label = ? AND id IN carray(?)

-- name: labelled_ids
SELECT id FROM task_label WHERE label = ? AND id < ? ORDER BY id DESC LIMIT ?

-- name: ahead
-- How many are before a task in its lane; counted no further than asked.
SELECT count(*) FROM (
  SELECT 1 FROM ready WHERE lane = ? AND (rank, id) < (?, ?) LIMIT ?) AS before

-- name: count_queued
SELECT count(*) FROM ready WHERE lane IN carray(?)

-- name: count_scheduled
SELECT count(*) FROM scheduled AS s CROSS JOIN task AS t ON t.id = s.id WHERE t.lane IN carray(?)

-- name: count_running
SELECT count(*) FROM lease WHERE lane IN carray(?)

-- name: count_succeeded
SELECT count(*) FROM history WHERE state = 'succeeded' AND lane IN carray(?)

-- name: count_failed
SELECT count(*) FROM history WHERE state = 'failed' AND lane IN carray(?)

-- name: count_cancelled
SELECT count(*) FROM history WHERE state = 'cancelled' AND lane IN carray(?)

-- name: lanes_of
SELECT DISTINCT lane FROM task WHERE id IN carray(?)
