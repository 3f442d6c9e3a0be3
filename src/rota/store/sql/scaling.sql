-- name: running_by_lane
SELECT lane, count(*), avg(started_at_ms) FROM lease GROUP BY lane

-- name: newest_live
SELECT id, lane FROM task WHERE id >= ? ORDER BY id DESC LIMIT ?

-- name: newest_finished
SELECT id, lane FROM history WHERE id >= ? ORDER BY id DESC LIMIT ?

-- name: last_finished
SELECT lane FROM history WHERE finished_at_ms >= ? ORDER BY finished_at_ms DESC LIMIT ?

-- name: statistics
SELECT name, statistics FROM quality
