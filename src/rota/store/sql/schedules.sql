-- name: alarms
-- When each schedule fires next, and which have firings that wait.
SELECT name, due_ms, is_waiting FROM schedule

-- name: by_names
-- The schedules of these names.
SELECT name, document, state FROM schedule
 WHERE name IN (SELECT CAST(value AS TEXT) FROM carray(:names))

-- name: of_source
-- The names of the schedules of an app.
SELECT name FROM schedule WHERE source = :source ORDER BY name

-- name: page
-- Schedules in the order of their names.
SELECT name, document, state FROM schedule WHERE name > :after ORDER BY name LIMIT :limit

-- name: page_of_queue
-- Schedules whose tasks go to a queue, in the order of their names.
SELECT name, document, state FROM schedule
 WHERE queue = :queue AND name > :after ORDER BY name LIMIT :limit

-- name: put
-- Insert or replace a schedule.
INSERT INTO schedule (name, queue, source, due_ms, is_waiting, document, state)
VALUES (:name, :queue, :source, :due_ms, :is_waiting, :document, :state)
    ON CONFLICT (name) DO UPDATE
   SET queue = excluded.queue, source = excluded.source, due_ms = excluded.due_ms,
       is_waiting = excluded.is_waiting, document = excluded.document, state = excluded.state

-- name: advance
-- Store the state of a schedule after a firing.
UPDATE schedule SET due_ms = :due_ms, is_waiting = :is_waiting, state = :state WHERE name = :name

-- name: delete
-- Delete a schedule.
DELETE FROM schedule WHERE name = :name

-- name: put_firing
-- Write a row of the history in place of the oldest one.
INSERT INTO schedule_firing (schedule, slot, number, firing)
VALUES (:schedule, :slot, :number, :firing)
    ON CONFLICT (schedule, slot) DO UPDATE SET number = excluded.number, firing = excluded.firing

-- name: drop_firings
-- Delete the history of a schedule.
DELETE FROM schedule_firing WHERE schedule = :schedule

-- name: firings
-- The history of a schedule, in no order.
SELECT firing FROM schedule_firing WHERE schedule = :schedule

-- name: last_firings
-- The newest row of the history of each of these schedules.
SELECT f.schedule, f.firing FROM schedule_firing AS f
 WHERE f.schedule IN (SELECT CAST(value AS TEXT) FROM carray(:names))
   AND f.number = (SELECT max(g.number) FROM schedule_firing AS g WHERE g.schedule = f.schedule)

-- name: live_tasks
-- Of these tasks, those that have not ended.
SELECT t.id FROM carray(:ids) AS wanted CROSS JOIN task AS t ON t.id = wanted.value

-- name: ended_tasks
-- The ends of those of these tasks that have ended.
SELECT h.id, h.state, h.finished_at_ms
  FROM carray(:ids) AS wanted CROSS JOIN history AS h ON h.id = wanted.value

-- name: run_states
-- The states of these runs, and when they ended.
SELECT r.id, r.state, r.finished_at_ms
  FROM carray(:ids) AS wanted CROSS JOIN run AS r ON r.id = wanted.value
