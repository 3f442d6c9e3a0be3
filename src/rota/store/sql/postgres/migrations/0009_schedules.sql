-- Schedules. `document` is what their authors wrote, `state` what changes from firing to firing.
-- `due_ms` is when each fires next; NULL: it is paused, or has no further time. `is_waiting` marks
-- those with firings that wait for the end of an earlier one.
CREATE TABLE schedule (
  name       text   COLLATE "C" PRIMARY KEY,
  queue      text   COLLATE "C",
  source     text   COLLATE "C",
  due_ms     bigint,
  is_waiting bigint NOT NULL,
  document   bytea  NOT NULL,
  state      bytea  NOT NULL
);
CREATE INDEX schedule_by_queue ON schedule (queue, name);
CREATE INDEX schedule_by_source ON schedule (source, name) WHERE source IS NOT NULL;

-- The newest firings of each schedule: a ring, so that the oldest is overwritten.
CREATE TABLE schedule_firing (
  schedule text   COLLATE "C" NOT NULL,
  slot     bigint NOT NULL,
  number   bigint NOT NULL,
  firing   bytea  NOT NULL,
  PRIMARY KEY (schedule, slot)
);
