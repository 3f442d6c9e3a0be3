"""What a claim costs beside tasks of keys that are full: the same, however many there are."""

import pytest

from rota.core.flows.model import Concurrency
from rota.store.sqlite.database import SqliteDatabase
from tests.engine.limiting import fleet, submit
from tests.engine.running import Engine, done
from tests.store.test_plans import Steps

pytestmark = pytest.mark.only("sqlite")


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


async def test_a_claim_reads_no_task_of_a_full_key(engine: Engine) -> None:
    few = await steps_of_a_claim(engine, blocked_tasks=10, blocked_keys=1)
    many = await steps_of_a_claim(engine, blocked_tasks=500, blocked_keys=1)

    assert many <= 1.2 * few


async def test_a_claim_costs_the_same_however_many_keys_are_full(engine: Engine) -> None:
    few = await steps_of_a_claim(engine, blocked_tasks=2, blocked_keys=2)
    many = await steps_of_a_claim(engine, blocked_tasks=120, blocked_keys=60)

    assert many <= 1.2 * few
