"""Does every query that is run often find its rows by an index, however much there is?"""

import re
from collections.abc import Iterator
from typing import Self

import pytest

from rota.store.database import load_queries, parameter_names
from rota.store.sqlite.database import SqliteDatabase
from rota.store.tasks.row_types import FIRST_PLACE
from tests.store.opened import NOW_MS, Opened, requeue

pytestmark = pytest.mark.only("sqlite")

QUERIES = load_queries()
GROWING = {
    "task",
    "ready",
    "scheduled",
    "lease",
    "start_limit",
    "history",
    "task_key",
    "task_label",
    "run",
    "run_key",
    "journal",
    "run_task",
    "run_timer",
    "artifact",
    "event",
    "memory",
    "lock",
    "lock_waiter",
    "session_task",
}
# These look at everything on purpose: for a person or a page of figures, beside the writer. Values
# kept by key, which are bounded, are counted once a start, and where others write once a minute.
# Artifacts are counted once a minute while some are attached, and more often where all is taken.
LOOKS_AT_ALL = {
    "artifacts.usage",
    "dashboard.acknowledged_failures",
    "dashboard.failures",
    "dashboard.runs_by_state",
    "dashboard.tasks_by_state",
    "flows.running",
    "kv.usage",
    "runs.leased_tasks",
    "tasks.all_leases",
    "unique.leased_holders",
    "queues.queued_by_lane",
    "queues.running_by_lane",
    "queues.scheduled_by_lane",
    "queues.unused_lanes",
    "scaling.running_by_lane",
    "tasks.count_running",
    "tasks.count_scheduled",
}
# These stop at the first row, whichever that is.
LOOKS_FOR_ANY = {
    "artifacts.has_staged",
    "replicas.has_ready",
    "replicas.facts",
    "runs.has_tasks",
    "sessions.has_tasks",
}
# Sorted for a page of a list; what is claimed or moved must come in order by itself.
SORTED = {
    "dashboard.run_work",
    "queues.queued_by_lane",
    "queues.running_by_lane",
    "queues.scheduled_by_lane",
    "queues.unused_lanes",
    "scaling.running_by_lane",
}


@pytest.fixture(scope="module")
def planner() -> Iterator[SqliteDatabase]:
    """Any store will do: plans are made from the shape alone."""
    database = SqliteDatabase(":memory:")
    yield database
    database.close()


def plan(database: SqliteDatabase, query: str) -> list[str]:
    sql = QUERIES[query]
    unbound = dict.fromkeys(parameter_names(sql))
    rows = database._writer.execute(f"EXPLAIN QUERY PLAN {sql}", unbound).fetchall()
    return [str(row[3]) for row in rows]


def table_of(name: str, sql: str) -> str:
    """The table behind an alias."""
    found = re.search(rf"\b(\w+) AS {name}\b", sql)
    return found.group(1) if found else name


@pytest.mark.parametrize("query", sorted(QUERIES.keys() - LOOKS_AT_ALL - LOOKS_FOR_ANY))
def test_no_query_walks_through_a_table_that_grows(planner: SqliteDatabase, query: str) -> None:
    scanned = {
        table_of(line.split()[1], QUERIES[query])
        for line in plan(planner, query)
        if line.startswith("SCAN ")
    }

    assert scanned & GROWING == set()


@pytest.mark.parametrize("query", sorted(QUERIES.keys() - SORTED))
def test_rows_come_in_their_order_without_sorting(planner: SqliteDatabase, query: str) -> None:
    assert not any("TEMP B-TREE" in line for line in plan(planner, query))


