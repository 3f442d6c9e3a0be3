"""What a claim costs: the same, however many keys there are, are full, or are not in memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest

from rota.core.flows.model import Concurrency
from rota.core.tasks.model import NewTask
from rota.store.postgres.transaction import PostgresTransaction
from rota.store.sqlite.database import SqliteDatabase, SqliteTransaction
from tests.engine.limiting import fleet, submit
from tests.engine.running import Engine, done
from tests.store.test_plans import Steps


async def steps_of_a_claim(engine: Engine, *, blocked_tasks: int, blocked_keys: int) -> int:
    """The steps of SQLite's machine for a claim of ten tasks, beside so many that are blocked."""
    worker = await fleet(engine)
    for number in range(blocked_keys):
        held = Concurrency(key=f"full:{number}")
        await submit(engine, 1 + blocked_tasks // blocked_keys, concurrency=held, priority=5)
    await engine.lease(worker, blocked_keys)
    assert await engine.lease(worker) == []
    await submit(engine, 20, concurrency=Concurrency(key="free", limit=100))
    await engine.report(worker, *[done(task) for task in await engine.lease(worker, 10)])
    database = engine.database._inner
    assert isinstance(database, SqliteDatabase)
    with Steps(database) as steps:
        leased = await engine.lease(worker, 10)
    assert len(leased) == 10
    await engine.report(worker, *[done(task) for task in leased])
    return steps.count


@pytest.mark.only("sqlite")
async def test_a_claim_reads_no_task_of_a_full_key(engine: Engine) -> None:
    few = await steps_of_a_claim(engine, blocked_tasks=10, blocked_keys=1)
    many = await steps_of_a_claim(engine, blocked_tasks=500, blocked_keys=1)

    assert many <= 1.2 * few


@pytest.mark.only("sqlite")
async def test_a_claim_costs_the_same_however_many_keys_are_full(engine: Engine) -> None:
    few = await steps_of_a_claim(engine, blocked_tasks=2, blocked_keys=2)
    many = await steps_of_a_claim(engine, blocked_tasks=120, blocked_keys=60)

    assert many <= 1.2 * few


# --- flows whose next tasks are not in memory -----------------------------------------------------

CLAIMED = 20


@contextmanager
def sizes_of_reads() -> Iterator[list[int]]:
    """The rows of each statement that reads tasks while the context lasts."""
    sizes: list[int] = []

    def noting(kind: Any) -> Any:
        rows = kind.rows

        def note(self: Any, query: str, /, **parameters: Any) -> Any:
            found = rows(self, query, **parameters)
            if query.startswith(("tasks.", "flows.")):
                sizes.append(len(found))
            return found

        return patch.object(kind, "rows", note)

    with noting(SqliteTransaction), noting(PostgresTransaction):
        yield sizes


async def start_over(engine: Engine) -> None:
    """Have the coordinator read its working set again: no window has a task then."""
    engine.coordinator.leading.pipeline._held._is_certain = False
    await engine.turn(1)
    flows = engine.coordinator.leading.pipeline._held.flows
    assert flows.open
    assert flows.windows.place_count == 0


def keyed(flows: int, each: int) -> list[NewTask]:
    return [
        NewTask(name="work", concurrency=Concurrency(key=f"k{flow}", limit=2))
        for _ in range(each)
        for flow in range(flows)
    ]


def tenants(count: int, each: int) -> list[NewTask]:
    return [NewTask(name="work", fair_key=f"t{number % count}") for number in range(count * each)]


@pytest.mark.parametrize("tasks", [keyed(150, 4), tenants(150, 4)], ids=["keys", "tenants"])
async def test_one_statement_reads_the_tasks_of_all_dry_flows_that_a_claim_meets(
    engine: Engine, tasks: list[NewTask]
) -> None:
    worker = await fleet(engine)
    ids = await engine.submit_all(tasks)
    await start_over(engine)

    with sizes_of_reads() as sizes:
        leased = await engine.lease(worker, CLAIMED)

    assert len({one.flow for one in leased}) == CLAIMED
    assert {one.id for one in leased} <= {*ids[:150]}
    assert len(sizes) == 1
    assert max(sizes) <= 512


async def test_a_claim_over_twice_as_many_dry_flows_makes_no_more_statements(
    engine: Engine,
) -> None:
    worker, counts = await fleet(engine), []
    await engine.submit_all(keyed(300, 3))
    for claimed in (20, 40, 80):
        await start_over(engine)
        with sizes_of_reads() as sizes:
            leased = await engine.lease(worker, claimed)
        assert len(leased) == claimed
        assert max(sizes) <= max(512, 2 * claimed)
        counts.append(len(sizes))

    assert max(counts) == min(counts)


async def test_dry_flows_that_a_full_limit_refuses_are_read_in_few_statements(
    engine: Engine,
) -> None:
    worker = await fleet(engine)
    full = Concurrency(key="full")
    await engine.submit_all(
        [
            NewTask(name="work", priority=5, concurrency=[full, Concurrency(key=f"k{number}")])
            for number in range(200)
        ]
    )
    await engine.lease(worker, 1)
    (free,) = await submit(engine, 1, concurrency=Concurrency(key="free"))
    await start_over(engine)

    with sizes_of_reads() as sizes:
        leased = await engine.lease(worker, 1)

    assert [one.id for one in leased] == [free]
    assert len(sizes) <= 9  # each reads twice as many flows as the one before


@pytest.mark.only("sqlite")
async def test_a_claim_over_dry_flows_costs_the_same_however_long_they_are(
    engine: Engine,
) -> None:
    worker, costs = await fleet(engine), []
    for each in (30, 120):
        await engine.submit_all(keyed(40, each))
        await start_over(engine)
        database = engine.database._inner
        assert isinstance(database, SqliteDatabase)
        with Steps(database) as steps:
            leased = await engine.lease(worker, CLAIMED)
        assert len(leased) == CLAIMED
        await engine.report(worker, *map(done, leased))
        costs.append(steps.count)

    assert costs[1] <= 1.1 * costs[0]
