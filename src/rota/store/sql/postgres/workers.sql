-- name: record_heartbeat
-- Of several heartbeats of one worker, the last counts, and the last load that is not NULL.
UPDATE worker SET last_heartbeat_ms = found.at_ms, load = coalesce(found.load, worker.load)
  FROM (SELECT w.place, one.at_ms, one.load
          FROM (SELECT id, (array_agg(at_ms ORDER BY n DESC))[1],
                       (array_agg(load ORDER BY n DESC) FILTER (WHERE load IS NOT NULL))[1]
                  FROM unnest(:at_ms::bigint[], :load::bytea[], :worker_id::text[])
                  WITH ORDINALITY AS heartbeat (at_ms, load, id, n)
                 GROUP BY id) AS one (id, at_ms, load)
         CROSS JOIN LATERAL (SELECT ctid AS place FROM worker WHERE id = one.id OFFSET 0) AS w)
    AS found
 WHERE worker.ctid = found.place

-- name: put_quality
-- Of several records of one worker and name, the last counts.
INSERT INTO quality (worker_id, name, is_open, statistics, breaker)
SELECT DISTINCT ON (worker_id, name) worker_id, name, is_open, statistics, breaker
  FROM unnest(:worker_id::text[], :name::text[], :is_open::bigint[], :statistics::bytea[],
              :breaker::bytea[])
  WITH ORDINALITY AS one (worker_id, name, is_open, statistics, breaker, n)
 ORDER BY worker_id, name, n DESC
    ON CONFLICT (worker_id, name) DO UPDATE
   SET is_open = excluded.is_open, statistics = excluded.statistics, breaker = excluded.breaker

-- name: add_cancelled
INSERT INTO cancelled (incarnation, id)
SELECT * FROM unnest(:incarnation::bigint[], :task_id::bigint[])
    ON CONFLICT DO NOTHING

-- name: drop_cancelled
DELETE FROM cancelled
 USING (SELECT c.place FROM unnest(:incarnation::bigint[], :task_id::bigint[])
    AS one (incarnation, id)
         CROSS JOIN LATERAL (SELECT ctid AS place FROM cancelled
                              WHERE incarnation = one.incarnation AND id = one.id
                             OFFSET 0) AS c) AS found
 WHERE cancelled.ctid = found.place

-- name: raise_counter
UPDATE counter SET value = greatest(value, :value) WHERE name = :name