@pytest.mark.parametrize("query", sorted(LOOKS_AT_ALL))
def test_the_exceptions_are_still_ones(planner: SqliteDatabase, query: str) -> None:
    assert any(line.startswith("SCAN ") for line in plan(planner, query))


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("tasks.queued_after", "SEARCH r USING PRIMARY KEY (lane=? AND (rank,id)>(?,?))"),
        ("tasks.queued_after_each", "SEARCH n USING PRIMARY KEY (lane=? AND (rank,id)>(?,?))"),
        ("tasks.queued_after_each", "SEARCH r USING PRIMARY KEY (lane=? AND rank=? AND id=?)"),
        ("tasks.dequeue", "SEARCH ready USING PRIMARY KEY (lane=? AND rank=? AND id=?)"),
        ("tasks.dequeue_one", "SEARCH ready USING PRIMARY KEY (lane=? AND rank=? AND id=?)"),
        ("tasks.due", "SEARCH scheduled USING PRIMARY KEY (due_at_ms<?)"),
        *(
            (f"tasks.{state}_ids", f"USING COVERING INDEX history_{state} (lane=? AND id<?)")
            for state in ("succeeded", "failed", "cancelled")
        ),
        *(
            (f"tasks.count_{state}", f"USING COVERING INDEX history_{state} (lane=?)")
            for state in ("succeeded", "failed", "cancelled")
        ),
        ("tasks.queued_ids", "SEARCH ready USING PRIMARY KEY (lane=? AND rank=? AND id<?)"),
        ("dashboard.failures", "SCAN history USING COVERING INDEX history_unacknowledged"),
        (
            "dashboard.newest_failed",
            "USING COVERING INDEX history_unacknowledged (cause=? AND lane=?)",
        ),
        ("dashboard.without_cause", "SEARCH history USING INDEX history_unacknowledged (cause=?)"),
        (
            "waits.page",
            "USING INDEX run_wait_by_kind (kind=? AND (since_ms,run,number)>(?,?,?))",
        ),
        ("waits.counts", "SCAN run_wait USING COVERING INDEX run_wait_by_kind"),
        ("waits.children", "USING INDEX run_open_by_parent (parent_run=?)"),
        ("waits.unrecorded", "USING INDEX run_without_waits (id>?)"),
        ("tasks.count_ahead", "SEARCH ready USING PRIMARY KEY (lane=? AND (rank,id)<(?,?))"),
        ("kv.keys", "SEARCH memory USING INDEX sqlite_autoindex_memory_1 (key>? AND key<?)"),
        ("kv.usage", "SCAN memory USING COVERING INDEX memory_by_owner"),
        ("artifacts.usage", "SCAN artifact USING COVERING INDEX artifact_by_owner"),
        ("kv.expired", "SEARCH memory USING INDEX memory_by_expiry (expires_at_ms<?)"),
        ("locks.expired", "SEARCH lock USING COVERING INDEX lock_by_expiry (expires_at_ms<?)"),
        ("locks.page", "SEARCH l USING PRIMARY KEY (name>?)"),
        ("workers.open_qualities", "SCAN quality USING INDEX quality_open"),
    ],
)
def test_hot_queries_use_the_index_that_was_made_for_them(
    planner: SqliteDatabase, query: str, expected: str
) -> None:
    assert any(line.endswith(expected) for line in plan(planner, query))


# --- cost -----------------------------------------------------------------------------------------


class Steps:
    """Counts the steps of SQLite's machine: the same on every computer, at every hour."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._connection = database._writer
        self.count = 0

    def __enter__(self) -> Self:
        self._connection.set_progress_handler(self._step, 1)
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.set_progress_handler(None)

    def _step(self) -> bool:
        self.count += 1
        return False


def fill(store: Opened, first: int, last: int) -> None:
    """Queue so many tasks at once, over ten lanes and three priorities."""
    connection = store.tx._connection  # type: ignore[attr-defined]  # past the store, to be quick
    for number in range(10):
        store.lanes.number(store.tx, "default", f"n{number}", ())
    connection.executemany(
        "INSERT INTO task (id, lane, priority, payload, created_at_ms) VALUES (?, ?, ?, 'null', 1)",
        ((number, 1 + number % 10, number % 3) for number in range(first, last)),
    )
    connection.execute(
        "INSERT INTO ready SELECT lane, -priority, id, 0, 0, 1 FROM task WHERE id >= ?", (first,)
    )


def claim_and_finish(store: Opened) -> int:
    """Claim ten tasks over all lanes, requeue one, finish the rest; the answer is one's id."""
    head = [
        store.tasks.queued_after(lane, FIRST_PLACE, limit=1, most_bytes=10)[0][0]
        for lane in store.tasks.open_lanes()
    ]
    leases = [store.lease(task_id) for _, task_id in head]
    store.tasks.requeue([requeue(leases[0])], now_ms=NOW_MS)
    for lease in leases[1:]:
        store.finish(lease.id)
    return leases[-1].id


def test_a_claim_costs_the_same_however_many_wait(store: Opened, database: SqliteDatabase) -> None:
    costs = []
    for first, last in ((1, 1_000), (1_000, 20_000)):
        fill(store, first, last)
        claim_and_finish(store)  # compiles the statements
        with Steps(database) as steps:
            claim_and_finish(store)
        costs.append(steps.count)

    assert costs[1] <= 1.1 * costs[0]


def test_a_position_near_the_front_is_cheap_however_many_wait_behind(
    store: Opened, database: SqliteDatabase
) -> None:
    costs = []
    for first, last in ((1, 1_000), (1_000, 20_000)):
        fill(store, first, last)
        ((_, task),) = store.tasks.queued_after(1, FIRST_PLACE, limit=1, most_bytes=10)
        assert task is not None
        with Steps(database) as steps:
            store.listing.count_ahead(task, limit=1_000)
        costs.append(steps.count)

    assert costs[1] <= 1.1 * costs[0]
