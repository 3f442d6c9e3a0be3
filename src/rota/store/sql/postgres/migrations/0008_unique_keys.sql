-- The keys by which tasks are unique or debounced, each with the task that holds it, the point at
-- which the task lets go of it ('start' or 'end'), and the moment by which it does so at the latest.
CREATE TABLE unique_key (
  key      text   COLLATE "C" NOT NULL,
  queue    text   COLLATE "C" NOT NULL,
  id       bigint NOT NULL,
  release  text   COLLATE "C" NOT NULL,
  until_ms bigint,
  PRIMARY KEY (key, queue)
);
CREATE INDEX unique_key_by_task ON unique_key (id);
