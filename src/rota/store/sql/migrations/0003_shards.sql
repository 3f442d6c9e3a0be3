-- Services of long-lived workers. They and their members are numbered: there may be a hundred
-- thousand shards, and each of their rows names both.
CREATE TABLE service (
  number       INTEGER PRIMARY KEY,
  name         TEXT    NOT NULL UNIQUE,
  shard_count  INTEGER NOT NULL,
  pinned       INTEGER NOT NULL,
  min_protocol INTEGER NOT NULL,
  generation   INTEGER NOT NULL,
  superseded   BLOB    NOT NULL
);

CREATE TABLE member (
  number    INTEGER PRIMARY KEY,
  service   INTEGER NOT NULL,
  worker_id TEXT    NOT NULL,
  details   BLOB    NOT NULL,
  UNIQUE (service, worker_id)
);

-- Apart from the rest, since it changes with every beat: hundreds of these fit on a page.
CREATE TABLE member_seen (
  member  INTEGER PRIMARY KEY,
  seen_ms INTEGER NOT NULL
);

-- Every shard that ever had an owner or a target. A row is never deleted, so an epoch never comes
-- again. `owner` and `target` are numbers of members, `revoked_in` is a generation.
CREATE TABLE shard (
  service    INTEGER NOT NULL,
  shard      INTEGER NOT NULL,
  epoch      INTEGER NOT NULL,
  owner      INTEGER,
  target     INTEGER,
  revoked_in INTEGER,
  PRIMARY KEY (service, shard)
) WITHOUT ROWID;

-- How far the owners of shards have come, as they said.
CREATE TABLE shard_checkpoint (
  service     INTEGER NOT NULL,
  shard       INTEGER NOT NULL,
  epoch       INTEGER NOT NULL,
  saved_at_ms INTEGER NOT NULL,
  value       BLOB    NOT NULL,
  PRIMARY KEY (service, shard)
) WITHOUT ROWID;
