-- The tables of SQLite's migrations 1 to 5, in a schema of their own. Text is compared byte by byte,
-- as SQLite does it, so that lists have one order on both stores. A table that is a queue is vacuumed
-- by the number of its dead rows, however large it is, and without pauses.

-- Raised by every transaction that changed something, with its commit. A sequence, since it is not
-- bound to transactions: a snapshot that is held somewhere for hours makes reading it no slower.
CREATE SEQUENCE turn;

-- Live tasks: what does not change while they live, but for the log of ended attempts.
CREATE TABLE task (
  id            bigint PRIMARY KEY,
  lane          bigint NOT NULL,
  priority      bigint NOT NULL,
  payload       bytea  NOT NULL,
  options       bytea,
  key           text   COLLATE "C",
  created_at_ms bigint NOT NULL,
  log           bytea
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0,
        autovacuum_analyze_threshold = 50000);

-- Where tasks wait. `rank` is the negated priority, so that everything ascends.
CREATE TABLE ready (
  lane     bigint NOT NULL,
  rank     bigint NOT NULL,
  id       bigint NOT NULL,
  fence    bigint NOT NULL,
  attempt  bigint NOT NULL,
  since_ms bigint NOT NULL,
  PRIMARY KEY (lane, rank, id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0,
        autovacuum_analyze_threshold = 50000);

CREATE TABLE scheduled (
  due_at_ms bigint NOT NULL,
  id        bigint NOT NULL,
  fence     bigint NOT NULL,
  attempt   bigint NOT NULL,
  PRIMARY KEY (due_at_ms, id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0,
        autovacuum_analyze_threshold = 50000);
CREATE INDEX scheduled_by_id ON scheduled (id);

-- Who runs what. Incarnation 0 is a caller of the jobs API, named by `holder`. Room is left on each
-- page for progress, which is written again and again.
CREATE TABLE lease (
  id            bigint PRIMARY KEY,
  lane          bigint NOT NULL,
  incarnation   bigint NOT NULL,
  fence         bigint NOT NULL,
  attempt       bigint NOT NULL,
  started_at_ms bigint NOT NULL,
  deadline_ms   bigint,
  holder        text COLLATE "C",
  progress      bytea,
  partial       bytea
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0,
        autovacuum_analyze_threshold = 50000);
CREATE INDEX lease_by_incarnation ON lease (incarnation);
CREATE INDEX lease_by_deadline ON lease (deadline_ms) WHERE deadline_ms IS NOT NULL;

-- Only tasks that have a time limit to start stand here.
CREATE TABLE start_limit (
  start_by_ms bigint NOT NULL,
  id          bigint NOT NULL,
  PRIMARY KEY (start_by_ms, id)
);

-- Finished tasks, whole. Ids are made of time, so a range of ids is a stretch of time: old stretches
-- are dropped as tables. What has no table of its own stands in `history_other`.
CREATE TABLE history (
  id             bigint PRIMARY KEY,
  lane           bigint NOT NULL,
  priority       bigint NOT NULL,
  payload        bytea  NOT NULL,
  options        bytea,
  key            text   COLLATE "C",
  created_at_ms  bigint NOT NULL,
  log            bytea,
  state          text   COLLATE "C" NOT NULL,
  fence          bigint NOT NULL,
  attempt        bigint NOT NULL,
  incarnation    bigint,
  worker_id      text   COLLATE "C",
  started_at_ms  bigint,
  finished_at_ms bigint NOT NULL,
  result         bytea,
  error          bytea,
  progress       bytea,
  partial        bytea,
  cause          text   COLLATE "C"
) PARTITION BY RANGE (id);
CREATE INDEX history_by_end ON history (finished_at_ms);
CREATE INDEX history_succeeded ON history (lane, id) WHERE state = 'succeeded';
CREATE INDEX history_failed ON history (lane, id) WHERE state = 'failed';
CREATE INDEX history_cancelled ON history (lane, id) WHERE state = 'cancelled';
CREATE INDEX history_by_cause ON history (cause, lane, finished_at_ms, id) WHERE state = 'failed';
CREATE TABLE history_other PARTITION OF history DEFAULT;

-- The stretches that have a table. Before one is dropped, what stands beside its tasks is deleted in
-- steps: `cleaned_to` is how far that has come.
CREATE TABLE history_stretch (
  first_id   bigint PRIMARY KEY,
  end_id     bigint NOT NULL,
  cleaned_to bigint NOT NULL
);

-- Give a stretch a table, unless some of its tasks stand elsewhere already. Readers of history are
-- waited for no longer than a moment: there is a whole day to try again.
CREATE FUNCTION add_stretch(first bigint, behind bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT 1 FROM history_stretch WHERE first_id = first)
     OR EXISTS (SELECT 1 FROM history_other WHERE id >= first AND id < behind) THEN
    RETURN;
  END IF;
  DECLARE
    patience text := current_setting('lock_timeout');
  BEGIN
    PERFORM set_config('lock_timeout', '200ms', true);
    EXECUTE format('CREATE TABLE history_%s PARTITION OF history FOR VALUES FROM (%s) TO (%s)',
                   first, first, behind);
    INSERT INTO history_stretch VALUES (first, behind, first);
    PERFORM set_config('lock_timeout', patience, true);
  EXCEPTION WHEN lock_not_available OR check_violation THEN
    NULL;
  END;
END $$;

-- Make tables for today and tomorrow, and find a stretch that is past its time as a whole.
CREATE FUNCTION old_stretch(now_id bigint, before_id bigint, before_ms bigint)
RETURNS TABLE (first bigint, behind bigint, cleaned bigint) LANGUAGE plpgsql AS $$
DECLARE
  day   CONSTANT bigint := 86400000::bigint << 21;  -- in ids
  today CONSTANT bigint := now_id - now_id % day;
BEGIN
  IF now_id > 0 THEN
    PERFORM add_stretch(today, today + day);
    PERFORM add_stretch(today + day, today + 2 * day);
  END IF;
  RETURN QUERY
    SELECT s.first_id, s.end_id, s.cleaned_to FROM history_stretch AS s
     WHERE s.end_id <= before_id
       AND NOT EXISTS (SELECT 1 FROM history AS h
                        WHERE h.id >= s.first_id AND h.id < s.end_id
                          AND h.finished_at_ms >= before_ms)
     ORDER BY s.first_id LIMIT 1;
END $$;

-- Drop a stretch with its table; no row: somebody reads history, and it is to be tried again.
CREATE FUNCTION drop_stretch(first bigint) RETURNS SETOF bigint LANGUAGE plpgsql AS $$
DECLARE
  patience text := current_setting('lock_timeout');
BEGIN
  PERFORM set_config('lock_timeout', '200ms', true);
  EXECUTE format('DROP TABLE history_%s', first);
  DELETE FROM history_stretch WHERE first_id = first;
  PERFORM set_config('lock_timeout', patience, true);
  RETURN NEXT first;
EXCEPTION WHEN lock_not_available THEN
  RETURN;
END $$;

-- What is deleted row by row: tasks that have no stretch, and others as long as they are few. Many of
-- them wait until their stretch is dropped.
CREATE FUNCTION prunable(before_ms bigint, most bigint) RETURNS SETOF bigint LANGUAGE sql AS $$
  WITH few AS (
    SELECT finished_at_ms, id FROM history
     WHERE finished_at_ms < before_ms ORDER BY finished_at_ms LIMIT most
  ), other AS (
    SELECT finished_at_ms, id FROM history_other
     WHERE finished_at_ms < before_ms ORDER BY finished_at_ms LIMIT most
  ), found AS (
    SELECT * FROM few WHERE (SELECT count(*) FROM few) < most UNION SELECT * FROM other
  )
  SELECT id FROM found ORDER BY finished_at_ms LIMIT most
$$;

-- Idempotency keys and labels live as long as their task is remembered.
CREATE TABLE task_key (
  key text COLLATE "C" PRIMARY KEY,
  id  bigint NOT NULL
);

CREATE TABLE task_label (
  label text COLLATE "C" NOT NULL,
  id    bigint NOT NULL,
  PRIMARY KEY (label, id)
);

-- What a task asks of a worker, interned. `requires` is a JSON array, sorted.
CREATE TABLE lane (
  number   bigint PRIMARY KEY,
  queue    text COLLATE "C" NOT NULL,
  name     text COLLATE "C" NOT NULL,
  requires text COLLATE "C" NOT NULL
);
CREATE UNIQUE INDEX lane_once ON lane (queue, name, md5(requires));  -- which may be long

CREATE TABLE queue (
  name          text COLLATE "C" PRIMARY KEY,
  paused        bigint NOT NULL,
  changed_at_ms bigint NOT NULL
);

-- A beat changes no column that has an index, and finds room on its page.
CREATE TABLE worker (
  id                text   COLLATE "C" PRIMARY KEY,
  incarnation       bigint NOT NULL UNIQUE,
  state             text   COLLATE "C" NOT NULL,
  last_heartbeat_ms bigint NOT NULL,
  registration      bytea  NOT NULL,
  load              bytea
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);

-- How each worker does with tasks of each name: decayed statistics and the breaker.
CREATE TABLE quality (
  worker_id  text   COLLATE "C" NOT NULL,
  name       text   COLLATE "C" NOT NULL,
  is_open    bigint NOT NULL,
  statistics bytea  NOT NULL,
  breaker    bytea  NOT NULL,
  PRIMARY KEY (worker_id, name)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);
CREATE INDEX quality_open ON quality (name) WHERE is_open = 1;

-- Cancelled tasks whose workers have not let go of them yet.
CREATE TABLE cancelled (
  incarnation bigint NOT NULL,
  id          bigint NOT NULL,
  PRIMARY KEY (incarnation, id)
);

CREATE TABLE access_token (
  id    text COLLATE "C" PRIMARY KEY,
  token bytea NOT NULL
);

-- Numbers that only rise, kept apart from rows that may be deleted.
CREATE TABLE counter (
  name  text COLLATE "C" PRIMARY KEY,
  value bigint NOT NULL
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
        autovacuum_vacuum_cost_delay = 0);
INSERT INTO counter VALUES ('incarnation', 0), ('task', 0), ('event', 0), ('memory', 0), ('lock', 0);

-- Definitions are immutable: a name's content changes by a new version.
CREATE TABLE workflow (
  name          text   COLLATE "C" NOT NULL,
  version       bigint NOT NULL,
  hash          text   COLLATE "C" NOT NULL,
  definition    bytea  NOT NULL,
  created_at_ms bigint NOT NULL,
  PRIMARY KEY (name, version)
);
CREATE UNIQUE INDEX workflow_by_hash ON workflow (name, hash);

-- A run's facts. Where it stands follows from its journal.
CREATE TABLE run (
  id             bigint PRIMARY KEY,
  workflow       text   COLLATE "C" NOT NULL,
  version        bigint NOT NULL,
  state          text   COLLATE "C" NOT NULL,
  input          bytea  NOT NULL,
  context        bytea,
  output         bytea,
  error          bytea,
  key            text   COLLATE "C",
  parent_run     bigint,
  parent_token   bigint,
  depth          bigint NOT NULL,
  forked_from    bigint,
  timeout_ms     bigint,
  created_at_ms  bigint NOT NULL,
  finished_at_ms bigint
);
CREATE INDEX run_by_workflow ON run (workflow, id);
CREATE INDEX run_by_state ON run (state, id);
CREATE INDEX run_by_end ON run (finished_at_ms) WHERE finished_at_ms IS NOT NULL;

CREATE TABLE run_key (
  key text COLLATE "C" PRIMARY KEY,
  id  bigint NOT NULL
);

-- Every event of a run and what it led to. `links` names the tasks and runs made for its tokens.
CREATE TABLE journal (
  run       bigint NOT NULL,
  number    bigint NOT NULL,
  at_ms     bigint NOT NULL,
  event     bytea  NOT NULL,
  decisions bytea  NOT NULL,
  links     bytea,
  PRIMARY KEY (run, number)
);

CREATE TABLE run_timer (
  due_at_ms bigint NOT NULL,
  run       bigint NOT NULL,
  kind      text   COLLATE "C" NOT NULL,
  number    bigint NOT NULL,
  PRIMARY KEY (due_at_ms, run, kind, number)
);
CREATE INDEX run_timer_by_run ON run_timer (run);

-- Which token of which run a task works for. Most tasks work for none, and have no row here.
CREATE TABLE run_task (
  task  bigint PRIMARY KEY,
  run   bigint NOT NULL,
  token bigint NOT NULL
);
CREATE INDEX run_task_by_run ON run_task (run);

-- Blobs that tasks attached to their runs. Staged until the attempt that brought them completes;
-- large ones lie in files.
CREATE TABLE artifact (
  id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  run             bigint NOT NULL,
  name            text   COLLATE "C" NOT NULL,
  task            bigint NOT NULL,
  fence           bigint NOT NULL,
  media_type      text   COLLATE "C" NOT NULL,
  size            bigint NOT NULL,
  file            text   COLLATE "C",
  created_at_ms   bigint NOT NULL,
  committed_at_ms bigint,
  content         bytea
);
CREATE INDEX artifact_by_name ON artifact (run, name, id);
CREATE INDEX artifact_by_run ON artifact (run, id) WHERE committed_at_ms IS NOT NULL;
CREATE INDEX artifact_staged ON artifact (task, fence) WHERE committed_at_ms IS NULL;
CREATE INDEX artifact_in_file ON artifact (file) WHERE file IS NOT NULL;

-- Services of long-lived workers. They and their members are numbered: there may be a hundred
-- thousand shards, and each of their rows names both.
CREATE TABLE service (
  number       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name         text   COLLATE "C" NOT NULL UNIQUE,
  shard_count  bigint NOT NULL,
  pinned       bigint NOT NULL,
  min_protocol bigint NOT NULL,
  generation   bigint NOT NULL,
  superseded   bytea  NOT NULL
);

CREATE TABLE member (
  number    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  service   bigint NOT NULL,
  worker_id text   COLLATE "C" NOT NULL,
  details   bytea  NOT NULL,
  UNIQUE (service, worker_id)
) WITH (fillfactor = 70);

-- Apart from the rest, since it changes with every beat.
CREATE TABLE member_seen (
  member  bigint PRIMARY KEY,
  seen_ms bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);

-- Every shard that ever had an owner or a target. A row is never deleted, so an epoch never comes
-- again. `owner` and `target` are numbers of members, `revoked_in` is a generation.
CREATE TABLE shard (
  service    bigint NOT NULL,
  shard      bigint NOT NULL,
  epoch      bigint NOT NULL,
  owner      bigint,
  target     bigint,
  revoked_in bigint,
  PRIMARY KEY (service, shard)
) WITH (fillfactor = 70);

-- How far the owners of shards have come, as they said.
CREATE TABLE shard_checkpoint (
  service     bigint NOT NULL,
  shard       bigint NOT NULL,
  epoch       bigint NOT NULL,
  saved_at_ms bigint NOT NULL,
  value       bytea  NOT NULL,
  PRIMARY KEY (service, shard)
) WITH (fillfactor = 70);

-- What the outside is told of. Numbers rise by one and are never given twice, also when the rows are
-- gone: the counter is raised by whoever deletes them.
CREATE TABLE event (
  seq     bigint PRIMARY KEY,
  at_ms   bigint NOT NULL,
  type    text   COLLATE "C" NOT NULL,
  subject text   COLLATE "C" NOT NULL,
  data    bytea  NOT NULL
);

-- What programs keep with us. A version is never given twice, over all keys.
CREATE TABLE memory (
  key           text   COLLATE "C" PRIMARY KEY,
  value         bytea  NOT NULL,
  version       bigint NOT NULL,
  updated_at_ms bigint NOT NULL,
  expires_at_ms bigint
) WITH (fillfactor = 80);
CREATE INDEX memory_by_expiry ON memory (expires_at_ms) WHERE expires_at_ms IS NOT NULL;

-- Who may do what only one may do at a time. A lock that nobody has or waits for has no row.
-- Fences, tickets and the numbers of calls come from one counter, and are never given twice.
CREATE TABLE lock (
  name          text   COLLATE "C" PRIMARY KEY,
  owner         text   COLLATE "C",
  fence         bigint NOT NULL,
  asked         bigint NOT NULL,
  ttl_ms        bigint NOT NULL,
  expires_at_ms bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);
CREATE INDEX lock_by_expiry ON lock (expires_at_ms);
CREATE TABLE lock_waiter (
  lock     text   COLLATE "C" NOT NULL,
  ticket   bigint NOT NULL,
  asked    bigint NOT NULL,
  owner    text   COLLATE "C" NOT NULL,
  ttl_ms   bigint NOT NULL,
  until_ms bigint NOT NULL,
  PRIMARY KEY (lock, ticket)
);

-- Which sessions submitted which tasks. While `news` is there the task has ended, and the session
-- has not been told yet. A row lives as long as its task is remembered.
CREATE TABLE session_task (
  id      bigint NOT NULL,
  session text   COLLATE "C" NOT NULL,
  news    bigint,
  PRIMARY KEY (id, session)
);
CREATE INDEX session_news ON session_task (session, news) WHERE news IS NOT NULL;

-- How queues did, minute by minute: the charts of the last hour outlive a restart. The queue '' is
-- all of them together, for no queue has an empty name.
CREATE TABLE minute (
  started_at_ms bigint NOT NULL,
  queue         text   COLLATE "C" NOT NULL,
  slots         bytea  NOT NULL,
  PRIMARY KEY (started_at_ms, queue)
);
