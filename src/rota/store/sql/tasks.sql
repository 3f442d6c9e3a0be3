-- name: last_id
-- The highest id of a task.
SELECT max(coalesce((SELECT max(id) FROM task), 0), coalesce((SELECT max(id) FROM history), 0))

-- name: add
-- Insert a task.
INSERT INTO task (id, lane, priority, payload, options, key, created_at_ms)
VALUES (:id, :lane, :priority, :payload, :options, :key, :created_at_ms)

-- name: add_in_flow
-- Insert a task that belongs to a flow.
INSERT INTO task (id, lane, priority, payload, options, key, created_at_ms, flow, rank)
VALUES (:id, :lane, :priority, :payload, :options, :key, :created_at_ms, :flow, :rank)

-- name: queue_new
-- Queue a new task.
INSERT INTO ready (lane, rank, id, fence, attempt, since_ms)
VALUES (:lane, :rank, :id, 0, 0, :since_ms)

-- name: queue_range
-- Queue new tasks whose ids follow each other.
INSERT INTO ready (lane, rank, id, fence, attempt, since_ms)
SELECT coalesce(flow, lane), coalesce(rank, -priority), id, 0, 0, created_at_ms FROM task
 WHERE id BETWEEN :first AND :last

-- name: add_scheduled
-- Schedule a new task.
INSERT INTO scheduled (due_at_ms, id, fence, attempt) VALUES (:due_at_ms, :id, 0, 0)

-- name: add_start_limit
-- Insert the time limit of a task to start.
INSERT OR IGNORE INTO start_limit (start_by_ms, id) VALUES (:start_by_ms, :id)

-- name: add_key
-- Insert the idempotency key of a task.
INSERT INTO task_key (key, queue, id) VALUES (:key, :queue, :id)

-- name: add_label
-- Insert a label of a task.
INSERT OR IGNORE INTO task_label (label, id) VALUES (:label, :id)

-- name: by_keys
-- The tasks that have these keys, in any queue: one key is rarely used in several queues.
SELECT k.key, k.queue, k.id
  FROM carray(:keys) AS wanted CROSS JOIN task_key AS k ON k.key = CAST(wanted.value AS TEXT)

-- name: open_lanes
-- The lanes with queued tasks. Walks from lane to lane along the index: one step for each.
WITH RECURSIVE open (lane) AS (
  SELECT min(lane) FROM ready WHERE lane < :end
   UNION ALL
  SELECT (SELECT min(lane) FROM ready WHERE lane > open.lane AND lane < :end)
    FROM open WHERE open.lane IS NOT NULL
)
SELECT lane FROM open WHERE lane IS NOT NULL

-- name: queued_after
-- The queued tasks of a lane after a place: higher priority first, then the oldest. Without the
-- payloads that are too large.
SELECT t.lane, r.rank, r.id, r.fence, r.attempt,
       CASE WHEN length(t.payload) <= :most_bytes THEN t.payload END,
       t.options, t.key, t.created_at_ms,
       w.run, w.token, t.flow, t.priority, t.rank
  FROM ready AS r CROSS JOIN task AS t ON t.id = r.id
  LEFT JOIN run_task AS w ON w.task = r.id
 WHERE r.lane = :lane AND (r.rank, r.id) > (:rank, :id)
 ORDER BY r.rank, r.id
 LIMIT :limit

-- name: queued_plain_after
-- As `queued_after`, of a lane whose tasks belong to no flow and to no run.
SELECT r.rank, r.id, r.fence, r.attempt,
       CASE WHEN length(t.payload) <= :most_bytes THEN t.payload END,
       t.options, t.key, t.created_at_ms
  FROM ready AS r CROSS JOIN task AS t ON t.id = r.id
 WHERE r.lane = :lane AND (r.rank, r.id) > (:rank, :id)
 ORDER BY r.rank, r.id
 LIMIT :limit

-- name: queued_after_each
-- The queued tasks of several lanes, each after a place of its own; both are given as a JSON list.
SELECT t.lane, r.rank, r.id, r.fence, r.attempt,
       CASE WHEN length(t.payload) <= :most_bytes THEN t.payload END,
       t.options, t.key, t.created_at_ms,
       w.run, w.token, t.flow, t.priority, t.rank
  FROM json_each(:after) AS wanted
 CROSS JOIN ready AS r
    ON r.lane = wanted.value ->> 'lane'
   AND (r.rank, r.id) IN (SELECT n.rank, n.id FROM ready AS n
                           WHERE n.lane = wanted.value ->> 'lane'
                             AND (n.rank, n.id) > (wanted.value ->> 'rank', wanted.value ->> 'id')
                           ORDER BY n.rank, n.id
                           LIMIT :limit)
 CROSS JOIN task AS t ON t.id = r.id
  LEFT JOIN run_task AS w ON w.task = r.id

