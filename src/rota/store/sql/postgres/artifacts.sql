-- name: commit
UPDATE artifact SET committed_at_ms = one.at_ms
  FROM unnest(?::bigint[], ?::bigint[], ?::bigint[]) AS one (at_ms, task, fence)
 WHERE artifact.task = one.task AND artifact.fence = one.fence AND committed_at_ms IS NULL
