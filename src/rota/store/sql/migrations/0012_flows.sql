-- Flows: the distinct combinations of lane, tenant and limits of live tasks. A task with a flow waits
-- in `ready` under the number of its flow instead of that of its lane. `spec` is JSON.
CREATE TABLE flow (
  number INTEGER PRIMARY KEY,
  lane   INTEGER NOT NULL,
  spec   TEXT    NOT NULL
);
CREATE INDEX flow_by_lane ON flow (lane);

ALTER TABLE task ADD COLUMN flow INTEGER;
CREATE INDEX task_by_flow ON task (flow) WHERE flow IS NOT NULL;
CREATE INDEX task_in_flow ON task (lane, id) WHERE flow IS NOT NULL;

-- One row a key, however many tasks wait for it.
CREATE TABLE flow_limit (
  key    TEXT PRIMARY KEY,
  record BLOB NOT NULL
) WITHOUT ROWID;

-- Slots of limits that outlive a lease: of a cancelled attempt whose worker has not let go yet, and
-- of a task that keeps its slot while it waits for its next attempt (`incarnation` is NULL).
CREATE TABLE kept_slot (
  id          INTEGER PRIMARY KEY,
  incarnation INTEGER,
  spec        TEXT NOT NULL
);

ALTER TABLE queue ADD COLUMN settings BLOB;
