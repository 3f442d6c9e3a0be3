-- name: one
SELECT owner, fence, asked, ttl_ms, expires_at_ms FROM lock WHERE name = ?

-- name: waiters
SELECT ticket, asked, owner, ttl_ms, until_ms FROM lock_waiter WHERE lock = ? ORDER BY ticket

-- name: put
INSERT INTO lock (name, owner, fence, asked, ttl_ms, expires_at_ms) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (name) DO UPDATE
   SET owner = excluded.owner, fence = excluded.fence, asked = excluded.asked,
       ttl_ms = excluded.ttl_ms, expires_at_ms = excluded.expires_at_ms

-- name: drop
DELETE FROM lock WHERE name = ?

-- name: put_waiter
INSERT INTO lock_waiter (lock, ticket, asked, owner, ttl_ms, until_ms, replica)
VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (lock, ticket) DO UPDATE
   SET asked = excluded.asked, ttl_ms = excluded.ttl_ms, until_ms = excluded.until_ms,
       replica = excluded.replica

-- name: drop_waiter
DELETE FROM lock_waiter WHERE lock = ? AND ticket = ?

-- name: drop_every_waiter
DELETE FROM lock_waiter

-- name: leave_lines
-- Those who waited with a coordinator that is gone; their places are kept for a while.
UPDATE lock_waiter SET until_ms = ? WHERE replica = ? AND until_ms > ?

-- name: held
SELECT name, owner, fence, asked, ttl_ms, expires_at_ms
  FROM lock WHERE name IN (SELECT CAST(value AS TEXT) FROM carray(?)) AND owner IS NOT NULL

-- name: over
SELECT name FROM lock WHERE expires_at_ms <= ? ORDER BY expires_at_ms LIMIT ?

-- name: next
SELECT min(expires_at_ms) FROM lock

-- name: look
-- A lock whose time is over is nobody's, also before anybody has noticed.
SELECT l.name, l.owner, l.fence, l.expires_at_ms,
       (SELECT count(*) FROM lock_waiter AS w WHERE w.lock = l.name AND w.until_ms > ?)
  FROM lock AS l WHERE l.name = ? AND l.owner IS NOT NULL AND l.expires_at_ms > ?

-- name: page
SELECT l.name, l.owner, l.fence, l.expires_at_ms,
       (SELECT count(*) FROM lock_waiter AS w WHERE w.lock = l.name AND w.until_ms > ?)
  FROM lock AS l WHERE l.name > ? AND l.owner IS NOT NULL AND l.expires_at_ms > ?
 ORDER BY l.name LIMIT ?
