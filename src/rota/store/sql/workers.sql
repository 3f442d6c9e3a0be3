-- name: by_ids
-- The workers of these ids.
SELECT w.id, w.incarnation, w.state, w.last_heartbeat_ms, w.registration, w.load
  FROM carray(:ids) AS wanted CROSS JOIN worker AS w ON w.id = CAST(wanted.value AS TEXT)

-- name: all
-- Every worker.
SELECT id, incarnation, state, last_heartbeat_ms, registration, load FROM worker ORDER BY id

-- name: put
-- Insert or update a worker.
INSERT INTO worker (id, incarnation, state, last_heartbeat_ms, registration, load)
VALUES (:id, :incarnation, :state, :last_heartbeat_ms, :registration, NULL)
    ON CONFLICT (id) DO UPDATE
   SET incarnation = excluded.incarnation, state = excluded.state,
       last_heartbeat_ms = excluded.last_heartbeat_ms, registration = excluded.registration,
       load = excluded.load

-- name: record_heartbeat
-- Store the time and, if it is known, the load of a worker's heartbeat.
UPDATE worker SET last_heartbeat_ms = :at_ms, load = coalesce(:load, load) WHERE id = :worker_id

-- name: set_state
-- Store the state of a worker. Matches no row when the worker has registered again.
UPDATE worker SET state = :state WHERE id = :id AND incarnation = :incarnation

-- name: delete
-- Delete a worker. Matches no row when the worker has registered again.
DELETE FROM worker WHERE id = :id AND incarnation = :incarnation

-- name: delete_qualities
-- Delete the quality records of a worker.
DELETE FROM quality WHERE worker_id = :worker_id

-- name: qualities
-- The quality records of these workers.
SELECT q.worker_id, q.name, q.statistics, q.breaker
  FROM carray(:worker_ids) AS wanted CROSS JOIN quality AS q ON q.worker_id = CAST(wanted.value AS TEXT)

-- name: all_qualities
-- The quality records of every worker.
SELECT worker_id, name, statistics, breaker FROM quality

-- name: open_qualities
-- The quality records with an open circuit breaker.
SELECT worker_id, name, statistics, breaker FROM quality WHERE is_open = 1

-- name: put_quality
-- Insert or update a quality record.
INSERT INTO quality (worker_id, name, is_open, statistics, breaker)
VALUES (:worker_id, :name, :is_open, :statistics, :breaker)
    ON CONFLICT (worker_id, name) DO UPDATE
   SET is_open = excluded.is_open, statistics = excluded.statistics, breaker = excluded.breaker

-- name: all_cancelled
-- Cancelled tasks that incarnations have to be notified of.
SELECT incarnation, id FROM cancelled

-- name: add_cancelled
-- Record that an incarnation has to be notified of a cancelled task.
INSERT OR IGNORE INTO cancelled (incarnation, id) VALUES (:incarnation, :task_id)

-- name: drop_cancelled
-- Delete a cancellation that the worker has been notified of.
DELETE FROM cancelled WHERE incarnation = :incarnation AND id = :task_id

-- name: drop_all_cancelled
-- Delete the cancellations of an incarnation that is gone.
DELETE FROM cancelled WHERE incarnation = :incarnation

-- name: counter
-- The value of a counter.
SELECT value FROM counter WHERE name = :name

-- name: raise_counter
-- Raise a counter to a value; it never falls.
UPDATE counter SET value = max(value, :value) WHERE name = :name
