"""Do hot queries walk along an index on PostgreSQL too, whatever it believes about its tables?

Tables that were empty a moment ago have no statistics, or wrong ones. PostgreSQL then takes a
million rows for a few, and would rather read and sort them all than walk to the first hundred.
"""

import pytest

from rota.store.database import Database, Transaction
from rota.store.postgres.parameters import encoded
from rota.store.postgres.transaction import PostgresTransaction
from tests.databases.schemas import open_transaction

pytestmark = pytest.mark.only("postgres")

WAITING = 5_000
FILL = f"""
INSERT INTO task (id, lane, priority, payload, created_at_ms)
SELECT id, 1, 0, 'null', 1 FROM generate_series(1, {WAITING}) AS id;
INSERT INTO ready SELECT lane, 0, id, 0, 0, 1 FROM task;
INSERT INTO lease (id, lane, incarnation, fence, attempt, started_at_ms)
SELECT id, 1, 1, 1, 1, 1 FROM task;
INSERT INTO history (id, lane, priority, payload, created_at_ms, state, fence, attempt,
                     finished_at_ms)
SELECT id, 1, 0, 'null', 1, 'succeeded', 1, 1, 1 FROM task
"""
IDS = list(range(1, 101))


def fill(tx: Transaction) -> None:
    assert isinstance(tx, PostgresTransaction)
    tx._link.script(FILL.encode())


def plan(tx: Transaction, query: str, *parameters: object) -> str:
    assert isinstance(tx, PostgresTransaction)
    asked = tx._queries[query]
    result = tx._link.run(b"EXPLAIN " + asked.text, *encoded(asked, parameters))
    return "\n".join(str(line) for (line,) in tx._link.rows(result))


@pytest.mark.parametrize(
    ("query", "parameters"),
    [
        ("tasks.head", (1, 100)),
        ("tasks.open_lanes", ()),
        ("tasks.leases", (IDS,)),
        ("tasks.live", (IDS,)),
        ("tasks.finished", (IDS,)),
        ("tasks.finish_alike", ("succeeded", 1, "worker", 1, b"null", IDS, 1)),
        ("tasks.take_ready", (1, 0, IDS)),
        ("tasks.take_ready_between", (1, 0, 1, 100)),
        ("tasks.drop_leases", (IDS,)),
        ("tasks.drop_tasks_between", (1, 100)),
        ("tasks.due", (1, 100)),
        ("tasks.overdue", (1, 100)),
        ("tasks.queued_ids", (1, 0, WAITING, 100)),
        ("tasks.succeeded_ids", (1, WAITING, 100)),
    ],
)
def test_a_hot_query_walks_along_an_index(
    database: Database, query: str, parameters: tuple[object, ...]
) -> None:
    with open_transaction(database) as tx:
        fill(tx)

        steps = plan(tx, query, *parameters)

    assert "Index" in steps
    assert not any(step in steps for step in ("Sort", "Seq Scan", "Bitmap", "Hash", "Merge Join"))
