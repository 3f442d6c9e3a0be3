-- name: put_delivery
INSERT INTO webhook_delivery (webhook, seq, due_ms, document)
SELECT * FROM unnest(:webhook::text[], :seq::bigint[], :due_ms::bigint[], :document::bytea[])
    ON CONFLICT (webhook, seq) DO UPDATE
   SET due_ms = excluded.due_ms, document = excluded.document
