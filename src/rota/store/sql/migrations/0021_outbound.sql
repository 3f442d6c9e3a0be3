-- Webhooks. `document` is what an admin has set, `state` what deliveries change. Every event up to
-- `cursor` has been taken or left.
CREATE TABLE webhook (
  name     TEXT    PRIMARY KEY,
  secret   TEXT    NOT NULL,
  cursor   INTEGER NOT NULL,
  document BLOB    NOT NULL,
  state    BLOB    NOT NULL
) WITHOUT ROWID;

-- Events on their way to a receiver, and the newest that have arrived or failed. `due_ms` is when
-- the next request is made; NULL: there is none.
CREATE TABLE webhook_delivery (
  webhook  TEXT    NOT NULL,
  seq      INTEGER NOT NULL,
  due_ms   INTEGER,
  document BLOB    NOT NULL,
  PRIMARY KEY (webhook, seq)
) WITHOUT ROWID;
CREATE INDEX webhook_delivery_by_due ON webhook_delivery (webhook, due_ms) WHERE due_ms IS NOT NULL;

-- Queues whose tasks cannot start, as the event log says.
CREATE TABLE stuck_queue (
  queue    TEXT    PRIMARY KEY,
  since_ms INTEGER NOT NULL
) WITHOUT ROWID;

-- Queues whose tasks are pushed over HTTP. `document` is what an admin has set. Nothing is pushed
-- before `closed_until_ms`.
CREATE TABLE push (
  queue           TEXT    PRIMARY KEY,
  secret          TEXT    NOT NULL,
  document        BLOB    NOT NULL,
  changed_at_ms   INTEGER NOT NULL,
  closed_until_ms INTEGER NOT NULL
) WITHOUT ROWID;
