-- name: tasks_by_state
SELECT (SELECT count(*) FROM scheduled),
       (SELECT count(*) FROM ready),
       (SELECT count(*) FROM lease),
       (SELECT count(*) FROM history),
       (SELECT count(*) FROM history WHERE state = 'failed'),
       (SELECT count(*) FROM history WHERE state = 'cancelled')

-- name: runs_by_state
SELECT state, count(*) FROM run GROUP BY state

-- name: failures
SELECT id, lane, error, finished_at_ms FROM history WHERE state = 'failed' ORDER BY id DESC LIMIT ?

-- name: size
SELECT page_count * page_size FROM pragma_page_count() CROSS JOIN pragma_page_size()
