-- The keys by which tasks are unique or debounced, each with the task that holds it, the point at
-- which the task lets go of it ('start' or 'end'), and the moment by which it does so at the latest.
CREATE TABLE unique_key (
  key      TEXT    NOT NULL,
  queue    TEXT    NOT NULL,
  id       INTEGER NOT NULL,
  release  TEXT    NOT NULL,
  until_ms INTEGER,
  PRIMARY KEY (key, queue)
) WITHOUT ROWID;
CREATE INDEX unique_key_by_task ON unique_key (id);
