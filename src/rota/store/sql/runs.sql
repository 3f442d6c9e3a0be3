-- name: add
-- Insert a run.
INSERT INTO run (id, workflow, version, state, input, key, parent_run, parent_token, depth,
                 forked_from, timeout_ms, created_at_ms, has_waits_recorded)
VALUES (:id, :workflow, :version, 'running', :input, :key, :parent_run, :parent_token, :depth,
        :forked_from, :timeout_ms, :created_at_ms, 1)

-- name: add_key
-- Insert the idempotency key of a run.
INSERT INTO run_key (key, id) VALUES (:key, :id)

-- name: id_by_key
-- The run that has an idempotency key.
SELECT id FROM run_key WHERE key = :key

-- name: by_ids
-- The runs of these ids.
SELECT r.id, r.workflow, r.version, r.state, r.input, r.context, r.output, r.error, r.key,
       r.parent_run, r.parent_token, r.depth, r.forked_from, r.timeout_ms, r.created_at_ms,
       r.finished_at_ms
  FROM carray(:ids) AS wanted CROSS JOIN run AS r ON r.id = wanted.value

-- name: set_state
-- Store the state of a run.
UPDATE run SET state = :state, context = :context, output = :output, error = :error,
               finished_at_ms = :finished_at_ms
 WHERE id = :id

-- name: set_parent_token
-- Store the token of its parent that a run works for.
UPDATE run SET parent_token = :token WHERE id = :id

-- name: append
-- Append an entry to the journal of a run.
INSERT INTO journal (run, number, at_ms, event, decisions, links)
VALUES (:run, :number, :at_ms, :event, :decisions, :links)

-- name: journal
-- Entries of the journal of a run, the oldest first.
SELECT number, at_ms, event, decisions, coalesce(links, '{}') AS links FROM journal
 WHERE run = :run AND number > :after ORDER BY number LIMIT :limit

-- name: set_timer
-- Insert a timer of a run.
INSERT OR REPLACE INTO run_timer (due_at_ms, run, kind, number)
VALUES (:due_at_ms, :run, :kind, :number)

-- name: drop_timer
-- Delete one timer of a run.
DELETE FROM run_timer WHERE run = :run AND kind = :kind AND number = :number

-- name: drop_timers
-- Delete every timer of a run.
DELETE FROM run_timer WHERE run = :run

-- name: due_timers
-- Timers that are due, the oldest first, but those of slices.
SELECT run, kind, number, due_at_ms FROM run_timer
 WHERE due_at_ms <= :now_ms AND kind <> 'slice' ORDER BY due_at_ms LIMIT :limit

-- name: due_slices
-- Timers with which runs go on that have steps to take, the oldest first.
SELECT run, kind, number, due_at_ms FROM run_timer
 WHERE due_at_ms <= :now_ms AND kind = 'slice' ORDER BY due_at_ms LIMIT :limit

-- name: next_timer
-- When the next timer is due.
SELECT min(due_at_ms) FROM run_timer

-- name: page
-- Ids of runs, newest first.
SELECT id FROM run WHERE id < :before ORDER BY id DESC LIMIT :limit

-- name: page_of_workflow
-- Ids of the runs of a workflow, in one state or in any, newest first.
SELECT id FROM run INDEXED BY run_by_workflow
 WHERE workflow = :workflow AND id < :before AND (:state IS NULL OR state = :state)
 ORDER BY id DESC LIMIT :limit

-- name: page_in_state
-- Ids of the runs in one state, newest first.
SELECT id FROM run INDEXED BY run_by_state
 WHERE state = :state AND id < :before ORDER BY id DESC LIMIT :limit

-- name: add_task
-- Record the run and the token that a task works for.
INSERT INTO run_task (task, run, token) VALUES (:task, :run, :token)

-- name: tasks
-- The run and the token that each of these tasks works for.
SELECT task, run, token FROM run_task WHERE task IN carray(:tasks)

-- name: leased_tasks
-- The run and the token of the tasks that workers run.
SELECT r.task, r.run, r.token FROM lease AS l CROSS JOIN run_task AS r ON r.task = l.id
 WHERE l.incarnation <> 0

-- name: has_tasks
-- Whether any task works for a run.
SELECT EXISTS (SELECT 1 FROM run_task)

-- name: executing
-- The tokens of a run whose tasks are leased, with their tasks.
SELECT r.token, r.task FROM run_task AS r CROSS JOIN lease AS l ON l.id = r.task WHERE r.run = :run

-- name: last_id
-- The highest id of a run.
SELECT coalesce(max(id), 0) FROM run

-- name: prunable
-- Runs that ended before a time. A run stays as long as its parent is under way.
SELECT r.id FROM run AS r
 WHERE r.finished_at_ms IS NOT NULL AND r.finished_at_ms < :before_ms
   AND NOT EXISTS (SELECT 1 FROM run AS p WHERE p.id = r.parent_run AND p.finished_at_ms IS NULL)
 ORDER BY r.finished_at_ms LIMIT :limit

-- name: drop_runs
-- Delete runs.
DELETE FROM run WHERE id IN carray(:ids)

-- name: drop_journals
-- Delete the journals of runs.
DELETE FROM journal WHERE run IN carray(:ids)

-- name: drop_tasks
-- Delete which tasks worked for runs.
DELETE FROM run_task WHERE run IN carray(:ids)

-- name: drop_keys
-- Delete the idempotency keys of runs.
DELETE FROM run_key WHERE key IN (SELECT key FROM run WHERE id IN carray(:ids) AND key IS NOT NULL)
