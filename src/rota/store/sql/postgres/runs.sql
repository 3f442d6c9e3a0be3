-- name: add
INSERT INTO run (id, workflow, version, input, key, parent_run, parent_token, depth, forked_from,
                 timeout_ms, created_at_ms, state)
SELECT one.*, 'running'
  FROM unnest(?::bigint[], ?::text[], ?::bigint[], ?::bytea[], ?::text[], ?::bigint[], ?::bigint[],
              ?::bigint[], ?::bigint[], ?::bigint[], ?::bigint[]) AS one

-- name: set_state
UPDATE run SET state = one.state, context = one.context, output = one.output, error = one.error,
               finished_at_ms = one.finished_at_ms
  FROM unnest(?::text[], ?::bytea[], ?::bytea[], ?::bytea[], ?::bigint[], ?::bigint[])
    AS one (state, context, output, error, finished_at_ms, id)
 WHERE run.id = one.id

-- name: append
INSERT INTO journal (run, number, at_ms, event, decisions, links)
SELECT * FROM unnest(?::bigint[], ?::bigint[], ?::bigint[], ?::bytea[], ?::bytea[], ?::bytea[])

-- name: set_timer
INSERT INTO run_timer (due_at_ms, run, kind, number)
SELECT * FROM unnest(?::bigint[], ?::bigint[], ?::text[], ?::bigint[])
    ON CONFLICT DO NOTHING

-- name: drop_timer
DELETE FROM run_timer USING unnest(?::bigint[], ?::text[], ?::bigint[]) AS one (run, kind, number)
 WHERE run_timer.run = one.run AND run_timer.kind = one.kind AND run_timer.number = one.number

-- name: page_of_workflow
SELECT id FROM run WHERE workflow = ? AND id < ? AND (?::text IS NULL OR state = ?::text)
 ORDER BY id DESC LIMIT ?

-- name: add_task
INSERT INTO run_task (task, run, token) SELECT * FROM unnest(?::bigint[], ?::bigint[], ?::bigint[])
