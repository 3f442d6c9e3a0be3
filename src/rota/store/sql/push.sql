-- name: all
-- Every queue whose tasks are pushed.
SELECT queue, secret, document AS spec, changed_at_ms, closed_until_ms FROM push ORDER BY queue

-- name: put
-- Insert or replace where the tasks of a queue are pushed to.
INSERT INTO push (queue, secret, document, changed_at_ms, closed_until_ms)
VALUES (:queue, :secret, :document, :changed_at_ms, :closed_until_ms)
    ON CONFLICT (queue) DO UPDATE
   SET secret = excluded.secret, document = excluded.document,
       changed_at_ms = excluded.changed_at_ms, closed_until_ms = excluded.closed_until_ms

-- name: delete
-- Push the tasks of a queue no more.
DELETE FROM push WHERE queue = :queue
