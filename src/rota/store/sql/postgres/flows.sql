-- name: add
INSERT INTO flow (number, lane, spec)
SELECT * FROM unnest(:number::bigint[], :lane::bigint[], :spec::text[])

-- name: put_limit
INSERT INTO flow_limit (key, record) SELECT * FROM unnest(:key::text[], :record::bytea[])
    ON CONFLICT (key) DO UPDATE SET record = excluded.record

-- name: drop_limit
DELETE FROM flow_limit WHERE key = ANY(:key::text[])

-- name: keep_slot
INSERT INTO kept_slot (id, incarnation, spec)
SELECT * FROM unnest(:id::bigint[], :incarnation::bigint[], :spec::text[])
    ON CONFLICT (id) DO UPDATE SET incarnation = excluded.incarnation, spec = excluded.spec

-- name: drop_slot
DELETE FROM kept_slot WHERE id = ANY(:id::bigint[])
