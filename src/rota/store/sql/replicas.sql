-- name: facts
-- All that is remembered from batch to batch, at once: asked for when others have written.
SELECT (SELECT max(id) FROM task), (SELECT max(id) FROM history), (SELECT max(id) FROM run),
       (SELECT value FROM counter WHERE name = 'task'),
       (SELECT max(seq) FROM event),
       (SELECT value FROM counter WHERE name = 'event'),
       (SELECT value FROM counter WHERE name = 'news'),
       (SELECT max(number) FROM lane),
       (SELECT value FROM counter WHERE name = 'incarnation'),
       (SELECT count(*) FROM worker),
       (SELECT sum(version) FROM service),
       (SELECT value FROM watch WHERE name = 'workers'),
       EXISTS (SELECT 1 FROM quality WHERE is_open = 1),
       EXISTS (SELECT 1 FROM cancelled),
       EXISTS (SELECT 1 FROM session_task),
       EXISTS (SELECT 1 FROM run_task),
       EXISTS (SELECT 1 FROM artifact WHERE committed_at_ms IS NULL)

-- name: last_lane
SELECT max(number) FROM lane

-- name: put_watch
INSERT INTO watch (name, value) VALUES ('workers', ?)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value

-- name: beat
INSERT INTO replica (name, url, host, version, started_at_ms, seen_ms, counts)
VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (name) DO UPDATE
   SET url = excluded.url, host = excluded.host, version = excluded.version,
       started_at_ms = excluded.started_at_ms, seen_ms = excluded.seen_ms,
       counts = excluded.counts

-- name: every
SELECT name, url, host, version, started_at_ms, seen_ms, counts FROM replica ORDER BY name

-- name: silent
SELECT name FROM replica WHERE seen_ms < ?

-- name: drop
DELETE FROM replica WHERE name = ?

-- name: forget
DELETE FROM replica WHERE seen_ms < ?

-- name: any_ready
SELECT EXISTS (SELECT 1 FROM ready)

-- name: live
-- Of these tasks and runs, those that have not ended.
SELECT id FROM task WHERE id IN carray(?)
 UNION ALL
SELECT id FROM run WHERE id IN carray(?) AND finished_at_ms IS NULL

-- name: cancelled
SELECT incarnation, id FROM cancelled ORDER BY incarnation, id LIMIT ?

-- name: sessions_with_news
-- Of these sessions, those for which there is something above this number.
SELECT s.session
  FROM carray(?) AS wanted
 CROSS JOIN session_task AS s ON s.session = CAST(wanted.value AS TEXT) AND s.news > ?