-- name: queued
-- Those of these tasks that are queued. Without the payloads that are too large of those that are
-- read ahead: few, where thousands may be wanted whole.
SELECT t.lane, r.rank, r.id, r.fence, r.attempt,
       CASE WHEN length(t.payload) <= :most_bytes OR NOT t.id IN carray(:ahead) THEN t.payload END,
       t.options, t.key, t.created_at_ms,
       w.run, w.token, t.flow, t.priority, t.rank
  FROM carray(:ids) AS wanted
 CROSS JOIN task AS t ON t.id = wanted.value
 CROSS JOIN ready AS r ON r.lane = coalesce(t.flow, t.lane) AND r.id = t.id
                       AND r.rank = coalesce(t.rank, -t.priority)
  LEFT JOIN run_task AS w ON w.task = r.id

-- name: dequeue
-- Take tasks of one lane and rank out of the queue.
DELETE FROM ready WHERE lane = :lane AND rank = :rank AND id IN carray(:ids)

-- name: dequeue_between
-- Take a range of ids of one lane and rank out of the queue.
DELETE FROM ready WHERE lane = :lane AND rank = :rank AND id BETWEEN :first AND :last

-- name: dequeue_one
-- Take one task out of the queue.
DELETE FROM ready
 WHERE (lane, rank, id) = (SELECT coalesce(flow, lane), coalesce(rank, -priority), id FROM task WHERE id = :id)

-- name: unschedule_one
-- Take one task out of the schedule.
DELETE FROM scheduled WHERE id = :id

-- name: lease
-- Insert a lease.
INSERT INTO lease (id, lane, incarnation, fence, attempt, started_at_ms, deadline_ms, holder, owner)
VALUES (:id, :lane, :incarnation, :fence, :attempt, :started_at_ms, :deadline_ms, :holder, :owner)

-- name: lease_alike
-- Insert leases that are equal but for their task.
INSERT INTO lease (id, lane, incarnation, fence, attempt, started_at_ms, deadline_ms)
SELECT value, :lane, :incarnation, :fence, :attempt, :started_at_ms, :deadline_ms FROM carray(:ids)

-- name: leases
-- The leases of these tasks.
SELECT l.id, l.lane, l.incarnation, l.fence, l.attempt, l.started_at_ms, l.deadline_ms, l.holder,
       l.owner
  FROM carray(:ids) AS wanted CROSS JOIN lease AS l ON l.id = wanted.value

-- name: leases_of
-- The leases of these incarnations.
SELECT id, lane, incarnation, fence, attempt, started_at_ms, deadline_ms, holder, owner
  FROM lease WHERE incarnation IN carray(:incarnations)

-- name: lease_counts
-- Number of leases of these incarnations.
SELECT incarnation, count(*) FROM lease WHERE incarnation IN carray(:incarnations) GROUP BY incarnation

-- name: all_leases
-- Every lease.
SELECT id, lane, incarnation, fence, attempt, started_at_ms, deadline_ms, holder, owner FROM lease

-- name: stage_finished
-- Insert the end of a task into the staging table; see `finish_running`.
INSERT INTO temp.finishing (state, fence, attempt, worker_id, finished_at_ms, result, error, cause, id)
VALUES (:state, :fence, :attempt, :worker_id, :finished_at_ms, :result, :error, :cause, :id)

-- name: finish_running
-- Move staged tasks that were leased to history. A lease at another fence matches no row.
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
-- Move leased tasks with equal ends to history. A lease at another fence matches no row.
INSERT INTO history (id, lane, priority, payload, options, key, created_at_ms, log,
                     state, fence, attempt, incarnation, worker_id, started_at_ms,
                     finished_at_ms, result, progress, partial)
SELECT t.id, t.lane, t.priority, t.payload, t.options, t.key, t.created_at_ms, t.log,
       :state, l.fence, :attempt, l.incarnation, :worker_id, l.started_at_ms,
       :finished_at_ms, :result, l.progress, l.partial
  FROM carray(:ids) AS f
 CROSS JOIN lease AS l ON l.id = f.value AND l.fence = :fence
 CROSS JOIN task AS t ON t.id = f.value

