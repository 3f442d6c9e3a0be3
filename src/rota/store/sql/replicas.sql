-- name: last_lane
-- The highest number of a lane.
SELECT max(number) FROM lane

-- name: heartbeat
-- Insert or update a coordinator.
INSERT INTO replica (name, url, host, version, started_at_ms, seen_ms)
VALUES (:name, :url, :host, :version, :started_at_ms, :seen_ms)
    ON CONFLICT (name) DO UPDATE
   SET url = excluded.url, host = excluded.host, version = excluded.version,
       started_at_ms = excluded.started_at_ms, seen_ms = excluded.seen_ms

-- name: all
-- Every coordinator.
SELECT name, url, host, version, started_at_ms, seen_ms
  FROM replica ORDER BY name

-- name: silent
-- Coordinators without a recent heartbeat.
SELECT name FROM replica WHERE seen_ms < :before_ms

-- name: delete
-- Delete a coordinator.
DELETE FROM replica WHERE name = :name

-- name: prune
-- Delete coordinators that have been silent for long.
DELETE FROM replica WHERE seen_ms < :before_ms

-- name: live
-- Of these tasks and runs, those that have not ended.
SELECT id FROM task WHERE id IN carray(:ids)
 UNION ALL
SELECT id FROM run WHERE id IN carray(:ids) AND finished_at_ms IS NULL
