-- Tasks that came with transactions of others', and are not accepted yet. Whoever shares the database
-- writes here, so on SQLite it is empty, but for what was copied from elsewhere. A key may stand here
-- more than once: the first to be accepted has it.
CREATE TABLE inbox (
  id            INTEGER PRIMARY KEY,
  key           TEXT    NOT NULL,
  task          BLOB    NOT NULL,
  created_at_ms INTEGER NOT NULL
);
