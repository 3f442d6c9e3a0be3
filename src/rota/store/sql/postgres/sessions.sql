-- name: add
INSERT INTO session_task (id, session) SELECT * FROM unnest(:task_id::bigint[], :session_id::text[])
    ON CONFLICT DO NOTHING

-- name: add_notification
-- Of several ends of one task, the last counts.
UPDATE session_task SET news = found.news
  FROM (SELECT s.place, one.news
          FROM (SELECT max(news), id, session
                  FROM unnest(:seq::bigint[], :task_id::bigint[], :session_id::text[])
                     AS note (news, id, session)
                 GROUP BY id, session) AS one (news, id, session)
         CROSS JOIN LATERAL (SELECT ctid AS place FROM session_task
                              WHERE id = one.id AND session = one.session OFFSET 0) AS s) AS found
 WHERE session_task.ctid = found.place

-- name: drop_notification
UPDATE session_task SET news = NULL
  FROM (SELECT s.place
          FROM unnest(:task_id::bigint[], :session_id::text[], :seq::bigint[])
            AS one (id, session, news)
         CROSS JOIN LATERAL (SELECT ctid AS place FROM session_task
                              WHERE id = one.id AND session = one.session AND news = one.news
                             OFFSET 0) AS s) AS found
 WHERE session_task.ctid = found.place
