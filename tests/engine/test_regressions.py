"""Mistakes that the simulation has found. Each is told here by itself, so that it stays away."""

import asyncio
from pathlib import Path

from rota.core.commands import CancelTasks, RetryTasks
from rota.core.tasks.model import TaskError, TaskState
from rota.core.workers import registry
from tests.engine.running import Engine, done, running, soon

LEASE_MS = 3 * 500
UNNOTICED_MS = 2_900  # a pause of the coordinator that it does not take for one


async def test_a_result_for_a_task_that_is_leased_anew_is_stale_and_not_unknown(
    engine: Engine,
) -> None:
    (task_id,) = await engine.submit(timeout_ms=100)
    slow, quick = await engine.register("slow"), await engine.register("quick")
    (first,) = await engine.lease(slow)
    await engine.turn(100)
    await engine.turn(5_000)
    (second,) = await engine.lease(quick)
    assert second.id == task_id

    assert await engine.report(slow, done(first)) == ["stale"]


async def test_a_repeated_failure_is_a_duplicate_also_when_the_task_is_leased_anew(
    engine: Engine,
) -> None:
    await engine.submit()
    one, other = await engine.register("one"), await engine.register("other")
    (task,) = await engine.lease(one)
    failure = done(task, ok=False, error=TaskError(), retry_in_ms=0)
    assert await engine.report(one, failure) == ["accepted"]
    await engine.lease(other)

    assert await engine.report(one, failure) == ["duplicate"]


async def test_a_worker_is_not_told_to_drop_a_task_that_was_cancelled_and_retried(
    engine: Engine,
) -> None:
    (task_id,) = await engine.submit()
    worker = await engine.register()
    await engine.lease(worker)
    await engine.execute(CancelTasks((task_id,)))
    await engine.execute(RetryTasks((task_id,)))
    (again,) = await engine.lease(worker)

    beat = await engine.beat(worker, [task_id])

    assert (beat.cancel, beat.lost) == ((), ())
    assert await engine.report(worker, done(again)) == ["accepted"]


async def test_a_worker_that_still_runs_a_cancelled_and_retried_task_has_lost_it(
    engine: Engine,
) -> None:
    (task_id,) = await engine.submit()
    worker = await engine.register()
    await engine.lease(worker)
    await engine.execute(CancelTasks((task_id,)))
    await engine.execute(RetryTasks((task_id,)))

    beat = await engine.beat(worker, [task_id])

    assert (beat.cancel, beat.lost) == ((), (task_id,))


async def test_a_pause_too_short_to_be_noticed_does_not_cost_a_quick_worker_its_leases(
    engine: Engine,
) -> None:
    worker = await engine.register(heartbeat_interval_ms=500)
    (task_id,) = await engine.submit()
    await engine.lease(worker)
    for _ in range(0, LEASE_MS + 1_000, 500):
        await engine.beat(worker, [task_id])
        await engine.turn(500)

    # Its beats have come, but the sweep is looked at first.
    await engine.turn(UNNOTICED_MS)
    await engine.beat(worker, [task_id])
    await engine.turn(registry.SWEEP_INTERVAL_MS)

    assert (await engine.task(task_id)).state is TaskState.RUNNING


async def test_a_quick_worker_that_stays_silent_is_gone_a_sweep_later(engine: Engine) -> None:
    worker = await engine.register(heartbeat_interval_ms=500)
    (task_id,) = await engine.submit()
    await engine.lease(worker)
    for _ in range(0, LEASE_MS + 1_000, 500):
        await engine.beat(worker, [task_id])
        await engine.turn(500)

    for _ in range(3):
        await engine.turn(registry.SWEEP_INTERVAL_MS)

    assert (await engine.task(task_id)).state is not TaskState.RUNNING
    assert await engine.coordinator.queries.workers.all() == []


async def test_a_hint_at_the_moment_of_stopping_does_not_keep_the_duties_alive(
    tmp_path: Path,
) -> None:
    async with running(tmp_path / "rota.db", duties=True) as engine:
        for _ in range(10):
            await asyncio.sleep(0)  # the duties have run once, and wait
        engine.coordinator.leading.duties.hint(engine.clock.now_ms() - 1)
        await asyncio.sleep(0)

        await soon(asyncio.ensure_future(engine.coordinator.leading.duties.stop()))