-- name: finish_waiting
-- Move staged tasks that were queued or scheduled to history.
INSERT INTO history (id, lane, priority, payload, options, key, created_at_ms, log,
                     state, fence, attempt, incarnation, worker_id, started_at_ms,
                     finished_at_ms, result, error, cause)
SELECT t.id, t.lane, t.priority, t.payload, t.options, t.key, t.created_at_ms, t.log,
       f.state, f.fence, f.attempt, NULL, f.worker_id, NULL,
       f.finished_at_ms, f.result, f.error, f.cause
  FROM temp.finishing AS f CROSS JOIN task AS t ON t.id = f.id

-- name: unstage_finished
-- Empty the staging table.
DELETE FROM temp.finishing

-- name: drop_leases
-- Delete leases.
DELETE FROM lease WHERE id IN carray(:ids)

-- name: drop_tasks
-- Delete live tasks.
DELETE FROM task WHERE id IN carray(:ids)

-- name: drop_leases_between
-- Delete the leases of a range of ids.
DELETE FROM lease WHERE id BETWEEN :first AND :last

-- name: drop_tasks_between
-- Delete the live tasks of a range of ids.
DELETE FROM task WHERE id BETWEEN :first AND :last

-- name: drop_lease_at_fence
-- Delete a lease. Matches no row when the lease is at another fence.
DELETE FROM lease WHERE id = :id AND fence = :fence

-- name: attempt_logs
-- Of live tasks: logs of ended attempts, what the time limit to start is made of, and the place.
SELECT id, log, options, created_at_ms, coalesce(flow, lane),
       coalesce(rank, -priority)
  FROM task WHERE id IN carray(:ids)

-- name: set_log
-- Store the log of ended attempts of a live task.
UPDATE task SET log = :log WHERE id = :id

-- name: acknowledge
-- Store or delete the acknowledgement of failed tasks.
UPDATE history SET acknowledgement = :acknowledgement, is_acknowledged = :is_acknowledged
 WHERE id IN carray(:ids) AND state = 'failed'

-- name: requeue
-- Queue a task that was leased.
INSERT INTO ready (lane, rank, id, fence, attempt, since_ms)
SELECT coalesce(flow, lane), coalesce(rank, -priority), id, :fence, :attempt, :since_ms FROM task WHERE id = :id

-- name: reschedule
-- Schedule a task that was leased.
INSERT INTO scheduled (due_at_ms, id, fence, attempt) VALUES (:due_at_ms, :id, :fence, :attempt)

-- name: replace
-- Give a waiting task new contents. Its place in the queue is changed beside this.
UPDATE task
   SET lane = :lane, priority = :priority, payload = :payload, options = :options, flow = :flow
 WHERE id = :id

-- name: move_scheduled
-- Change the moment that a scheduled task is due; its attempts start over.
UPDATE scheduled SET due_at_ms = :due_at_ms, attempt = 0 WHERE id = :id

-- name: due
-- Scheduled tasks that are due, the oldest first.
SELECT id FROM scheduled WHERE due_at_ms <= :now_ms ORDER BY due_at_ms, id LIMIT :limit

-- name: next_due
-- When the next scheduled task is due.
SELECT min(due_at_ms) FROM scheduled

-- name: queue_scheduled
-- Queue scheduled tasks.
INSERT INTO ready (lane, rank, id, fence, attempt, since_ms)
SELECT coalesce(t.flow, t.lane), coalesce(t.rank, -t.priority), t.id, s.fence, s.attempt, :since_ms
  FROM carray(:ids) AS wanted
 CROSS JOIN scheduled AS s INDEXED BY scheduled_by_id ON s.id = wanted.value
 CROSS JOIN task AS t ON t.id = s.id

-- name: drop_scheduled
-- Take tasks out of the schedule.
DELETE FROM scheduled WHERE id IN carray(:ids)

-- name: overdue
-- Leased tasks past their deadline, the oldest first.
SELECT id FROM lease WHERE deadline_ms IS NOT NULL AND deadline_ms <= :now_ms
 ORDER BY deadline_ms LIMIT :limit

-- name: next_deadline
-- When the next deadline comes up.
SELECT min(deadline_ms) FROM lease WHERE deadline_ms IS NOT NULL

-- name: unstarted
-- Tasks past their time limit to start, the oldest first.
SELECT id FROM start_limit WHERE start_by_ms <= :now_ms ORDER BY start_by_ms LIMIT :limit

-- name: next_start_limit
-- When the next time limit to start comes up.
SELECT min(start_by_ms) FROM start_limit

