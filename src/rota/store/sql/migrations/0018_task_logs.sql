-- The logs of attempts. `attempt_log` has a row for each attempt that has logged anything: what is
-- kept of it, and how many lines are not. Lines are numbered over all attempts of a task.
CREATE TABLE attempt_log (
  task     INTEGER NOT NULL,
  fence    INTEGER NOT NULL,
  attempt  INTEGER NOT NULL,
  last     INTEGER NOT NULL,
  lines    INTEGER NOT NULL,
  size     INTEGER NOT NULL,
  sent     INTEGER NOT NULL,
  left_out INTEGER NOT NULL,
  cut      INTEGER NOT NULL,
  PRIMARY KEY (task, fence)
) WITHOUT ROWID;

-- The lines of one report, as MessagePack; `last` is the number of the last one.
CREATE TABLE log_lines (
  task    INTEGER NOT NULL,
  last    INTEGER NOT NULL,
  fence   INTEGER NOT NULL,
  content BLOB    NOT NULL,
  PRIMARY KEY (task, last)
);
