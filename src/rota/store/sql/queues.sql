-- name: lanes
SELECT number, queue, name, requires FROM lane

-- name: add_lane
INSERT INTO lane (number, queue, name, requires) VALUES (?, ?, ?, ?)

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
