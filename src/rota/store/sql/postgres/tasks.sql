-- name: last_id
SELECT greatest(coalesce((SELECT max(id) FROM task), 0), coalesce((SELECT max(id) FROM history), 0))

-- name: add
INSERT INTO task (id, lane, priority, payload, options, key, created_at_ms)
SELECT * FROM unnest(:id::bigint[], :lane::bigint[], :priority::bigint[], :payload::bytea[],
                     :options::bytea[], :key::text[],
                     :created_at_ms::bigint[])

-- name: add_in_flow
INSERT INTO task (id, lane, priority, payload, options, key, created_at_ms, flow, rank)
SELECT * FROM unnest(:id::bigint[], :lane::bigint[], :priority::bigint[], :payload::bytea[],
                     :options::bytea[], :key::text[],
                     :created_at_ms::bigint[], :flow::bigint[], :rank::bigint[])

-- name: queue_new
INSERT INTO ready (lane, rank, id, fence, attempt, since_ms)
SELECT lane, rank, id, 0, 0, since_ms
  FROM unnest(:lane::bigint[], :rank::bigint[], :id::bigint[], :since_ms::bigint[])
    AS one (lane, rank, id, since_ms)

-- name: add_scheduled
INSERT INTO scheduled (due_at_ms, id, fence, attempt)
SELECT due_at_ms, id, 0, 0 FROM unnest(:due_at_ms::bigint[], :id::bigint[]) AS one (due_at_ms, id)

-- name: add_start_limit
INSERT INTO start_limit (start_by_ms, id)
SELECT * FROM unnest(:start_by_ms::bigint[], :id::bigint[])
    ON CONFLICT DO NOTHING

-- name: add_key
INSERT INTO task_key (key, queue, id)
SELECT * FROM unnest(:key::text[], :queue::text[], :id::bigint[])

-- name: add_label
INSERT INTO task_label (label, id) SELECT * FROM unnest(:label::text[], :id::bigint[])
    ON CONFLICT DO NOTHING

-- name: queued_after_each
SELECT t.lane, r.rank, r.id, r.fence, r.attempt,
       CASE WHEN length(t.payload) <= :most_bytes THEN t.payload END,
       t.options, t.key, t.created_at_ms,
       w.run, w.token, t.flow, t.priority, t.rank
  FROM json_to_recordset(:after::json) AS wanted (lane bigint, rank bigint, id bigint)
 CROSS JOIN LATERAL (SELECT n.rank, n.id, n.fence, n.attempt FROM ready AS n
                      WHERE n.lane = wanted.lane AND (n.rank, n.id) > (wanted.rank, wanted.id)
                      ORDER BY n.rank, n.id
                      LIMIT :limit::bigint) AS r
 CROSS JOIN LATERAL (SELECT * FROM task WHERE task.id = r.id OFFSET 0) AS t
  LEFT JOIN LATERAL (SELECT run, token FROM run_task WHERE run_task.task = r.id OFFSET 0) AS w ON true

-- name: dequeue_one
DELETE FROM ready
 USING (SELECT r.place FROM unnest(:id::bigint[]) AS wanted (id)
         CROSS JOIN LATERAL (SELECT * FROM task WHERE task.id = wanted.id OFFSET 0) AS t
         CROSS JOIN LATERAL (SELECT ctid AS place FROM ready
                              WHERE lane = coalesce(t.flow, t.lane) AND rank = coalesce(t.rank, -t.priority) AND id = t.id
                             OFFSET 0) AS r) AS found
 WHERE ready.ctid = found.place

-- name: unschedule_one
DELETE FROM scheduled WHERE id = ANY(:id::bigint[])

-- name: lease
INSERT INTO lease (id, lane, incarnation, fence, attempt, started_at_ms, deadline_ms, holder, owner)
SELECT * FROM unnest(:id::bigint[], :lane::bigint[], :incarnation::bigint[], :fence::bigint[],
                     :attempt::bigint[], :started_at_ms::bigint[],
                     :deadline_ms::bigint[], :holder::text[], :owner::text[])

