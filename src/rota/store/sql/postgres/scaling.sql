-- name: running_by_lane
SELECT lane, count(*), avg(started_at_ms)::float8 FROM lease GROUP BY lane
