-- Schedules. `document` is what their authors wrote, `state` what changes from firing to firing.
-- `due_ms` is when each fires next; NULL: it is paused, or has no further time. `is_waiting` marks
-- those with firings that wait for the end of an earlier one.
CREATE TABLE schedule (
  name       TEXT    PRIMARY KEY,
  queue      TEXT,
  source     TEXT,
  due_ms     INTEGER,
  is_waiting INTEGER NOT NULL,
  document   BLOB    NOT NULL,
  state      BLOB    NOT NULL
) WITHOUT ROWID;
CREATE INDEX schedule_by_queue ON schedule (queue, name);
CREATE INDEX schedule_by_source ON schedule (source, name) WHERE source IS NOT NULL;

-- The newest firings of each schedule: a ring, so that the oldest is overwritten.
CREATE TABLE schedule_firing (
  schedule TEXT    NOT NULL,
  slot     INTEGER NOT NULL,
  number   INTEGER NOT NULL,
  firing   BLOB    NOT NULL,
  PRIMARY KEY (schedule, slot)
) WITHOUT ROWID;
