-- name: all
-- Every webhook, by name.
SELECT name, secret, cursor, document AS spec, state FROM webhook ORDER BY name

-- name: put
-- Insert or replace a webhook.
INSERT INTO webhook (name, secret, cursor, document, state)
VALUES (:name, :secret, :cursor, :document, :state)
    ON CONFLICT (name) DO UPDATE
   SET secret = excluded.secret, cursor = excluded.cursor, document = excluded.document,
       state = excluded.state

-- name: delete
-- Delete a webhook.
DELETE FROM webhook WHERE name = :name

-- name: drop_deliveries
-- Delete the deliveries of a webhook.
DELETE FROM webhook_delivery WHERE webhook = :webhook

-- name: put_delivery
-- Insert or replace a delivery.
INSERT INTO webhook_delivery (webhook, seq, due_ms, document)
VALUES (:webhook, :seq, :due_ms, :document)
    ON CONFLICT (webhook, seq) DO UPDATE
   SET due_ms = excluded.due_ms, document = excluded.document

-- name: deliveries
-- These deliveries of a webhook.
SELECT d.document
  FROM carray(:seqs) AS wanted
 CROSS JOIN webhook_delivery AS d ON d.webhook = :webhook AND d.seq = wanted.value

-- name: newest
-- The newest deliveries of a webhook.
SELECT document FROM webhook_delivery WHERE webhook = :webhook ORDER BY seq DESC LIMIT :limit

-- name: due
-- Deliveries of a webhook that are due, the longest due first.
SELECT document FROM webhook_delivery
 WHERE webhook = :webhook AND due_ms IS NOT NULL AND due_ms <= :now_ms
 ORDER BY due_ms LIMIT :limit

-- name: pending
-- How many deliveries of each webhook wait, and when the first of them is due.
SELECT webhook, count(*), min(due_ms) FROM webhook_delivery
 WHERE due_ms IS NOT NULL GROUP BY webhook

-- name: trim
-- Delete the ended deliveries of a webhook beyond the newest ones.
DELETE FROM webhook_delivery
 WHERE webhook = :webhook AND due_ms IS NULL
   AND seq < (SELECT min(seq) FROM
               (SELECT seq FROM webhook_delivery WHERE webhook = :webhook AND due_ms IS NULL
                 ORDER BY seq DESC LIMIT :keep) AS kept)
