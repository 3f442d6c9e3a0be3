-- name: get
-- One lock, held or waited for.
SELECT name, owner, fence, asked, ttl_ms, expires_at_ms FROM lock WHERE name = :name

-- name: waiters
-- The waiters of a lock, the first in line first.
SELECT ticket, asked, owner, ttl_ms, until_ms FROM lock_waiter WHERE lock = :lock ORDER BY ticket

-- name: put
-- Insert or update a lock.
INSERT INTO lock (name, owner, fence, asked, ttl_ms, expires_at_ms)
VALUES (:name, :owner, :fence, :asked, :ttl_ms, :expires_at_ms)
    ON CONFLICT (name) DO UPDATE
   SET owner = excluded.owner, fence = excluded.fence, asked = excluded.asked,
       ttl_ms = excluded.ttl_ms, expires_at_ms = excluded.expires_at_ms

-- name: delete
-- Delete a lock that is free and has no waiters.
DELETE FROM lock WHERE name = :name

-- name: put_waiter
-- Insert or update a waiter.
INSERT INTO lock_waiter (lock, ticket, asked, owner, ttl_ms, until_ms, replica)
VALUES (:lock, :ticket, :asked, :owner, :ttl_ms, :until_ms, :replica)
    ON CONFLICT (lock, ticket) DO UPDATE
   SET asked = excluded.asked, ttl_ms = excluded.ttl_ms, until_ms = excluded.until_ms,
       replica = excluded.replica

-- name: delete_waiter
-- Delete a waiter.
DELETE FROM lock_waiter WHERE lock = :lock AND ticket = :ticket

-- name: delete_all_waiters
-- Delete the waiters of every lock.
DELETE FROM lock_waiter

-- name: expire_waiters
-- End the waits that a replica held for its callers; their tickets stay until they are pruned.
UPDATE lock_waiter SET until_ms = :now_ms WHERE replica = :replica AND until_ms > :now_ms

-- name: held
-- Of these locks, the held ones.
SELECT name, owner, fence, asked, ttl_ms, expires_at_ms FROM lock
 WHERE name IN (SELECT CAST(value AS TEXT) FROM carray(:names)) AND owner IS NOT NULL

-- name: expired
-- Locks past their expiry, the oldest first.
SELECT name FROM lock WHERE expires_at_ms <= :now_ms ORDER BY expires_at_ms LIMIT :limit

-- name: next_expiry
-- When the next lock expires.
SELECT min(expires_at_ms) FROM lock

-- name: status
-- A lock and the number of its waiters. A lock past its expiry is free, also before it is pruned.
SELECT l.name, l.owner, l.fence, l.expires_at_ms,
       (SELECT count(*) FROM lock_waiter AS w WHERE w.lock = l.name AND w.until_ms > :now_ms)
         AS waiting
  FROM lock AS l WHERE l.name = :name AND l.owner IS NOT NULL AND l.expires_at_ms > :now_ms

-- name: page
-- Held locks in the order of their names, with the number of their waiters.
SELECT l.name, l.owner, l.fence, l.expires_at_ms,
       (SELECT count(*) FROM lock_waiter AS w WHERE w.lock = l.name AND w.until_ms > :now_ms)
         AS waiting
  FROM lock AS l WHERE l.name > :after AND l.owner IS NOT NULL AND l.expires_at_ms > :now_ms
 ORDER BY l.name LIMIT :limit
