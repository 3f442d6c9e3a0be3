-- name: look
-- The leader of the store, by the clock of the database.
SELECT l.epoch, l.leader, l.address, l.since_ms, t.expires_at_ms - store_now_ms() AS expires_in_ms,
       is_connected(t.backend, t.backend_start) AS is_connected, store_now_ms() AS now_ms
  FROM leadership AS l, leader_lease AS t

-- name: is_free
-- Whether the epoch is the one that was seen and its leader is gone.
SELECT epoch = :epoch::bigint
       AND (expires_at_ms <= store_now_ms() OR NOT is_connected(backend, backend_start))
  FROM leader_lease

-- name: lock
-- Wait for the writes under way, and keep new ones out until the end of the transaction.
SELECT pg_advisory_xact_lock(:lock_key::bigint)

-- name: take_over
-- Begin the next epoch, unless the leader lives, or another coordinator was first.
WITH taken AS (
  UPDATE leader_lease
     SET epoch = epoch + 1, expires_at_ms = store_now_ms() + :lease_ms::bigint,
         backend = CASE WHEN :is_direct::boolean THEN pg_backend_pid() END,
         backend_start = CASE WHEN :is_direct::boolean THEN
           (SELECT a.backend_start FROM pg_stat_activity AS a WHERE a.pid = pg_backend_pid()) END
   WHERE epoch = :epoch::bigint
     AND (expires_at_ms <= store_now_ms() OR NOT is_connected(backend, backend_start))
  RETURNING epoch
)
UPDATE leadership AS l
   SET epoch = taken.epoch, session = 0, leader = :leader::text, address = :address::text,
       since_ms = store_now_ms()
  FROM taken WHERE l.epoch = :epoch::bigint
RETURNING l.epoch

-- name: begin_session
-- Shut out the transactions of the leader's earlier connections.
UPDATE leadership SET session = session + 1 WHERE epoch = :epoch::bigint RETURNING session

-- name: end_writers
-- End the server processes whose writes are in the way of a takeover.
SELECT pg_terminate_backend(k.pid)
  FROM leader_lease AS t, pg_locks AS k
 WHERE t.epoch = :epoch::bigint
   AND (t.expires_at_ms <= store_now_ms() OR NOT is_connected(t.backend, t.backend_start))
   AND k.locktype = 'advisory' AND k.mode = 'ShareLock' AND k.granted
   AND k.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
   AND k.classid = ((:lock_key::bigint >> 32) & 4294967295)::oid
   AND k.objid = (:lock_key::bigint & 4294967295)::oid AND k.objsubid = 1

-- name: end_writer
-- End the server process of the leader's own lost connection, if its write is still under way.
SELECT pg_terminate_backend(k.pid)
  FROM pg_locks AS k
 WHERE k.pid = :backend::integer
   AND k.locktype = 'advisory' AND k.mode = 'ShareLock' AND k.granted
   AND k.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
   AND k.classid = ((:lock_key::bigint >> 32) & 4294967295)::oid
   AND k.objid = (:lock_key::bigint & 4294967295)::oid AND k.objsubid = 1

-- name: renew
-- Extend the lease of the leader; no row: the epoch is over.
UPDATE leader_lease
   SET expires_at_ms = store_now_ms() + :lease_ms::bigint,
       backend = CASE WHEN :is_direct::boolean THEN pg_backend_pid() END,
       backend_start = CASE WHEN :is_direct::boolean THEN
         (SELECT a.backend_start FROM pg_stat_activity AS a WHERE a.pid = pg_backend_pid()) END
 WHERE epoch = :epoch::bigint
RETURNING store_now_ms()

-- name: resign
-- End the lease of the leader now.
UPDATE leader_lease SET expires_at_ms = store_now_ms() WHERE epoch = :epoch::bigint

-- name: secret
-- The secret of the coordinators of this store.
SELECT value FROM peer_secret

-- name: add_secret
-- Keep a new secret, unless there is one.
INSERT INTO peer_secret (value) VALUES (:value) ON CONFLICT DO NOTHING
