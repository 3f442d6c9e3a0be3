-- name: last_id
SELECT greatest(coalesce((SELECT max(id) FROM task), 0), coalesce((SELECT max(id) FROM history), 0))

-- name: add
INSERT INTO task (id, lane, priority, payload, options, key, created_at_ms)
SELECT * FROM unnest(?::bigint[], ?::bigint[], ?::bigint[], ?::bytea[], ?::bytea[], ?::text[],
                     ?::bigint[])

-- name: add_scheduled
INSERT INTO scheduled (due_at_ms, id, fence, attempt)
SELECT due_at_ms, id, 0, 0 FROM unnest(?::bigint[], ?::bigint[]) AS one (due_at_ms, id)

-- name: add_start_limit
INSERT INTO start_limit (start_by_ms, id) SELECT * FROM unnest(?::bigint[], ?::bigint[])
    ON CONFLICT DO NOTHING

-- name: add_key
INSERT INTO task_key (key, id) SELECT * FROM unnest(?::text[], ?::bigint[])

-- name: add_label
INSERT INTO task_label (label, id) SELECT * FROM unnest(?::text[], ?::bigint[])
    ON CONFLICT DO NOTHING

-- name: take_ready_one
DELETE FROM ready
 USING (SELECT r.place FROM unnest(?::bigint[]) AS wanted (id)
         CROSS JOIN LATERAL (SELECT * FROM task WHERE task.id = wanted.id OFFSET 0) AS t
         CROSS JOIN LATERAL (SELECT ctid AS place FROM ready
                              WHERE lane = t.lane AND rank = -t.priority AND id = t.id
                             OFFSET 0) AS r) AS found
 WHERE ready.ctid = found.place

-- name: take_scheduled_one
DELETE FROM scheduled WHERE id = ANY(?::bigint[])

-- name: lease
INSERT INTO lease (id, lane, incarnation, fence, attempt, started_at_ms, deadline_ms, holder)
SELECT * FROM unnest(?::bigint[], ?::bigint[], ?::bigint[], ?::bigint[], ?::bigint[], ?::bigint[],
                     ?::bigint[], ?::text[])

-- name: lease_alike
-- Many tasks under the same terms.
INSERT INTO lease (lane, incarnation, fence, attempt, started_at_ms, deadline_ms, id)
SELECT ?::bigint, ?::bigint, ?::bigint, ?::bigint, ?::bigint, ?::bigint, unnest(?::bigint[])

-- name: finish_running
-- A lease that has moved on to another fence matches no row.
INSERT INTO history (id, lane, priority, payload, options, key, created_at_ms, log,
                     state, fence, attempt, incarnation, worker_id, started_at_ms,
                     finished_at_ms, result, error, cause, progress, partial)
SELECT t.id, t.lane, t.priority, t.payload, t.options, t.key, t.created_at_ms, t.log,
       f.state, f.fence, f.attempt, l.incarnation, f.worker_id, l.started_at_ms,
       f.finished_at_ms, f.result, f.error, f.cause, l.progress, l.partial
  FROM unnest(?::text[], ?::bigint[], ?::bigint[], ?::text[], ?::bigint[], ?::bytea[], ?::bytea[],
              ?::text[], ?::bigint[])
    AS f (state, fence, attempt, worker_id, finished_at_ms, result, error, cause, id)
 CROSS JOIN lease AS l ON l.id = f.id AND l.fence = f.fence
 CROSS JOIN task AS t ON t.id = f.id

-- name: finish_alike
-- Many tasks that ended at one moment in the same way; a lease that has moved on matches no row.
INSERT INTO history (id, lane, priority, payload, options, key, created_at_ms, log,
                     state, fence, attempt, incarnation, worker_id, started_at_ms,
                     finished_at_ms, result, progress, partial)
SELECT t.id, t.lane, t.priority, t.payload, t.options, t.key, t.created_at_ms, t.log,
       ?::text, l.fence, ?::bigint, l.incarnation, ?::text, l.started_at_ms,
       ?::bigint, ?::bytea, l.progress, l.partial
  FROM unnest(?::bigint[]) AS f (value)
 CROSS JOIN lease AS l ON l.id = f.value AND l.fence = ?
 CROSS JOIN task AS t ON t.id = f.value

-- name: finish_waiting
INSERT INTO history (id, lane, priority, payload, options, key, created_at_ms, log,
                     state, fence, attempt, incarnation, worker_id, started_at_ms,
                     finished_at_ms, result, error, cause)