-- name: lease_alike
INSERT INTO lease (lane, incarnation, fence, attempt, started_at_ms, deadline_ms, id)
SELECT :lane::bigint, :incarnation::bigint, :fence::bigint, :attempt::bigint,
       :started_at_ms::bigint, :deadline_ms::bigint, unnest(:ids::bigint[])

-- name: finish_running
INSERT INTO history (id, lane, priority, payload, options, key, created_at_ms, log,
                     state, fence, attempt, incarnation, worker_id, started_at_ms,
                     finished_at_ms, result, error, cause, progress, partial)
SELECT t.id, t.lane, t.priority, t.payload, t.options, t.key, t.created_at_ms, t.log,
       f.state, f.fence, f.attempt, l.incarnation, f.worker_id, l.started_at_ms,
       f.finished_at_ms, f.result, f.error, f.cause, l.progress, l.partial
  FROM unnest(:state::text[], :fence::bigint[], :attempt::bigint[], :worker_id::text[],
              :finished_at_ms::bigint[], :result::bytea[], :error::bytea[],
              :cause::text[], :id::bigint[])
    AS f (state, fence, attempt, worker_id, finished_at_ms, result, error, cause, id)
 CROSS JOIN lease AS l ON l.id = f.id AND l.fence = f.fence
 CROSS JOIN task AS t ON t.id = f.id

-- name: finish_alike
INSERT INTO history (id, lane, priority, payload, options, key, created_at_ms, log,
                     state, fence, attempt, incarnation, worker_id, started_at_ms,
                     finished_at_ms, result, progress, partial)
SELECT t.id, t.lane, t.priority, t.payload, t.options, t.key, t.created_at_ms, t.log,
       :state::text, l.fence, :attempt::bigint, l.incarnation, :worker_id::text, l.started_at_ms,
       :finished_at_ms::bigint, :result::bytea, l.progress, l.partial
  FROM unnest(:ids::bigint[]) AS f (value)
 CROSS JOIN lease AS l ON l.id = f.value AND l.fence = :fence
 CROSS JOIN task AS t ON t.id = f.value

-- name: finish_waiting
INSERT INTO history (id, lane, priority, payload, options, key, created_at_ms, log,
                     state, fence, attempt, incarnation, worker_id, started_at_ms,
                     finished_at_ms, result, error, cause)
SELECT t.id, t.lane, t.priority, t.payload, t.options, t.key, t.created_at_ms, t.log,
       f.state, f.fence, f.attempt, NULL, f.worker_id, NULL,
       f.finished_at_ms, f.result, f.error, f.cause
  FROM unnest(:state::text[], :fence::bigint[], :attempt::bigint[], :worker_id::text[],
              :finished_at_ms::bigint[], :result::bytea[], :error::bytea[],
              :cause::text[], :id::bigint[])
    AS f (state, fence, attempt, worker_id, finished_at_ms, result, error, cause, id)
 CROSS JOIN task AS t ON t.id = f.id

-- name: drop_lease_at_fence
DELETE FROM lease
 USING (SELECT l.place FROM unnest(:id::bigint[], :fence::bigint[]) AS one (id, fence)
         CROSS JOIN LATERAL (SELECT ctid AS place FROM lease
                              WHERE id = one.id AND fence = one.fence OFFSET 0) AS l) AS found
 WHERE lease.ctid = found.place

-- name: set_log
UPDATE task SET log = found.log
  FROM (SELECT t.place, one.log FROM unnest(:log::bytea[], :id::bigint[]) AS one (log, id)
         CROSS JOIN LATERAL (SELECT ctid AS place FROM task WHERE id = one.id OFFSET 0) AS t)
    AS found
 WHERE task.ctid = found.place

-- name: requeue
INSERT INTO ready (lane, rank, id, fence, attempt, since_ms)
SELECT coalesce(t.flow, t.lane), coalesce(t.rank, -t.priority), t.id, one.fence, one.attempt, one.since_ms
  FROM unnest(:fence::bigint[], :attempt::bigint[], :since_ms::bigint[], :id::bigint[])
    AS one (fence, attempt, since_ms, id)
 CROSS JOIN task AS t ON t.id = one.id

