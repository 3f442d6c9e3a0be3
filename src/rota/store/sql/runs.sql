-- name: add
INSERT INTO run (id, workflow, version, state, input, key, parent_run, parent_token, depth,
                 forked_from, timeout_ms, created_at_ms)
VALUES (?, ?, ?, 'running', ?, ?, ?, ?, ?, ?, ?, ?)

-- name: add_key
INSERT INTO run_key (key, id) VALUES (?, ?)

-- name: by_key
SELECT id FROM run_key WHERE key = ?

-- name: by_ids
SELECT r.id, r.workflow, r.version, r.state, r.input, r.context, r.output, r.error, r.key,
       r.parent_run, r.parent_token, r.depth, r.forked_from, r.timeout_ms, r.created_at_ms,
       r.finished_at_ms
  FROM carray(?) AS wanted CROSS JOIN run AS r ON r.id = wanted.value

-- name: set_state
UPDATE run SET state = ?, context = ?, output = ?, error = ?, finished_at_ms = ? WHERE id = ?

-- name: append
INSERT INTO journal (run, number, at_ms, event, decisions, links) VALUES (?, ?, ?, ?, ?, ?)

-- name: journal
SELECT number, at_ms, event, decisions, links FROM journal
 WHERE run = ? AND number > ? ORDER BY number LIMIT ?

-- name: last_numbers
SELECT r.id, (SELECT max(j.number) FROM journal AS j WHERE j.run = r.id)
  FROM carray(?) AS wanted CROSS JOIN run AS r ON r.id = wanted.value

-- name: set_timer
INSERT OR REPLACE INTO run_timer (due_at_ms, run, kind, number) VALUES (?, ?, ?, ?)

-- name: drop_timer
DELETE FROM run_timer WHERE run = ? AND kind = ? AND number = ?

-- name: drop_timers
DELETE FROM run_timer WHERE run = ?

-- name: due_timers
SELECT run, kind, number, due_at_ms FROM run_timer WHERE due_at_ms <= ? ORDER BY due_at_ms LIMIT ?

-- name: next_timer
SELECT min(due_at_ms) FROM run_timer

-- name: page
SELECT id FROM run WHERE id < ? ORDER BY id DESC LIMIT ?

-- name: page_of_workflow
SELECT id FROM run INDEXED BY run_by_workflow
 WHERE workflow = ? AND id < ? AND (? IS NULL OR state = ?)
 ORDER BY id DESC LIMIT ?

-- name: page_in_state
SELECT id FROM run INDEXED BY run_by_state WHERE state = ? AND id < ? ORDER BY id DESC LIMIT ?

-- name: add_task
INSERT INTO run_task (task, run, token) VALUES (?, ?, ?)

-- name: tasks
SELECT task, run, token FROM run_task WHERE task IN carray(?)

-- name: any_task
SELECT EXISTS (SELECT 1 FROM run_task)

-- name: executing
SELECT r.token, r.task FROM run_task AS r CROSS JOIN lease AS l ON l.id = r.task WHERE r.run = ?

-- name: last_id
SELECT coalesce(max(id), 0) FROM run

-- name: prunable
-- A run is kept as long as the one that it works for is under way.
SELECT r.id FROM run AS r
 WHERE r.finished_at_ms IS NOT NULL AND r.finished_at_ms < ?
   AND NOT EXISTS (SELECT 1 FROM run AS p WHERE p.id = r.parent_run AND p.finished_at_ms IS NULL)
 ORDER BY r.finished_at_ms LIMIT ?

-- name: drop_runs
DELETE FROM run WHERE id IN carray(?)

-- name: drop_journals
DELETE FROM journal WHERE run IN carray(?)

-- name: drop_tasks
DELETE FROM run_task WHERE run IN carray(?)

-- name: drop_keys
DELETE FROM run_key WHERE key IN (SELECT key FROM run WHERE id IN carray(?) AND key IS NOT NULL)