SELECT t.id, t.lane, t.priority, t.payload, t.options, t.key, t.created_at_ms, t.log,
       f.state, f.fence, f.attempt, NULL, f.worker_id, NULL,
       f.finished_at_ms, f.result, f.error, f.cause
  FROM unnest(?::text[], ?::bigint[], ?::bigint[], ?::text[], ?::bigint[], ?::bytea[], ?::bytea[],
              ?::text[], ?::bigint[])
    AS f (state, fence, attempt, worker_id, finished_at_ms, result, error, cause, id)
 CROSS JOIN task AS t ON t.id = f.id

-- name: drop_lease_at
-- Matches no row when the lease has moved on.
DELETE FROM lease
 USING (SELECT l.place FROM unnest(?::bigint[], ?::bigint[]) AS one (id, fence)
         CROSS JOIN LATERAL (SELECT ctid AS place FROM lease
                              WHERE id = one.id AND fence = one.fence OFFSET 0) AS l) AS found
 WHERE lease.ctid = found.place

-- name: set_log
UPDATE task SET log = found.log
  FROM (SELECT t.place, one.log FROM unnest(?::bytea[], ?::bigint[]) AS one (log, id)
         CROSS JOIN LATERAL (SELECT ctid AS place FROM task WHERE id = one.id OFFSET 0) AS t) AS found
 WHERE task.ctid = found.place

-- name: queue_again
INSERT INTO ready (lane, rank, id, fence, attempt, since_ms)
SELECT t.lane, -t.priority, t.id, one.fence, one.attempt, one.since_ms
  FROM unnest(?::bigint[], ?::bigint[], ?::bigint[], ?::bigint[])
    AS one (fence, attempt, since_ms, id)
 CROSS JOIN task AS t ON t.id = one.id

-- name: schedule_again
INSERT INTO scheduled (due_at_ms, id, fence, attempt)
SELECT * FROM unnest(?::bigint[], ?::bigint[], ?::bigint[], ?::bigint[])

-- name: queue_scheduled
INSERT INTO ready (lane, rank, id, fence, attempt, since_ms)
SELECT t.lane, -t.priority, t.id, s.fence, s.attempt, ?::bigint
  FROM unnest(?::bigint[]) AS wanted (value)
 CROSS JOIN scheduled AS s ON s.id = wanted.value
 CROSS JOIN task AS t ON t.id = s.id

-- name: revive
INSERT INTO task (id, lane, priority, payload, options, key, created_at_ms, log)
SELECT h.id, h.lane, h.priority, h.payload, h.options, h.key, h.created_at_ms, one.log
  FROM unnest(?::bytea[], ?::bigint[]) AS one (log, id) CROSS JOIN history AS h ON h.id = one.id

-- name: revive_ready
INSERT INTO ready (lane, rank, id, fence, attempt, since_ms)
SELECT h.lane, -h.priority, h.id, h.fence, 0, one.since_ms
  FROM unnest(?::bigint[], ?::bigint[]) AS one (since_ms, id) CROSS JOIN history AS h ON h.id = one.id

-- name: note_progress
-- Of several notes on one task the last of each kind counts.
UPDATE lease SET progress = coalesce(found.progress, lease.progress),
                 partial = coalesce(found.partial, lease.partial)
  FROM (SELECT l.place, one.progress, one.partial
          FROM (SELECT id, fence,
                       (array_agg(progress ORDER BY n DESC) FILTER (WHERE progress IS NOT NULL))[1],
                       (array_agg(partial ORDER BY n DESC) FILTER (WHERE partial IS NOT NULL))[1]
                  FROM unnest(?::bytea[], ?::bytea[], ?::bigint[], ?::bigint[])
                  WITH ORDINALITY AS note (progress, partial, id, fence, n)
                 GROUP BY id, fence) AS one (id, fence, progress, partial)
         CROSS JOIN LATERAL (SELECT ctid AS place FROM lease
                              WHERE id = one.id AND fence = one.fence OFFSET 0) AS l) AS found
 WHERE lease.ctid = found.place

-- name: drop_label
DELETE FROM task_label
 USING (SELECT l.place FROM unnest(?::text[], ?::bigint[]) AS one (label, id)
         CROSS JOIN LATERAL (SELECT ctid AS place FROM task_label
                              WHERE label = one.label AND id = one.id OFFSET 0) AS l) AS found
 WHERE task_label.ctid = found.place

-- name: old_stretch
SELECT * FROM old_stretch(?::bigint, ?::bigint, ?::bigint)

-- name: prunable
SELECT * FROM prunable(?::bigint, ?::bigint)