-- name: drop_start_limits
-- Delete the time limits of these tasks that are over.
DELETE FROM start_limit WHERE start_by_ms <= :now_ms AND id IN carray(:ids)

-- name: live
-- Live tasks. Their state follows from the table that has them beside `task`.
SELECT t.id, t.lane, t.priority, t.payload, t.options, t.key, t.created_at_ms, t.log,
       coalesce(l.fence, r.fence, s.fence), coalesce(l.attempt, r.attempt, s.attempt),
       l.incarnation, coalesce(l.holder, w.id), l.started_at_ms, l.deadline_ms, l.progress,
       l.partial, s.due_at_ms, t.flow, t.rank
  FROM carray(:ids) AS wanted
 CROSS JOIN task AS t ON t.id = wanted.value
  LEFT JOIN lease AS l ON l.id = t.id
  LEFT JOIN ready AS r ON r.lane = coalesce(t.flow, t.lane) AND r.id = t.id
                       AND r.rank = coalesce(t.rank, -t.priority)
  LEFT JOIN scheduled AS s ON s.id = t.id
  LEFT JOIN worker AS w ON w.incarnation = l.incarnation

-- name: finished
-- Finished tasks.
SELECT h.id, h.lane, h.priority, h.payload, h.options, h.key, h.created_at_ms, h.log,
       h.fence, h.attempt, h.incarnation, h.worker_id, h.started_at_ms, h.finished_at_ms,
       h.progress, h.partial, h.state, h.result, h.error, h.acknowledgement
  FROM carray(:ids) AS wanted CROSS JOIN history AS h ON h.id = wanted.value

-- name: revive
-- Insert a finished task as a live one.
INSERT INTO task (id, lane, priority, payload, options, key, created_at_ms, log, flow, rank)
SELECT id, lane, priority, payload, coalesce(:options, options), key, created_at_ms, :log, :flow,
       :rank
  FROM history WHERE id = :id

-- name: queue_revived
-- Queue a finished task that was revived.
INSERT INTO ready (lane, rank, id, fence, attempt, since_ms)
SELECT coalesce(:flow, lane), coalesce(:rank, -priority), id, fence, 0, :since_ms FROM history WHERE id = :id

-- name: drop_history
-- Delete finished tasks.
DELETE FROM history WHERE id IN carray(:ids)

-- name: note_progress
-- Store progress and partial result of a leased task. A lease at another fence matches no row.
UPDATE lease SET progress = coalesce(:progress, progress), partial = coalesce(:partial, partial)
 WHERE id = :id AND fence = :fence

-- name: expired_partition
-- A partition of history that can be dropped as a whole. Only PostgreSQL has partitions.
SELECT 0, 0, 0 WHERE :now_id < 0 AND :before_id < 0 AND :before_ms < 0

-- name: prunable
-- Tasks that finished before a time, the oldest first.
SELECT id FROM history WHERE finished_at_ms < :before_ms ORDER BY finished_at_ms LIMIT :limit

-- name: drop_keys
-- Delete the idempotency keys of finished tasks.
DELETE FROM task_key
 WHERE (key, queue) IN (SELECT h.key, l.queue
                          FROM carray(:ids) AS wanted
                         CROSS JOIN history AS h ON h.id = wanted.value AND h.key IS NOT NULL
                         CROSS JOIN lane AS l ON l.number = h.lane)

-- name: options
-- The options of finished tasks that have some.
SELECT id, options FROM history WHERE id IN carray(:ids) AND options IS NOT NULL

-- name: drop_label
-- Delete a label of a task.
DELETE FROM task_label WHERE label = :label AND id = :id

-- name: queued_ranks
-- The ranks of the queued tasks of a lane. Walks along the index: one step for each.
WITH RECURSIVE step (rank) AS (
  SELECT min(rank) FROM ready WHERE lane = :lane
   UNION ALL
  SELECT (SELECT min(rank) FROM ready WHERE lane = :lane AND rank > step.rank)
    FROM step WHERE step.rank IS NOT NULL
)
SELECT rank FROM step WHERE rank IS NOT NULL

-- name: queued_ids
-- Queued tasks of one lane and rank, newest first.
SELECT id FROM ready
 WHERE lane = :lane AND rank = :rank AND id < :before ORDER BY id DESC LIMIT :limit

-- name: queued_in_flows
-- Queued tasks of one lane that belong to flows, newest first.
SELECT t.id
  FROM task AS t CROSS JOIN ready AS r ON r.lane = t.flow AND r.id = t.id
                                      AND r.rank = coalesce(t.rank, -t.priority)
 WHERE t.flow IS NOT NULL AND t.lane = :lane AND t.id < :before ORDER BY t.id DESC LIMIT :limit

