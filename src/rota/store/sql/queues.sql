-- name: lanes
-- Every lane.
SELECT number, queue, name, requires FROM lane

-- name: add_lane
-- Insert a lane.
INSERT INTO lane (number, queue, name, requires) VALUES (:number, :queue, :name, :requires)

-- name: unused_lanes
-- Lanes without a task, live or finished. A live task is queued, scheduled or leased. Reads all
-- scheduled and leased tasks: it runs only when lanes are short.
SELECT number FROM lane
 WHERE NOT EXISTS (SELECT 1 FROM history WHERE state = 'succeeded' AND lane = lane.number)
   AND NOT EXISTS (SELECT 1 FROM history WHERE state = 'failed' AND lane = lane.number)
   AND NOT EXISTS (SELECT 1 FROM history WHERE state = 'cancelled' AND lane = lane.number)
   AND NOT EXISTS (SELECT 1 FROM ready WHERE ready.lane = lane.number)
   AND NOT EXISTS (SELECT 1 FROM flow WHERE flow.lane = lane.number)
EXCEPT SELECT lane FROM lease
EXCEPT SELECT t.lane FROM scheduled AS s JOIN task AS t ON t.id = s.id
 ORDER BY number

-- name: drop_lanes
-- Delete lanes.
DELETE FROM lane WHERE number IN carray(:numbers)

-- name: paused
-- The names of paused queues.
SELECT name FROM queue WHERE paused = 1

-- name: known
-- The names of all queues: those with a lane, and those that an operator has changed.
SELECT queue FROM lane UNION SELECT name FROM queue

-- name: depth
-- Number of queued tasks of a queue.
SELECT count(*) FROM ready
 WHERE lane IN (SELECT number FROM lane WHERE queue = :queue)
    OR lane IN (SELECT f.number FROM flow AS f JOIN lane AS l ON l.number = f.lane
                 WHERE l.queue = :queue)

-- name: missed_targets
-- The queues that miss their target, and since when.
SELECT name, target_missed_ms FROM queue WHERE target_missed_ms IS NOT NULL

-- name: set_target_missed
-- Note that a queue misses its target, or that it meets it again.
UPDATE queue SET target_missed_ms = :since_ms WHERE name = :name

-- name: has_waited
-- Whether a task of a queue is queued since before a moment. Reads up to the first such task: those
-- that have waited longest are mostly among the first of their lane.
SELECT EXISTS (SELECT 1 FROM lane AS l CROSS JOIN ready AS r ON r.lane = l.number
                WHERE l.queue = :queue AND r.since_ms < :before_ms)
    OR EXISTS (SELECT 1 FROM lane AS l CROSS JOIN flow AS f ON f.lane = l.number
                CROSS JOIN ready AS r ON r.lane = f.number
                WHERE l.queue = :queue AND r.since_ms < :before_ms)

-- name: set_paused
-- Pause or resume a queue.
INSERT INTO queue (name, paused, changed_at_ms) VALUES (:name, :paused, :changed_at_ms)
    ON CONFLICT (name) DO UPDATE SET paused = excluded.paused, changed_at_ms = excluded.changed_at_ms

-- name: queued_by_lane
-- Number of queued tasks in each lane, and since when the oldest waits.
SELECT coalesce(f.lane, r.place), CAST(sum(r.queued) AS BIGINT), min(r.since_ms)
  FROM (SELECT lane AS place, count(*) AS queued, min(since_ms) AS since_ms
          FROM ready GROUP BY lane) AS r
  LEFT JOIN flow AS f ON f.number = r.place
 GROUP BY coalesce(f.lane, r.place)

-- name: running_by_lane
-- Number of leased tasks in each lane.
SELECT lane, count(*) FROM lease GROUP BY lane

-- name: scheduled_by_lane
-- Number of scheduled tasks in each lane.
SELECT t.lane, count(*) FROM scheduled AS s CROSS JOIN task AS t ON t.id = s.id GROUP BY t.lane

-- name: stuck
-- The queues that are known to be stuck, and since when.
SELECT queue, since_ms FROM stuck_queue

-- name: add_stuck
-- Note that a queue is stuck.
INSERT INTO stuck_queue (queue, since_ms) VALUES (:queue, :since_ms)
    ON CONFLICT (queue) DO NOTHING

-- name: drop_stuck
-- Note that a queue is stuck no more.
DELETE FROM stuck_queue WHERE queue = :queue
