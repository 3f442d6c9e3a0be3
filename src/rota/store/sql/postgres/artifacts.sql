-- name: commit
UPDATE artifact SET committed_at_ms = one.at_ms
  FROM unnest(?::bigint[], ?::bigint[], ?::bigint[]) AS one (at_ms, task, fence)
 CROSS JOIN artifact AS a ON a.task = one.task AND a.fence = one.fence AND a.committed_at_ms IS NULL
 WHERE artifact.id = a.id