-- name: lanes_with_flows
-- Of these lanes, those that have flows.
SELECT wanted.value FROM carray(:lanes) AS wanted
 WHERE EXISTS (SELECT 1 FROM flow WHERE flow.lane = wanted.value)

-- name: scheduled_ids
-- Scheduled tasks of these lanes, newest first.
SELECT s.id FROM scheduled AS s CROSS JOIN task AS t ON t.id = s.id
 WHERE t.lane IN carray(:lanes) AND s.id < :before ORDER BY s.id DESC LIMIT :limit

-- name: running_ids
-- Leased tasks of these lanes, newest first.
SELECT id FROM lease WHERE lane IN carray(:lanes) AND id < :before ORDER BY id DESC LIMIT :limit

-- name: succeeded_ids
-- Succeeded tasks of a lane, newest first.
SELECT id FROM history
 WHERE state = 'succeeded' AND lane = :lane AND id < :before ORDER BY id DESC LIMIT :limit

-- name: failed_ids
-- Failed tasks of a lane, newest first.
SELECT id FROM history
 WHERE state = 'failed' AND lane = :lane AND id < :before ORDER BY id DESC LIMIT :limit

-- name: acknowledged_ids
-- Failed tasks of a lane that are acknowledged, newest first.
SELECT id FROM history
 WHERE state = 'failed' AND is_acknowledged = 1 AND lane = :lane AND id < :before
 ORDER BY id DESC LIMIT :limit

-- name: unacknowledged_ids
-- Failed tasks of a lane that nobody has acknowledged, newest first.
SELECT id FROM history
 WHERE state = 'failed' AND is_acknowledged = 0 AND lane = :lane AND id < :before
 ORDER BY id DESC LIMIT :limit

-- name: cancelled_ids
-- Cancelled tasks of a lane, newest first.
SELECT id FROM history
 WHERE state = 'cancelled' AND lane = :lane AND id < :before ORDER BY id DESC LIMIT :limit

-- name: labelled_among
-- Of these tasks, those with a label.
SELECT id FROM task_label WHERE label = :label AND id IN carray(:ids)

-- name: labelled_ids
-- Tasks with a label, newest first.
SELECT id FROM task_label WHERE label = :label AND id < :before ORDER BY id DESC LIMIT :limit

-- name: count_ahead
-- Number of tasks ahead of one in its lane, counted up to a limit.
SELECT count(*) FROM (
  SELECT 1 FROM ready WHERE lane = :lane AND (rank, id) < (:rank, :id) LIMIT :limit) AS before

-- name: count_queued
-- Number of queued tasks of these lanes.
SELECT (SELECT count(*) FROM ready WHERE lane IN carray(:lanes))
     + (SELECT count(*) FROM ready
         WHERE lane IN (SELECT number FROM flow WHERE lane IN carray(:lanes)))

-- name: count_scheduled
-- Number of scheduled tasks of these lanes.
SELECT count(*) FROM scheduled AS s CROSS JOIN task AS t ON t.id = s.id WHERE t.lane IN carray(:lanes)

-- name: count_running
-- Number of leased tasks of these lanes.
SELECT count(*) FROM lease WHERE lane IN carray(:lanes)

-- name: count_succeeded
-- Number of succeeded tasks of these lanes.
SELECT count(*) FROM history WHERE state = 'succeeded' AND lane IN carray(:lanes)

-- name: count_failed
-- Number of failed tasks of these lanes.
SELECT count(*) FROM history WHERE state = 'failed' AND lane IN carray(:lanes)

-- name: count_acknowledged
-- Number of failed tasks of these lanes that are acknowledged.
SELECT count(*) FROM history
 WHERE state = 'failed' AND is_acknowledged = 1 AND lane IN carray(:lanes)

-- name: count_unacknowledged
-- Number of failed tasks of these lanes that nobody has acknowledged.
SELECT count(*) FROM history
 WHERE state = 'failed' AND is_acknowledged = 0 AND lane IN carray(:lanes)

-- name: count_cancelled
-- Number of cancelled tasks of these lanes.
SELECT count(*) FROM history WHERE state = 'cancelled' AND lane IN carray(:lanes)

-- name: places
-- The places of these live tasks in the queue.
SELECT coalesce(flow, lane), coalesce(rank, -priority), id FROM task WHERE id IN carray(:ids)
