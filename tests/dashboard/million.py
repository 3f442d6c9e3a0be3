"""A store with a long past, written straight into its tables."""

from pathlib import Path

import apsw

from rota.store.sqlite.database import SqliteDatabase

NOW_MS = 1_800_000_000_000
QUEUES = 20
# One in so many; the rest have succeeded.
FAILED_ONE_IN, CANCELLED_ONE_IN = 16, 97
LABELLED_ONE_IN = 2
RARE_ROWS = 7  # of the queue that hardly anybody uses, all of them old
TRACE = "Traceback (most recent call last): " + "somewhere in the program, " * 40

LANES = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :queues)
INSERT INTO lane (number, queue, name, requires)
SELECT i, 'queue ' || i, 'work ' || (i % 5), '[]' FROM n
UNION ALL SELECT :queues + 1, 'rare', 'seldom', '[]'
"""
HISTORY = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :rows)
INSERT INTO history (id, lane, priority, payload, created_at_ms, state, fence, attempt, worker_id,
                     started_at_ms, finished_at_ms, result, error, cause)
SELECT i, CASE WHEN i <= :rare THEN :queues + 1 ELSE 1 + i % :queues END, 0,
       CAST('{"order": ' || i || ', "note": "as long as payloads are"}' AS BLOB),
       :now - 2 * (:rows - i) - 900, state, 1, 1, 'w' || (i % 50),
       :now - 2 * (:rows - i) - 500, :now - 2 * (:rows - i),
       CASE WHEN state = 'succeeded' THEN CAST('{"done": true}' AS BLOB) END,
       CASE WHEN state = 'failed' THEN CAST(
         '{"type": "E' || (i % 30) || '", "message": "order ' || i || ' is lost", "details": '
         || '{"traceback": "' || :trace || '"}}' AS BLOB) END,
       CASE WHEN state = 'failed' THEN printf('%016x', i % 30) END
  FROM (SELECT i, CASE WHEN i % :failed = 0 THEN 'failed'
                       WHEN i % :cancelled = 0 THEN 'cancelled'
                       ELSE 'succeeded' END AS state FROM n)
"""
LABELS = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :rows / :labelled)
INSERT INTO task_label (label, id) SELECT 'tenant=large', i * :labelled FROM n
"""


def write(path: Path, rows: int) -> None:
    """A store with so many finished tasks; the newest one has ended now."""
    SqliteDatabase(str(path)).close()
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA synchronous = OFF")
    given = {
        "rows": rows,
        "queues": QUEUES,
        "rare": RARE_ROWS,
        "now": NOW_MS,
        "trace": TRACE,
        "labelled": LABELLED_ONE_IN,
        "failed": FAILED_ONE_IN,
        "cancelled": CANCELLED_ONE_IN,
    }
    with connection:
        for statement in (LANES, HISTORY, LABELS):
            connection.execute(statement, given)
        connection.execute("UPDATE counter SET value = ? WHERE name = 'task'", (rows,))
    connection.close()
