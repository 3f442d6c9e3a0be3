-- Live tasks: what does not change while they live, but for the log of ended attempts.
CREATE TABLE task (
  id            INTEGER PRIMARY KEY,
  lane          INTEGER NOT NULL,
  priority      INTEGER NOT NULL,
  payload       BLOB    NOT NULL,
  options       BLOB,
  key           TEXT,
  created_at_ms INTEGER NOT NULL,
  log           BLOB
);

-- Where tasks wait. Narrow, and clustered in the order they are claimed in: a claim costs the same
-- however many wait. `rank` is the negated priority, so that everything ascends.
CREATE TABLE ready (
  lane     INTEGER NOT NULL,
  rank     INTEGER NOT NULL,
  id       INTEGER NOT NULL,
  fence    INTEGER NOT NULL,
  attempt  INTEGER NOT NULL,
  since_ms INTEGER NOT NULL,
  PRIMARY KEY (lane, rank, id)
) WITHOUT ROWID;

CREATE TABLE scheduled (
  due_at_ms INTEGER NOT NULL,
  id        INTEGER NOT NULL,
  fence     INTEGER NOT NULL,
  attempt   INTEGER NOT NULL,
  PRIMARY KEY (due_at_ms, id)
) WITHOUT ROWID;
CREATE INDEX scheduled_by_id ON scheduled (id);

-- Who runs what. Incarnation 0 is a caller of the jobs API, named by `holder`.
CREATE TABLE lease (
  id            INTEGER PRIMARY KEY,
  lane          INTEGER NOT NULL,
  incarnation   INTEGER NOT NULL,
  fence         INTEGER NOT NULL,
  attempt       INTEGER NOT NULL,
  started_at_ms INTEGER NOT NULL,
  deadline_ms   INTEGER,
  holder        TEXT,
  progress      BLOB,
  partial       BLOB
);
CREATE INDEX lease_by_incarnation ON lease (incarnation);
CREATE INDEX lease_by_deadline ON lease (deadline_ms) WHERE deadline_ms IS NOT NULL;

-- Only tasks that have a time limit to start stand here.
CREATE TABLE start_limit (
  start_by_ms INTEGER NOT NULL,
  id          INTEGER NOT NULL,
  PRIMARY KEY (start_by_ms, id)
) WITHOUT ROWID;

-- Finished tasks, whole.
CREATE TABLE history (
  id             INTEGER PRIMARY KEY,
  lane           INTEGER NOT NULL,
  priority       INTEGER NOT NULL,
  payload        BLOB    NOT NULL,
  options        BLOB,
  key            TEXT,
  created_at_ms  INTEGER NOT NULL,
  log            BLOB,
  state          TEXT    NOT NULL,
  fence          INTEGER NOT NULL,
  attempt        INTEGER NOT NULL,
  incarnation    INTEGER,
  worker_id      TEXT,
  started_at_ms  INTEGER,
  finished_at_ms INTEGER NOT NULL,
  result         BLOB,
  error          BLOB,
  progress       BLOB,
  partial        BLOB
);
CREATE INDEX history_by_end ON history (finished_at_ms);
CREATE INDEX history_failed ON history (id) WHERE state = 'failed';
CREATE INDEX history_cancelled ON history (id) WHERE state = 'cancelled';

-- Idempotency keys and labels live as long as their task is remembered.
CREATE TABLE task_key (
  key TEXT    PRIMARY KEY,
  id  INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE task_label (
  label TEXT    NOT NULL,
  id    INTEGER NOT NULL,
  PRIMARY KEY (label, id)
) WITHOUT ROWID;

-- What a task asks of a worker, interned. `requires` is a JSON array, sorted.
CREATE TABLE lane (
  number   INTEGER PRIMARY KEY,
  queue    TEXT NOT NULL,
  name     TEXT NOT NULL,
  requires TEXT NOT NULL,
  UNIQUE (queue, name, requires)
);

CREATE TABLE queue (
  name          TEXT PRIMARY KEY,
  paused        INTEGER NOT NULL,
  changed_at_ms INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE worker (
  id                TEXT    PRIMARY KEY,
  incarnation       INTEGER NOT NULL UNIQUE,
  state             TEXT    NOT NULL,
  last_heartbeat_ms INTEGER NOT NULL,
  registration      BLOB    NOT NULL,
  load              BLOB
) WITHOUT ROWID;

-- How each worker does with tasks of each name: decayed statistics and the breaker.
CREATE TABLE quality (
  worker_id  TEXT NOT NULL,
  name       TEXT NOT NULL,
  is_open    INTEGER NOT NULL,
  statistics BLOB NOT NULL,
  breaker    BLOB NOT NULL,
  PRIMARY KEY (worker_id, name)
) WITHOUT ROWID;
CREATE INDEX quality_open ON quality (name) WHERE is_open = 1;

-- Cancelled tasks whose workers have not let go of them yet.
CREATE TABLE cancelled (
  incarnation INTEGER NOT NULL,
  id          INTEGER NOT NULL,
  PRIMARY KEY (incarnation, id)
) WITHOUT ROWID;

CREATE TABLE access_token (
  id    TEXT PRIMARY KEY,
  token BLOB NOT NULL
) WITHOUT ROWID;

-- Numbers that only rise, kept apart from rows that may be deleted.
CREATE TABLE counter (
  name  TEXT PRIMARY KEY,
  value INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO counter VALUES ('incarnation', 0), ('task', 0);
