-- name: add
INSERT INTO session_task (id, session) SELECT * FROM unnest(?::bigint[], ?::text[])
    ON CONFLICT DO NOTHING

-- name: note_end
-- Of several ends of one task the last counts.
UPDATE session_task SET news = one.news
  FROM (SELECT max(news), id, session
          FROM unnest(?::bigint[], ?::bigint[], ?::text[]) AS note (news, id, session)
         GROUP BY id, session) AS one (news, id, session)
 WHERE session_task.id = one.id AND session_task.session = one.session

-- name: clear
-- Matches no row when the task has ended anew since.
UPDATE session_task SET news = NULL
  FROM unnest(?::bigint[], ?::text[], ?::bigint[]) AS one (id, session, news)
 WHERE session_task.id = one.id AND session_task.session = one.session
   AND session_task.news = one.news
