"""A lease call that says what its worker runs gets again what was lost on its way."""

import asyncio
from collections.abc import Sequence

from rota.core.commands import LeaseWork, ReturnLeases
from rota.core.ids import TaskId
from rota.core.tasks.model import TaskRecord, TaskState
from rota.core.workers.model import WorkerRecord
from tests.engine.flows import Flows
from tests.engine.running import Engine, done, settle

ONE_TASK = """
name: one
initial_node: only
nodes:
  only: {task: work}
"""


def call(
    worker: WorkerRecord, running: Sequence[TaskId] = (), *, most: int = 100, wait_ms: int = 0
) -> LeaseWork:
    return LeaseWork(
        worker_id=worker.id,
        incarnation=worker.incarnation,
        most=most,
        wait_ms=wait_ms,
        running=tuple(running),
    )


async def ask(engine: Engine, lease_call: LeaseWork) -> list[TaskRecord]:
    return (await engine.execute(lease_call)).leases


async def test_a_lost_answer_is_given_again_under_the_same_fence(engine: Engine) -> None:
    worker = await engine.register(max_concurrent_tasks=2)
    await engine.submit("work", "work", "work", timeout_ms=60_000)
    lost = await ask(engine, call(worker))
    await engine.turn(1_000)

    again = await ask(engine, call(worker))

    assert len(lost) == 2
    assert [(one.id, one.fence, one.attempt, one.deadline_ms) for one in again] == [
        (one.id, one.fence, one.attempt, one.deadline_ms) for one in lost
    ]
    assert [one.payload for one in again] == [one.payload for one in lost]
    assert await engine.report(worker, *map(done, again)) == ["accepted", "accepted"]


async def test_a_worker_that_lists_all_it_runs_gets_only_new_tasks(engine: Engine) -> None:
    worker = await engine.register()
    first, second = await engine.submit("work", "work")
    await ask(engine, call(worker, most=1))

    leases = await ask(engine, call(worker, [first]))

    assert [one.id for one in leases] == [second]


async def test_lost_and_new_tasks_together_are_no_more_than_asked_for(engine: Engine) -> None:
    worker = await engine.register()
    ids = await engine.submit("work", "work", "work", "work")
    await ask(engine, call(worker, most=2))

    leases = await ask(engine, call(worker, [ids[1]], most=2))
    full = await ask(engine, call(worker, [], most=1))

    assert [one.id for one in leases] == [ids[0], ids[2]]
    assert [one.id for one in full] == [ids[0]]


async def test_a_worker_that_reports_nothing_gets_nothing_again(engine: Engine) -> None:
    worker = await engine.register()
    await engine.submit()
    await engine.lease(worker)

    assert await engine.lease(worker) == []


async def test_a_lost_task_is_no_new_start(engine: Engine) -> None:
    worker = await engine.register()
    await engine.submit()
    await ask(engine, call(worker))
    before = await engine.coordinator.queries.events.bounds()

    await ask(engine, call(worker))

    assert await engine.coordinator.queries.events.bounds() == before


async def test_leases_granted_in_the_same_batch_are_not_given_twice(engine: Engine) -> None:
    worker = await engine.register()
    await engine.submit("work", "work", "work")

    shares = await asyncio.gather(*(ask(engine, call(worker, most=most)) for most in (1, 1, 5)))

    given = [one.id for share in shares for one in share]
    assert len(given) == len(set(given)) == 3


async def test_of_calls_in_one_batch_the_newest_gets_what_was_lost(engine: Engine) -> None:
    worker = await engine.register()
    (lost,) = await engine.submit()
    await ask(engine, call(worker))

    older, newer = await asyncio.gather(ask(engine, call(worker)), ask(engine, call(worker)))

    assert older == []
    assert [one.id for one in newer] == [lost]


async def test_a_call_that_waits_gets_nothing_again_while_it_waits(engine: Engine) -> None:
    worker = await engine.register()
    waiting = asyncio.ensure_future(engine.execute(call(worker, wait_ms=600_000)))
    await settle()
    (first,) = await engine.submit()
    await engine.submit()

    assert [one.id for one in (await waiting).leases] == [first]


async def test_a_lease_that_was_given_again_is_not_taken_back_for_its_first_answer(
    engine: Engine,
) -> None:
    worker = await engine.register()
    (lost,) = await engine.submit()
    (lease,) = await ask(engine, call(worker))
    (again,) = await ask(engine, call(worker))

    returned = ReturnLeases(
        worker_id=worker.id, incarnation=worker.incarnation, leases=((lost, lease.fence),)
    )
    assert (await engine.execute(returned)).count == 0

    assert (await engine.task(lost)).state is TaskState.RUNNING
    assert await engine.report(worker, done(again)) == ["accepted"]
    assert engine.coordinator.leading.pipeline._held.leases.repeated == set()


async def test_a_task_of_a_run_is_given_again_with_its_run(engine: Engine) -> None:
    worker = await engine.register()
    await Flows(engine).start(ONE_TASK)
    (lease,) = await ask(engine, call(worker))

    (again,) = await ask(engine, call(worker))

    assert lease.run is not None
    assert (again.run, again.token) == (lease.run, lease.token)
