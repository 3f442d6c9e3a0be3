"""The statements of the batches that come most often: they read nothing."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from rota.core.commands import ReturnLeases
from rota.core.tasks.model import NewTask
from rota.store.postgres.transaction import PostgresTransaction
from rota.store.sqlite.database import SqliteTransaction
from tests.engine.flows import Flows
from tests.engine.running import Engine, done

READS = ("rows", "records")
ONE_TASK = """
name: one
initial_node: only
nodes:
  only: {task: work}
"""


@contextmanager
def reads_of() -> Iterator[list[str]]:
    """The queries that read while the context lasts."""
    asked: list[str] = []

    def noting(way: Callable[..., Any]) -> Callable[..., Any]:
        def note(self: Any, *arguments: Any, **parameters: Any) -> Any:
            (query,) = (one for one in arguments if isinstance(one, str))
            asked.append(query)
            return way(self, *arguments, **parameters)

        return note

    originals = {
        (kind, way): getattr(kind, way)
        for kind in (SqliteTransaction, PostgresTransaction)
        for way in READS
    }
    patches = [patch.object(*place, noting(way)) for place, way in originals.items()]
    for one in patches:
        one.start()
    try:
        yield asked
    finally:
        for one in patches:
            one.stop()


async def test_the_usual_batches_read_nothing(engine: Engine) -> None:
    worker = await engine.register()
    with reads_of() as reads:
        await engine.submit("first of its lane")
        await engine.submit()
        tasks = await engine.lease(worker)
        assert await engine.report(worker, *map(done, tasks)) == ["accepted"] * 2
        await engine.beat(worker)
        await engine.beat(worker, [])

    assert reads == []


async def test_many_tasks_and_workers_at_once_read_nothing(engine: Engine) -> None:
    workers = [await engine.register(f"w{number}") for number in range(3)]
    with reads_of() as reads:
        await engine.submit_all([NewTask(name=f"n{number % 3}") for number in range(30)])
        shares = await asyncio.gather(*(engine.lease(one) for one in workers))
        await asyncio.gather(
            *(
                engine.report(one, *map(done, share))
                for one, share in zip(workers, shares, strict=True)
            )
        )

    assert sum(map(len, shares)) == 30
    assert reads == []


async def test_a_task_for_a_waiting_call_reads_nothing(engine: Engine) -> None:
    worker = await engine.register()
    call = await engine.parked(worker)
    with reads_of() as reads:
        await engine.submit()

    assert len((await call).leases) == 1
    assert reads == []


async def test_tasks_that_have_come_back_are_read_together(engine: Engine) -> None:
    worker = await engine.register()
    await engine.submit_all([NewTask(name="work")] * 6)
    leases = tuple((task.id, task.fence) for task in await engine.lease(worker))
    back = ReturnLeases(worker_id=worker.id, incarnation=worker.incarnation, leases=leases)
    await engine.execute(back)
    with reads_of() as reads:
        again = [await engine.lease(worker, 1) for _ in leases]

    assert [(task.id, task.fence) for (task,) in again] == [(one, 2) for one, _ in leases]
    assert reads == ["tasks.queued"]


async def test_a_registration_reads_nothing(engine: Engine) -> None:
    with reads_of() as reads:
        await engine.register()
        await engine.register("w2")

    assert reads == []


async def test_tasks_beside_those_of_runs_read_nothing(engine: Engine) -> None:
    flows = Flows(engine)
    worker = await engine.register(queues=("default",))
    await flows.start(ONE_TASK)
    await engine.submit(queue="other")
    other = await engine.register("w2", queues=("other",))
    with reads_of() as reads:
        (task,) = await engine.lease(other)
        await engine.report(other, done(task))
        (of_run,) = await engine.lease(worker)

    assert of_run.run is not None
    assert reads == []
