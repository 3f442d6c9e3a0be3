-- name: all
-- Every flow.
SELECT number, lane, spec FROM flow

-- name: add
-- Insert a flow.
INSERT INTO flow (number, lane, spec) VALUES (:number, :lane, :spec)

-- name: live
-- Those of these flows that have a live task.
SELECT wanted.value FROM carray(:numbers) AS wanted
 WHERE EXISTS (SELECT 1 FROM task WHERE task.flow = wanted.value)

-- name: drop
-- Delete flows.
DELETE FROM flow WHERE number IN carray(:numbers)

-- name: queued
-- Number of queued tasks of each flow, and the place of the next one.
SELECT lane, count(*), min(rank),
       (SELECT n.id FROM ready AS n WHERE n.lane = ready.lane ORDER BY n.rank, n.id LIMIT 1)
  FROM ready WHERE lane >= :first GROUP BY lane

-- name: running
-- The leased tasks that belong to flows.
SELECT l.id, t.flow FROM lease AS l CROSS JOIN task AS t ON t.id = l.id WHERE t.flow IS NOT NULL

-- name: queued_ids
-- Queued tasks of a flow, the next first.
SELECT id FROM ready WHERE lane = :flow ORDER BY rank, id LIMIT :limit

-- name: queued_holders
-- Queued tasks that have kept a slot, with their places.
SELECT r.lane, r.rank, r.id
  FROM kept_slot AS k
 CROSS JOIN task AS t ON t.id = k.id
 CROSS JOIN ready AS r ON r.lane = t.flow AND r.id = t.id
                       AND r.rank = coalesce(t.rank, -t.priority)
 WHERE k.incarnation IS NULL

-- name: limits
-- Every limit.
SELECT record FROM flow_limit

-- name: limit_page
-- Limits in the order of their keys.
SELECT record FROM flow_limit
 WHERE key >= :first AND key > :after AND key < :end ORDER BY key LIMIT :limit

-- name: put_limit
-- Insert or update a limit.
INSERT INTO flow_limit (key, record) VALUES (:key, :record)
    ON CONFLICT (key) DO UPDATE SET record = excluded.record

-- name: drop_limit
-- Delete a limit.
DELETE FROM flow_limit WHERE key = :key

-- name: kept_slots
-- Every slot that outlives its lease.
SELECT id, incarnation, spec FROM kept_slot

-- name: keep_slot
-- Insert a slot that outlives its lease.
INSERT INTO kept_slot (id, incarnation, spec) VALUES (:id, :incarnation, :spec)
    ON CONFLICT (id) DO UPDATE SET incarnation = excluded.incarnation, spec = excluded.spec

-- name: drop_slot
-- Delete a slot that outlived its lease.
DELETE FROM kept_slot WHERE id = :id

-- name: settings
-- The settings of every queue that has some.
SELECT name, settings FROM queue WHERE settings IS NOT NULL

-- name: put_settings
-- Insert or update the settings of a queue.
INSERT INTO queue (name, paused, changed_at_ms, settings)
VALUES (:name, 0, :changed_at_ms, :settings)
    ON CONFLICT (name) DO UPDATE
   SET settings = excluded.settings, changed_at_ms = excluded.changed_at_ms
