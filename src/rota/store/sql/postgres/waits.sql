-- name: put
INSERT INTO run_wait (run, number, kind, name, place, title, since_ms, due_at_ms, total, has_form)
SELECT * FROM unnest(:run::bigint[], :number::bigint[], :kind::text[], :name::text[],
                     :place::text[], :title::text[], :since_ms::bigint[], :due_at_ms::bigint[],
                     :total::bigint[], :has_form::bigint[])
    ON CONFLICT (run, number) DO UPDATE
   SET kind = excluded.kind, name = excluded.name, place = excluded.place, title = excluded.title,
       since_ms = excluded.since_ms, due_at_ms = excluded.due_at_ms, total = excluded.total,
       has_form = excluded.has_form

-- name: drop
DELETE FROM run_wait
 USING (SELECT w.place
          FROM unnest(:run::bigint[], :number::bigint[]) AS one (run, number)
         CROSS JOIN LATERAL (SELECT ctid AS place FROM run_wait
                              WHERE run = one.run AND number = one.number
                             OFFSET 0) AS w) AS found
 WHERE run_wait.ctid = found.place

-- name: of_runs
SELECT w.run, w.number, w.kind, w.name, w.place, w.title, w.since_ms, w.due_at_ms, w.total,
       w.has_form
  FROM unnest(:runs::bigint[]) AS wanted (value)
 CROSS JOIN LATERAL (SELECT * FROM run_wait AS n WHERE n.run = wanted.value
                      ORDER BY n.number LIMIT :limit::bigint) AS w
