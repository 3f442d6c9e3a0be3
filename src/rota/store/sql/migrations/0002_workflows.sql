-- Definitions are immutable: a name's content changes by a new version.
CREATE TABLE workflow (
  name          TEXT    NOT NULL,
  version       INTEGER NOT NULL,
  hash          TEXT    NOT NULL,
  definition    BLOB    NOT NULL,
  created_at_ms INTEGER NOT NULL,
  PRIMARY KEY (name, version)
) WITHOUT ROWID;
CREATE UNIQUE INDEX workflow_by_hash ON workflow (name, hash);

-- A run's facts. Where it stands follows from its journal.
CREATE TABLE run (
  id             INTEGER PRIMARY KEY,
  workflow       TEXT    NOT NULL,
  version        INTEGER NOT NULL,
  state          TEXT    NOT NULL,
  input          BLOB    NOT NULL,
  context        BLOB,
  output         BLOB,
  error          BLOB,
  key            TEXT,
  parent_run     INTEGER,
  parent_token   INTEGER,
  depth          INTEGER NOT NULL,
  forked_from    INTEGER,
  timeout_ms     INTEGER,
  created_at_ms  INTEGER NOT NULL,
  finished_at_ms INTEGER
);
CREATE INDEX run_by_workflow ON run (workflow, id);
CREATE INDEX run_by_state ON run (state, id);
CREATE INDEX run_by_end ON run (finished_at_ms) WHERE finished_at_ms IS NOT NULL;

CREATE TABLE run_key (
  key TEXT    PRIMARY KEY,
  id  INTEGER NOT NULL
) WITHOUT ROWID;

-- Every event of a run and what it led to. `links` names the tasks and runs made for its tokens.
CREATE TABLE journal (
  run       INTEGER NOT NULL,
  number    INTEGER NOT NULL,
  at_ms     INTEGER NOT NULL,
  event     BLOB    NOT NULL,
  decisions BLOB    NOT NULL,
  links     BLOB,
  PRIMARY KEY (run, number)
) WITHOUT ROWID;

CREATE TABLE run_timer (
  due_at_ms INTEGER NOT NULL,
  run       INTEGER NOT NULL,
  kind      TEXT    NOT NULL,
  number    INTEGER NOT NULL,
  PRIMARY KEY (due_at_ms, run, kind, number)
) WITHOUT ROWID;
CREATE INDEX run_timer_by_run ON run_timer (run);

-- Which token of which run a task works for. Most tasks work for none, and have no row here.
CREATE TABLE run_task (
  task  INTEGER PRIMARY KEY,
  run   INTEGER NOT NULL,
  token INTEGER NOT NULL
);
CREATE INDEX run_task_by_run ON run_task (run);

-- Blobs that tasks attached to their runs. Staged until the attempt that brought them completes;
-- large ones lie in files. The content comes last, so that reading the rest never touches it.
CREATE TABLE artifact (
  id              INTEGER PRIMARY KEY,
  run             INTEGER NOT NULL,
  name            TEXT    NOT NULL,
  task            INTEGER NOT NULL,
  fence           INTEGER NOT NULL,
  media_type      TEXT    NOT NULL,
  size            INTEGER NOT NULL,
  file            TEXT,
  created_at_ms   INTEGER NOT NULL,
  committed_at_ms INTEGER,
  content         BLOB
);
CREATE INDEX artifact_by_name ON artifact (run, name, id);
CREATE INDEX artifact_by_run ON artifact (run, id) WHERE committed_at_ms IS NOT NULL;
CREATE INDEX artifact_staged ON artifact (task, fence) WHERE committed_at_ms IS NULL;
CREATE INDEX artifact_in_file ON artifact (file) WHERE file IS NOT NULL;
