-- name: add
INSERT INTO run (id, workflow, version, input, key, parent_run, parent_token, depth, forked_from,
                 timeout_ms, created_at_ms, state)
SELECT one.*, 'running'
  FROM unnest(?::bigint[], ?::text[], ?::bigint[], ?::bytea[], ?::text[], ?::bigint[], ?::bigint[],
              ?::bigint[], ?::bigint[], ?::bigint[], ?::bigint[]) AS one

-- name: set_state
UPDATE run SET state = found.state, context = found.context, output = found.output,
               error = found.error, finished_at_ms = found.finished_at_ms
  FROM (SELECT r.place, one.*
          FROM unnest(?::text[], ?::bytea[], ?::bytea[], ?::bytea[], ?::bigint[], ?::bigint[])
            AS one (state, context, output, error, finished_at_ms, id)
         CROSS JOIN LATERAL (SELECT ctid AS place FROM run WHERE id = one.id OFFSET 0) AS r) AS found
 WHERE run.ctid = found.place

-- name: append
INSERT INTO journal (run, number, at_ms, event, decisions, links)
SELECT * FROM unnest(?::bigint[], ?::bigint[], ?::bigint[], ?::bytea[], ?::bytea[], ?::bytea[])

-- name: set_timer
INSERT INTO run_timer (due_at_ms, run, kind, number)
SELECT * FROM unnest(?::bigint[], ?::bigint[], ?::text[], ?::bigint[])
    ON CONFLICT DO NOTHING

-- name: drop_timer
DELETE FROM run_timer
 USING (SELECT t.place
          FROM unnest(?::bigint[], ?::text[], ?::bigint[]) AS one (run, kind, number)
         CROSS JOIN LATERAL (SELECT ctid AS place FROM run_timer
                              WHERE run = one.run AND kind = one.kind AND number = one.number
                             OFFSET 0) AS t) AS found
 WHERE run_timer.ctid = found.place

-- name: page_of_workflow
SELECT id FROM run WHERE workflow = ? AND id < ? AND (?::text IS NULL OR state = ?::text)
 ORDER BY id DESC LIMIT ?

-- name: add_task
INSERT INTO run_task (task, run, token) SELECT * FROM unnest(?::bigint[], ?::bigint[], ?::bigint[])
