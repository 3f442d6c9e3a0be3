-- What open runs wait for, besides tasks, timers and child runs: approvals and signals, and the
-- branches of outermost scopes and maps. It follows from their journals, and is kept for lists.
CREATE TABLE run_wait (
  run       bigint NOT NULL,
  number    bigint NOT NULL,
  kind      text    NOT NULL,
  name      text    NOT NULL,
  place     text    NOT NULL,
  title     text    NOT NULL,
  since_ms  bigint NOT NULL,
  due_at_ms bigint,
  total     bigint,
  has_form  bigint NOT NULL,
  PRIMARY KEY (run, number)
);
CREATE INDEX run_wait_by_kind ON run_wait (kind, since_ms, run, number);

-- NULL in rows from before: the coordinator replays these runs, and records what they wait for.
ALTER TABLE run ADD COLUMN has_waits_recorded bigint;
CREATE INDEX run_without_waits ON run (id)
 WHERE finished_at_ms IS NULL AND has_waits_recorded IS NULL;
CREATE INDEX run_open_by_parent ON run (parent_run, workflow)
 WHERE finished_at_ms IS NULL AND parent_run IS NOT NULL;
