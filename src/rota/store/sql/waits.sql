-- name: put
-- Insert or replace something that a run waits for.
INSERT OR REPLACE INTO run_wait (run, number, kind, name, place, title, since_ms, due_at_ms, total,
                                 has_form)
VALUES (:run, :number, :kind, :name, :place, :title, :since_ms, :due_at_ms, :total, :has_form)

-- name: drop
-- Delete something that a run waits for no more.
DELETE FROM run_wait WHERE run = :run AND number = :number

-- name: drop_of_runs
-- Delete everything that these runs wait for.
DELETE FROM run_wait WHERE run IN carray(:runs)

-- name: page
-- What runs wait for of one kind, the oldest first, after a place.
SELECT run, number, kind, name, place, title, since_ms, due_at_ms, total, has_form
  FROM run_wait
 WHERE kind = :kind AND (since_ms, run, number) > (:since_ms, :run, :number)
 ORDER BY since_ms, run, number LIMIT :limit

-- name: counts
-- Number of things that runs wait for, by kind.
SELECT kind, count(*) FROM run_wait GROUP BY kind

-- name: of_runs
-- What each of these runs waits for, the first few of each.
SELECT w.run, w.number, w.kind, w.name, w.place, w.title, w.since_ms, w.due_at_ms, w.total,
       w.has_form
  FROM carray(:runs) AS wanted
 CROSS JOIN run_wait AS w
    ON w.run = wanted.value
   AND w.number IN (SELECT n.number FROM run_wait AS n WHERE n.run = wanted.value
                     ORDER BY n.number LIMIT :limit)

-- name: sleeps
-- Of these runs, when the first of their sleeps ends, and how many there are.
SELECT run, min(due_at_ms) AS due_at_ms, count(*) AS count FROM run_timer
 WHERE run IN carray(:runs) AND kind = 'sleep' GROUP BY run

-- name: children
-- Open child runs of these runs, by workflow.
SELECT parent_run AS run, workflow, count(*) AS count FROM run
 WHERE finished_at_ms IS NULL AND parent_run IN carray(:runs)
 GROUP BY parent_run, workflow

-- name: workflows
-- The workflows of these runs.
SELECT id, workflow, parent_run FROM run WHERE id IN carray(:runs)

-- name: unrecorded
-- Open runs of stores from before waits were recorded.
SELECT id FROM run INDEXED BY run_without_waits
 WHERE finished_at_ms IS NULL AND has_waits_recorded IS NULL AND id > 0 ORDER BY id LIMIT :limit

-- name: mark_recorded
-- Note that what these runs wait for is recorded.
UPDATE run SET has_waits_recorded = :recorded WHERE id IN carray(:runs)
