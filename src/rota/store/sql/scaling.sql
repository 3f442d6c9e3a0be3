-- name: running_by_lane
-- Number of leased tasks in each lane, and when they started on average.
SELECT lane, count(*), avg(started_at_ms) FROM lease GROUP BY lane

-- name: newest_live
-- The lanes of the newest live tasks.
SELECT id, lane FROM task WHERE id >= :first_id ORDER BY id DESC LIMIT :limit

-- name: newest_finished
-- The lanes of the newest finished tasks.
SELECT id, lane FROM history WHERE id >= :first_id ORDER BY id DESC LIMIT :limit

-- name: last_finished
-- The lanes of the tasks that finished last.
SELECT lane FROM history
 WHERE finished_at_ms >= :since_ms ORDER BY finished_at_ms DESC LIMIT :limit

-- name: statistics
-- The statistics of every worker, by task name.
SELECT name, statistics FROM quality
