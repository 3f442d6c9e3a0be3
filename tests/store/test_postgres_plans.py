"""Along which indexes do queries go on PostgreSQL? None walks through a table that grows."""

import re
from pathlib import Path

import pytest

from rota.store.postgres.dialect import postgres_queries
from rota.store.postgres.transaction import PostgresTransaction
from tests.databases.schemas import open_store, open_transaction, seen
from tests.store.test_plans import GROWING, LOOKS_AT_ALL, LOOKS_FOR_ANY
from tests.store.test_postgres_queries import SQLITES_OWN

pytestmark = pytest.mark.only("postgres")

DELETES_ALL = {"locks.delete_all_waiters"}
ONE_OFF = {"dashboard.set_cause"}  # for stores from before causes were noted
SCANNED = re.compile(r"Seq Scan on (\w+)")


EMPTIED = b"""
UPDATE pg_class SET relpages = 20, reltuples = 0
 WHERE relkind IN ('r', 'i') AND relnamespace = current_schema()::regnamespace;
SET LOCAL plan_cache_mode TO force_generic_plan
"""
BY_ITSELF = re.compile(r"Index (?:Only )?Scan using \w+ on (\w+)[^\n]*\n(?!\s*Index Cond)")


def changing() -> list[str]:
    """The queries that join rows that are given with a table that they change."""
    return [
        name
        for name, query in postgres_queries().items()
        if query.is_change
        and b"unnest" in query.text
        and not query.text.startswith(b"INSERT")
        and name not in ONE_OFF
    ]


def walked(text: str) -> list[str]:
    """The tables that a plan goes through from one end to the other."""
    return [*SCANNED.findall(text), *BY_ITSELF.findall(text + "\n")]


def plan(tx: PostgresTransaction, name: str) -> str:
    """How a query is carried out whatever its parameters are."""
    query = postgres_queries()[name]
    unbound = ", ".join(["NULL"] * len(query.types))
    tx._connection.script(b"PREPARE asked AS " + query.text)
    lines = seen(tx, f"EXPLAIN EXECUTE asked({unbound})" if unbound else "EXPLAIN EXECUTE asked")
    tx._connection.script(b"DEALLOCATE asked")
    return "\n".join(str(line) for (line,) in lines)


def test_no_query_walks_through_a_table_that_grows(tmp_path: Path) -> None:
    database = open_store(tmp_path)
    walks: dict[str, set[str]] = {}
    with open_transaction(database) as tx:
        assert isinstance(tx, PostgresTransaction)
        tx._connection.script(b"SET LOCAL plan_cache_mode TO force_generic_plan")
        for name in (
            postgres_queries().keys() - LOOKS_AT_ALL - LOOKS_FOR_ANY - DELETES_ALL - SQLITES_OWN
        ):
            scanned = {found.removesuffix("_other") for found in SCANNED.findall(plan(tx, name))}
            if scanned & GROWING:
                walks[name] = scanned & GROWING
    database.close()

    assert walks == {}


def test_no_change_walks_through_a_table_that_was_empty_when_statistics_were_taken(
    tmp_path: Path,
) -> None:
    """As a queue is that was drained, vacuumed, and filled again."""
    database = open_store(tmp_path)
    walks: dict[str, list[str]] = {}
    with open_transaction(database) as tx:
        assert isinstance(tx, PostgresTransaction)
        tx._connection.script(EMPTIED)
        for name in changing():
            found = [table for table in walked(plan(tx, name)) if table in GROWING]
            if found:
                walks[name] = found
    database.close()

    assert walks == {}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (
            "tasks.queued_after",
            r"Index Scan using ready_pkey on ready r[^\n]*\n\s*Index Cond: [^\n]*ROW\(rank",
        ),
        (
            "tasks.queued_after_each",
            r"Index Scan using ready_pkey on ready n[^\n]*\n\s*Index Cond: [^\n]*ROW\(n?\.?rank",
        ),
        ("tasks.finish_alike", r"Function Scan on unnest f[^\n]*\n\s*->  Index Scan using lease_"),
        ("tasks.leases", r"Function Scan on unnest wanted[^\n]*\n\s*->  Index Scan using lease_"),
        ("tasks.due", r"Index Only Scan using scheduled_pkey on scheduled"),
        ("locks.expired", r"Index Scan using lock_by_expiry on lock"),
    ],
)
def test_hot_queries_use_the_index_that_was_made_for_them(
    tmp_path: Path, query: str, expected: str
) -> None:
    database = open_store(tmp_path)
    with open_transaction(database) as tx:
        assert isinstance(tx, PostgresTransaction)
        tx._connection.script(b"SET LOCAL plan_cache_mode TO force_generic_plan")
        found = plan(tx, query)
    database.close()

    assert re.search(expected, found), found


ACTUAL = re.compile(r"actual rows=([\d.]+) loops=(\d+)")
MANY_IN_FLOWS = b"""
INSERT INTO lane (number, queue, name, requires) VALUES (1, 'default', 'work', '[]');
INSERT INTO task (id, lane, priority, payload, created_at_ms, flow)
SELECT n, 1, 0, 'null', 1, 1000 + n % 20 FROM generate_series(1, 4000) AS n;
INSERT INTO ready SELECT flow, 0, id, 0, 0, 1 FROM task;
ANALYZE task; ANALYZE ready
"""


def test_a_read_of_many_flows_touches_only_the_rows_that_it_returns(tmp_path: Path) -> None:
    database = open_store(tmp_path)
    query = postgres_queries()["tasks.queued_after_each"]
    after = ", ".join(f'{{"lane": {1000 + n}, "rank": 0, "id": 2000}}' for n in range(20))
    given = {"after": f"'[{after}]'", "limit": "3", "most_bytes": "100"}
    with open_transaction(database) as tx:
        assert isinstance(tx, PostgresTransaction)
        tx._connection.script(MANY_IN_FLOWS)
        tx._connection.script(b"SET LOCAL plan_cache_mode TO force_generic_plan")
        tx._connection.script(b"PREPARE asked AS " + query.text)
        values = ", ".join(given[name] for name in query.types)
        explain = "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF)"
        text = "\n".join(line for (line,) in seen(tx, f"{explain} EXECUTE asked({values})"))
        tx._connection.script(b"DEALLOCATE asked")
    database.close()

    touched = [float(rows) * int(loops) for rows, loops in ACTUAL.findall(text)]
    assert max(touched) == 60, text
    assert "Rows Removed" not in text
