-- Webhooks. `document` is what an admin has set, `state` what deliveries change. Every event up to
-- `cursor` has been taken or left.
CREATE TABLE webhook (
  name     text   COLLATE "C" PRIMARY KEY,
  secret   text   COLLATE "C" NOT NULL,
  cursor   bigint NOT NULL,
  document bytea  NOT NULL,
  state    bytea  NOT NULL
);

-- Events on their way to a receiver, and the newest that have arrived or failed. `due_ms` is when
-- the next request is made; NULL: there is none.
CREATE TABLE webhook_delivery (
  webhook  text   COLLATE "C" NOT NULL,
  seq      bigint NOT NULL,
  due_ms   bigint,
  document bytea  NOT NULL,
  PRIMARY KEY (webhook, seq)
);
CREATE INDEX webhook_delivery_by_due ON webhook_delivery (webhook, due_ms) WHERE due_ms IS NOT NULL;

-- Queues whose tasks cannot start, as the event log says.
CREATE TABLE stuck_queue (
  queue    text   COLLATE "C" PRIMARY KEY,
  since_ms bigint NOT NULL
);

-- Queues whose tasks are pushed over HTTP. `document` is what an admin has set. Nothing is pushed
-- before `closed_until_ms`.
CREATE TABLE push (
  queue           text   COLLATE "C" PRIMARY KEY,
  secret          text   COLLATE "C" NOT NULL,
  document        bytea  NOT NULL,
  changed_at_ms   bigint NOT NULL,
  closed_until_ms bigint NOT NULL
);
