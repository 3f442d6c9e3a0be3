-- What the outside is told of. Numbers rise by one and are never given twice, also when the rows are
-- gone: the counter is raised by whoever deletes them.
CREATE TABLE event (
  seq     INTEGER PRIMARY KEY,
  at_ms   INTEGER NOT NULL,
  type    TEXT    NOT NULL,
  subject TEXT    NOT NULL,
  data    BLOB    NOT NULL
);
INSERT INTO counter VALUES ('event', 0);

-- What programs keep with us. A version is never given twice, over all keys.
CREATE TABLE memory (
  key           TEXT    PRIMARY KEY,
  value         BLOB    NOT NULL,
  version       INTEGER NOT NULL,
  updated_at_ms INTEGER NOT NULL,
  expires_at_ms INTEGER
);
CREATE INDEX memory_by_expiry ON memory (expires_at_ms) WHERE expires_at_ms IS NOT NULL;
INSERT INTO counter VALUES ('memory', 0);

-- Who may do what only one may do at a time. A lock that nobody has or waits for has no row.
-- Fences, tickets and the numbers of calls come from one counter, and are never given twice.
CREATE TABLE lock (
  name          TEXT    PRIMARY KEY,
  owner         TEXT,
  fence         INTEGER NOT NULL,
  asked         INTEGER NOT NULL,
  ttl_ms        INTEGER NOT NULL,
  expires_at_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX lock_by_expiry ON lock (expires_at_ms);
CREATE TABLE lock_waiter (
  lock     TEXT    NOT NULL,
  ticket   INTEGER NOT NULL,
  asked    INTEGER NOT NULL,
  owner    TEXT    NOT NULL,
  ttl_ms   INTEGER NOT NULL,
  until_ms INTEGER NOT NULL,
  PRIMARY KEY (lock, ticket)
) WITHOUT ROWID;
INSERT INTO counter VALUES ('lock', 0);

-- Which sessions submitted which tasks. While `news` is there the task has ended, and the session
-- has not been told yet. A row lives as long as its task is remembered.
CREATE TABLE session_task (
  id      INTEGER NOT NULL,
  session TEXT    NOT NULL,
  news    INTEGER,
  PRIMARY KEY (id, session)
) WITHOUT ROWID;
CREATE INDEX session_news ON session_task (session, news) WHERE news IS NOT NULL;
