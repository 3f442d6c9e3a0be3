-- name: lanes
SELECT number, queue, name, requires FROM lane

-- name: add_lane
INSERT INTO lane (number, queue, name, requires) VALUES (?, ?, ?, ?)

-- name: unused_lanes
-- Those that no task is left of, neither live nor finished. Looks at all that are live: it is asked
-- before a coordinator begins, and only where there are very many lanes.
SELECT number FROM lane
 WHERE NOT EXISTS (SELECT 1 FROM history WHERE state = 'succeeded' AND lane = lane.number)
   AND NOT EXISTS (SELECT 1 FROM history WHERE state = 'failed' AND lane = lane.number)
   AND NOT EXISTS (SELECT 1 FROM history WHERE state = 'cancelled' AND lane = lane.number)
   AND number NOT IN (SELECT lane FROM task)

-- name: drop_lanes
DELETE FROM lane WHERE number IN carray(?)

-- name: paused
SELECT name FROM queue WHERE paused = 1

-- name: known
SELECT queue FROM lane UNION SELECT name FROM queue

-- name: change
INSERT INTO queue (name, paused, changed_at_ms) VALUES (?, ?, ?)
    ON CONFLICT (name) DO UPDATE SET paused = excluded.paused, changed_at_ms = excluded.changed_at_ms

-- name: depth_by_lane
SELECT lane, count(*), min(since_ms) FROM ready GROUP BY lane

-- name: running_by_lane
SELECT lane, count(*) FROM lease GROUP BY lane

-- name: scheduled_by_lane
SELECT t.lane, count(*) FROM scheduled AS s CROSS JOIN task AS t ON t.id = s.id GROUP BY t.lane
