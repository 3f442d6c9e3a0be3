-- name: by_ids
SELECT w.id, w.incarnation, w.state, w.last_heartbeat_ms, w.registration, w.load
  FROM carray(?) AS wanted CROSS JOIN worker AS w ON w.id = CAST(wanted.value AS TEXT)

-- name: with_held
SELECT w.id, w.incarnation, w.state, w.last_heartbeat_ms, w.registration, w.load,
       (SELECT count(*) FROM lease WHERE incarnation = w.incarnation)
  FROM carray(?) AS wanted CROSS JOIN worker AS w ON w.id = CAST(wanted.value AS TEXT)

-- name: any_open
SELECT 1 FROM quality WHERE is_open = 1 LIMIT 1

-- name: any_cancelled
SELECT 1 FROM cancelled LIMIT 1

-- name: every
SELECT id, incarnation, state, last_heartbeat_ms, registration, load FROM worker ORDER BY id

-- name: heard
SELECT id, last_heartbeat_ms, registration FROM worker

-- name: count
SELECT count(*) FROM worker

-- name: put
INSERT INTO worker (id, incarnation, state, last_heartbeat_ms, registration, load)
VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (id) DO UPDATE
   SET incarnation = excluded.incarnation, state = excluded.state,
       last_heartbeat_ms = excluded.last_heartbeat_ms, registration = excluded.registration,
       load = excluded.load

-- name: beat
UPDATE worker SET last_heartbeat_ms = ?, load = coalesce(?, load) WHERE id = ?

-- name: set_state
-- Matches no row when the worker has registered again.
UPDATE worker SET state = ? WHERE id = ? AND incarnation = ?

-- name: remove
DELETE FROM worker WHERE id = ? AND incarnation = ?

-- name: remove_qualities
DELETE FROM quality WHERE worker_id = ?

-- name: qualities
SELECT name, statistics, breaker FROM quality WHERE worker_id = ?

-- name: qualities_of
SELECT q.worker_id, q.name, q.statistics, q.breaker
  FROM carray(?) AS wanted CROSS JOIN quality AS q ON q.worker_id = CAST(wanted.value AS TEXT)

-- name: every_quality
SELECT worker_id, name, statistics, breaker FROM quality

-- name: open_qualities
SELECT worker_id, name, statistics, breaker FROM quality WHERE is_open = 1

-- name: put_quality
INSERT INTO quality (worker_id, name, is_open, statistics, breaker) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (worker_id, name) DO UPDATE
   SET is_open = excluded.is_open, statistics = excluded.statistics, breaker = excluded.breaker

-- name: cancelled
SELECT incarnation, id FROM cancelled WHERE incarnation IN carray(?)

-- name: add_cancelled
INSERT OR IGNORE INTO cancelled (incarnation, id) VALUES (?, ?)

-- name: drop_cancelled
DELETE FROM cancelled WHERE incarnation = ? AND id = ?

-- name: drop_all_cancelled
DELETE FROM cancelled WHERE incarnation = ?

-- name: counter
SELECT value FROM counter WHERE name = ?

-- name: set_counter
UPDATE counter SET value = max(value, ?) WHERE name = ?
