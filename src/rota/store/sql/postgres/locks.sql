-- name: put_waiter
INSERT INTO lock_waiter (lock, ticket, asked, owner, ttl_ms, until_ms, replica)
SELECT * FROM unnest(:lock::text[], :ticket::bigint[], :asked::bigint[], :owner::text[],
                     :ttl_ms::bigint[], :until_ms::bigint[],
                     :replica::text[])
    ON CONFLICT (lock, ticket) DO UPDATE
   SET asked = excluded.asked, ttl_ms = excluded.ttl_ms, until_ms = excluded.until_ms,
       replica = excluded.replica

-- name: delete_waiter
DELETE FROM lock_waiter
 USING (SELECT w.place FROM unnest(:lock::text[], :ticket::bigint[]) AS one (lock, ticket)
         CROSS JOIN LATERAL (SELECT ctid AS place FROM lock_waiter
                              WHERE lock = one.lock AND ticket = one.ticket OFFSET 0) AS w) AS found
 WHERE lock_waiter.ctid = found.place
