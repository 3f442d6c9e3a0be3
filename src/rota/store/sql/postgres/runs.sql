-- name: add
INSERT INTO run (id, workflow, version, input, key, parent_run, parent_token, depth, forked_from,
                 timeout_ms, created_at_ms, state, has_waits_recorded)
SELECT one.*, 'running', 1
  FROM unnest(:id::bigint[], :workflow::text[], :version::bigint[], :input::bytea[], :key::text[],
              :parent_run::bigint[], :parent_token::bigint[],
              :depth::bigint[], :forked_from::bigint[], :timeout_ms::bigint[],
              :created_at_ms::bigint[]) AS one

-- name: set_state
UPDATE run SET state = found.state, context = found.context, output = found.output,
               error = found.error, finished_at_ms = found.finished_at_ms
  FROM (SELECT r.place, one.*
          FROM unnest(:state::text[], :context::bytea[], :output::bytea[], :error::bytea[],
                      :finished_at_ms::bigint[], :id::bigint[])
            AS one (state, context, output, error, finished_at_ms, id)
         CROSS JOIN LATERAL (SELECT ctid AS place FROM run WHERE id = one.id OFFSET 0) AS r)
    AS found
 WHERE run.ctid = found.place

-- name: set_parent_token
UPDATE run SET parent_token = found.token
  FROM (SELECT r.place, one.token
          FROM unnest(:token::bigint[], :id::bigint[]) AS one (token, id)
         CROSS JOIN LATERAL (SELECT ctid AS place FROM run WHERE id = one.id OFFSET 0) AS r)
    AS found
 WHERE run.ctid = found.place

-- name: append
INSERT INTO journal (run, number, at_ms, event, decisions, links)
SELECT * FROM unnest(:run::bigint[], :number::bigint[], :at_ms::bigint[], :event::bytea[],
                     :decisions::bytea[], :links::bytea[])

-- name: set_timer
INSERT INTO run_timer (due_at_ms, run, kind, number)
SELECT * FROM unnest(:due_at_ms::bigint[], :run::bigint[], :kind::text[], :number::bigint[])
    ON CONFLICT DO NOTHING

-- name: drop_timer
DELETE FROM run_timer
 USING (SELECT t.place
          FROM unnest(:run::bigint[], :kind::text[], :number::bigint[]) AS one (run, kind, number)
         CROSS JOIN LATERAL (SELECT ctid AS place FROM run_timer
                              WHERE run = one.run AND kind = one.kind AND number = one.number
                             OFFSET 0) AS t) AS found
 WHERE run_timer.ctid = found.place

-- name: page_of_workflow
SELECT id FROM run
 WHERE workflow = :workflow AND id < :before AND (:state::text IS NULL OR state = :state)
 ORDER BY id DESC LIMIT :limit

-- name: add_task
INSERT INTO run_task (task, run, token)
SELECT * FROM unnest(:task::bigint[], :run::bigint[], :token::bigint[])
