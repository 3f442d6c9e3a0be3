-- Coordinators that share this store, by the clock of the store. None on SQLite, which is not shared.
CREATE TABLE replica (
  name          TEXT    PRIMARY KEY,
  url           TEXT,
  host          TEXT    NOT NULL,
  version       TEXT    NOT NULL,
  started_at_ms INTEGER NOT NULL,
  seen_ms       INTEGER NOT NULL
);

-- What those who look at the health of workers remember from one sweep to the next.
CREATE TABLE watch (
  name  TEXT PRIMARY KEY,
  value BLOB NOT NULL
);

-- What a coordinator that is alone knows in memory, for the others: raised with each change of
-- anything about a service, and what is due and waited for in it.
ALTER TABLE service ADD COLUMN version INTEGER NOT NULL DEFAULT 0;
ALTER TABLE service ADD COLUMN agenda BLOB;

-- With which coordinator somebody stands in line; NULL: there is only one.
ALTER TABLE lock_waiter ADD COLUMN replica TEXT;
CREATE INDEX lock_waiter_by_replica ON lock_waiter (replica) WHERE replica IS NOT NULL;

-- Numbers of what sessions are to be told, where several give them.
INSERT INTO counter VALUES ('news', 0);
