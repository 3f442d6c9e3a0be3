-- name: set_cause
UPDATE history SET cause = one.cause FROM unnest(:cause::text[], :id::bigint[]) AS one (cause, id)
 WHERE history.id = one.id

-- name: put_minute
INSERT INTO minute (started_at_ms, queue, slots)
SELECT DISTINCT ON (started_at_ms, queue) started_at_ms, queue, slots
  FROM unnest(:started_at_ms::bigint[], :queue::text[], :slots::bytea[])
  WITH ORDINALITY AS one (started_at_ms, queue, slots, n)
 ORDER BY started_at_ms, queue, n DESC
    ON CONFLICT (started_at_ms, queue) DO UPDATE SET slots = excluded.slots

-- name: size
SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint
  FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'
