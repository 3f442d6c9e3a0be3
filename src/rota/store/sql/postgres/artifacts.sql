-- name: commit
UPDATE artifact SET committed_at_ms = found.at_ms
  FROM (SELECT a.place, one.at_ms
          FROM unnest(:committed_at_ms::bigint[], :task::bigint[], :fence::bigint[])
             AS one (at_ms, task, fence)
         CROSS JOIN LATERAL (SELECT ctid AS place FROM artifact
                              WHERE task = one.task AND fence = one.fence
                                AND committed_at_ms IS NULL OFFSET 0) AS a) AS found
 WHERE artifact.ctid = found.place

-- name: usage
SELECT owner, count(*), sum(size)::bigint FROM artifact GROUP BY owner
