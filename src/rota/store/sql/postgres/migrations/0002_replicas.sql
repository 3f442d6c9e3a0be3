-- Coordinators that share this store, by the clock of the store.
CREATE TABLE replica (
  name          text   COLLATE "C" PRIMARY KEY,
  url           text   COLLATE "C",
  host          text   COLLATE "C" NOT NULL,
  version       text   COLLATE "C" NOT NULL,
  started_at_ms bigint NOT NULL,
  seen_ms       bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- What those who look at the health of workers remember from one sweep to the next.
CREATE TABLE watch (
  name  text  COLLATE "C" PRIMARY KEY,
  value bytea NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- What a coordinator that is alone knows in memory, for the others: raised with each change of
-- anything about a service, and what is due and waited for in it.
ALTER TABLE service ADD COLUMN version bigint NOT NULL DEFAULT 0;
ALTER TABLE service ADD COLUMN agenda bytea;

-- With which coordinator somebody stands in line.
ALTER TABLE lock_waiter ADD COLUMN replica text COLLATE "C";
CREATE INDEX lock_waiter_by_replica ON lock_waiter (replica) WHERE replica IS NOT NULL;

-- Numbers of what sessions are to be told.
INSERT INTO counter VALUES ('news', 0);
