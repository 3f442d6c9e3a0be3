-- name: put_waiter
INSERT INTO lock_waiter (lock, ticket, asked, owner, ttl_ms, until_ms, replica)
SELECT * FROM unnest(?::text[], ?::bigint[], ?::bigint[], ?::text[], ?::bigint[], ?::bigint[],
                     ?::text[])
    ON CONFLICT (lock, ticket) DO UPDATE
   SET asked = excluded.asked, ttl_ms = excluded.ttl_ms, until_ms = excluded.until_ms,
       replica = excluded.replica

-- name: drop_waiter
DELETE FROM lock_waiter USING unnest(?::text[], ?::bigint[]) AS one (lock, ticket)
 WHERE lock_waiter.lock = one.lock AND lock_waiter.ticket = one.ticket
