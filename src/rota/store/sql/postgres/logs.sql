-- name: put_usage
INSERT INTO attempt_log (task, fence, attempt, last, lines, size, sent, left_out, cut)
SELECT * FROM unnest(:task::bigint[], :fence::bigint[], :attempt::bigint[], :last::bigint[],
                     :lines::bigint[], :size::bigint[], :sent::bigint[], :left_out::bigint[],
                     :cut::bigint[])
    ON CONFLICT (task, fence) DO UPDATE
   SET last = excluded.last, lines = excluded.lines, size = excluded.size, sent = excluded.sent,
       left_out = excluded.left_out, cut = excluded.cut

-- name: add
INSERT INTO log_lines (task, last, fence, content)
SELECT * FROM unnest(:task::bigint[], :last::bigint[], :fence::bigint[], :content::bytea[])