-- name: reschedule
INSERT INTO scheduled (due_at_ms, id, fence, attempt)
SELECT * FROM unnest(:due_at_ms::bigint[], :id::bigint[], :fence::bigint[], :attempt::bigint[])

-- name: queue_scheduled
INSERT INTO ready (lane, rank, id, fence, attempt, since_ms)
SELECT coalesce(t.flow, t.lane), coalesce(t.rank, -t.priority), t.id, s.fence, s.attempt, :since_ms::bigint
  FROM unnest(:ids::bigint[]) AS wanted (value)
 CROSS JOIN scheduled AS s ON s.id = wanted.value
 CROSS JOIN task AS t ON t.id = s.id

-- name: revive
INSERT INTO task (id, lane, priority, payload, options, key, created_at_ms, log, flow, rank)
SELECT h.id, h.lane, h.priority, h.payload, coalesce(one.options, h.options), h.key,
       h.created_at_ms, one.log, one.flow, one.rank
  FROM unnest(:options::bytea[], :log::bytea[], :flow::bigint[], :rank::bigint[], :id::bigint[])
    AS one (options, log, flow, rank, id)
 CROSS JOIN history AS h ON h.id = one.id

-- name: queue_revived
INSERT INTO ready (lane, rank, id, fence, attempt, since_ms)
SELECT coalesce(one.flow, h.lane), coalesce(one.rank, -h.priority), h.id, h.fence, 0, one.since_ms
  FROM unnest(:flow::bigint[], :rank::bigint[], :since_ms::bigint[], :id::bigint[])
    AS one (flow, rank, since_ms, id)
 CROSS JOIN history AS h ON h.id = one.id

-- name: note_progress
-- Of several notes on one task, the last value of each column that is not NULL counts.
UPDATE lease SET progress = coalesce(found.progress, lease.progress),
                 partial = coalesce(found.partial, lease.partial)
  FROM (SELECT l.place, one.progress, one.partial
          FROM (SELECT id, fence,
                       (array_agg(progress ORDER BY n DESC) FILTER (WHERE progress IS NOT NULL))[1],
                       (array_agg(partial ORDER BY n DESC) FILTER (WHERE partial IS NOT NULL))[1]
                  FROM unnest(:progress::bytea[], :partial::bytea[], :id::bigint[],
                              :fence::bigint[])
                  WITH ORDINALITY AS note (progress, partial, id, fence, n)
                 GROUP BY id, fence) AS one (id, fence, progress, partial)
         CROSS JOIN LATERAL (SELECT ctid AS place FROM lease
                              WHERE id = one.id AND fence = one.fence OFFSET 0) AS l) AS found
 WHERE lease.ctid = found.place

-- name: drop_keys
DELETE FROM task_key
 USING (SELECT k.place FROM unnest(:ids::bigint[]) AS wanted (value)
         CROSS JOIN LATERAL (SELECT * FROM history
                              WHERE history.id = wanted.value AND history.key IS NOT NULL
                             OFFSET 0) AS h
         CROSS JOIN LATERAL (SELECT * FROM lane WHERE lane.number = h.lane OFFSET 0) AS l
         CROSS JOIN LATERAL (SELECT ctid AS place FROM task_key
                              WHERE key = h.key AND queue = l.queue OFFSET 0) AS k) AS found
 WHERE task_key.ctid = found.place

-- name: drop_label
DELETE FROM task_label
 USING (SELECT l.place FROM unnest(:label::text[], :id::bigint[]) AS one (label, id)
         CROSS JOIN LATERAL (SELECT ctid AS place FROM task_label
                              WHERE label = one.label AND id = one.id OFFSET 0) AS l) AS found
 WHERE task_label.ctid = found.place

-- name: expired_partition
SELECT * FROM old_stretch(:now_id::bigint, :before_id::bigint, :before_ms::bigint)

-- name: prunable
SELECT * FROM prunable(:before_ms::bigint, :limit::bigint)
