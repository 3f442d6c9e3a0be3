-- The logs of attempts. `attempt_log` has a row for each attempt that has logged anything: what is
-- kept of it, and how many lines are not. Lines are numbered over all attempts of a task.
CREATE TABLE attempt_log (
  task     bigint NOT NULL,
  fence    bigint NOT NULL,
  attempt  bigint NOT NULL,
  last     bigint NOT NULL,
  lines    bigint NOT NULL,
  size     bigint NOT NULL,
  sent     bigint NOT NULL,
  left_out bigint NOT NULL,
  cut      bigint NOT NULL,
  PRIMARY KEY (task, fence)
);

-- The lines of one report, as MessagePack; `last` is the number of the last one.
CREATE TABLE log_lines (
  task    bigint NOT NULL,
  last    bigint NOT NULL,
  fence   bigint NOT NULL,
  content bytea  NOT NULL,
  PRIMARY KEY (task, last)
);
