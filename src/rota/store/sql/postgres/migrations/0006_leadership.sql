-- The coordinator that writes to this store. `epoch` rises with each leader, `session` with each
-- connection that a leader opens after it lost one in a commit: a transaction of an earlier epoch or
-- session cannot commit. Every write reads this row, so it is changed by a takeover and little else.
CREATE TABLE leadership (
  id       boolean PRIMARY KEY DEFAULT true CHECK (id),
  epoch    bigint  NOT NULL DEFAULT 0,
  session  bigint  NOT NULL DEFAULT 0,
  leader   text    COLLATE "C",
  address  text    COLLATE "C",
  since_ms bigint  NOT NULL DEFAULT 0
);
INSERT INTO leadership DEFAULT VALUES;

-- The lease of the leader, which it renews every few seconds. `backend` is the server process of its
-- connection; NULL behind a pooler.
CREATE TABLE leader_lease (
  id            boolean PRIMARY KEY DEFAULT true CHECK (id),
  epoch         bigint  NOT NULL DEFAULT 0,
  backend       integer,
  backend_start timestamptz,
  expires_at_ms bigint  NOT NULL DEFAULT 0
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
INSERT INTO leader_lease DEFAULT VALUES;

-- The secret by which coordinators of this store know each other, made by the first that asks.
CREATE TABLE peer_secret (
  id    boolean PRIMARY KEY DEFAULT true CHECK (id),
  value bytea   NOT NULL
);

CREATE FUNCTION store_now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint
$$;

-- Whether a server process still serves the connection that began at that time. The time is hidden
-- from other roles: then the number of the process has to do.
CREATE FUNCTION is_connected(process integer, started timestamptz) RETURNS boolean
LANGUAGE sql VOLATILE AS $$
  SELECT process IS NULL OR EXISTS (
    SELECT 1 FROM pg_stat_activity AS a
     WHERE a.pid = process AND (a.backend_start IS NULL OR a.backend_start = started)
  )
$$;

-- The first statement of every write. A takeover takes the same lock exclusively before it raises
-- the epoch. So the epoch that is read behind the lock holds until the end of the transaction. The
-- function is volatile: each statement in it has a snapshot of its own.
CREATE FUNCTION check_epoch(lock_key bigint, expected bigint, expected_session bigint)
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  present record;
BEGIN
  PERFORM pg_advisory_xact_lock_shared(lock_key);
  SELECT l.epoch, l.session INTO present FROM leadership AS l;
  IF (present.epoch, present.session) IS DISTINCT FROM (expected, expected_session) THEN
    RAISE EXCEPTION 'epoch % is over: the store has epoch %', expected, present.epoch
      USING ERRCODE = 'RT001';
  END IF;
END $$;

-- The guard of a statement that has to change so many rows, without a wait for their number.
CREATE FUNCTION check_count(changed bigint, expected bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF changed <> expected THEN
    RAISE EXCEPTION 'changed % rows, not %', changed, expected USING ERRCODE = 'RT002';
  END IF;
END $$;

-- An exception to the rule that a migration only adds. A coordinator of the version before reads this
-- sequence in every write, and knows nothing of a leader: without the sequence its writes fail. The
-- operator stops all coordinators of the version before, and then starts those of this one.
DROP SEQUENCE turn;
