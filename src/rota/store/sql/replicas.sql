-- name: facts
-- The writer state of a coordinator, read in one query after a peer has written.
SELECT (SELECT max(id) FROM task) AS task_id,
       (SELECT max(id) FROM history) AS history_id,
       (SELECT max(id) FROM run) AS run_id,
       (SELECT value FROM counter WHERE name = 'task') AS task_counter,
       (SELECT max(seq) FROM event) AS event_seq,
       (SELECT value FROM counter WHERE name = 'event') AS event_counter,
       (SELECT value FROM counter WHERE name = 'news') AS last_notification,
       (SELECT max(number) FROM lane) AS last_lane,
       (SELECT value FROM counter WHERE name = 'incarnation') AS incarnation,
       (SELECT count(*) FROM worker) AS workers,
       (SELECT sum(version) FROM service) AS services,
       (SELECT value FROM watch WHERE name = 'workers') AS watch,
       EXISTS (SELECT 1 FROM quality WHERE is_open = 1) AS has_open_breakers,
       EXISTS (SELECT 1 FROM cancelled) AS has_cancelled,
       EXISTS (SELECT 1 FROM session_task) AS has_session_tasks,
       EXISTS (SELECT 1 FROM run_task) AS has_run_tasks,
       EXISTS (SELECT 1 FROM artifact WHERE committed_at_ms IS NULL) AS has_staged

-- name: last_lane
-- The highest number of a lane.
SELECT max(number) FROM lane

-- name: put_watch
-- Store the outcome of the last sweep over the workers.
INSERT INTO watch (name, value) VALUES ('workers', :value)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value

-- name: heartbeat
-- Insert or update a coordinator.
INSERT INTO replica (name, url, host, version, started_at_ms, seen_ms, counts)
VALUES (:name, :url, :host, :version, :started_at_ms, :seen_ms, :counts)
    ON CONFLICT (name) DO UPDATE
   SET url = excluded.url, host = excluded.host, version = excluded.version,
       started_at_ms = excluded.started_at_ms, seen_ms = excluded.seen_ms,
       counts = excluded.counts

-- name: all
-- Every coordinator.
SELECT name, url, host, version, started_at_ms, seen_ms, coalesce(counts, '[]') AS counts
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

-- name: has_ready
-- Whether any task is queued.
SELECT EXISTS (SELECT 1 FROM ready)

-- name: live
-- Of these tasks and runs, those that have not ended.
SELECT id FROM task WHERE id IN carray(:ids)
 UNION ALL
SELECT id FROM run WHERE id IN carray(:ids) AND finished_at_ms IS NULL

-- name: cancelled
-- Cancellations that workers have to be notified of.
SELECT incarnation, id AS task_id FROM cancelled ORDER BY incarnation, id LIMIT :limit

-- name: notified_sessions
-- Of these sessions, those with a notification above a number.
SELECT s.session
  FROM carray(:sessions) AS wanted
 CROSS JOIN session_task AS s ON s.session = CAST(wanted.value AS TEXT) AND s.news > :after
