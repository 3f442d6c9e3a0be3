-- name: hold
INSERT INTO unique_key (queue, key, id, release, until_ms)
SELECT * FROM unnest(:queue::text[], :key::text[], :id::bigint[], :release::text[],
                     :until_ms::bigint[])
    ON CONFLICT (key, queue) DO UPDATE
   SET id = excluded.id, release = excluded.release, until_ms = excluded.until_ms
