"""Waiting for work and for results: woken by the commit that brings them."""

import asyncio
from pathlib import Path

import pytest

from rota.core.commands import CancelTasks, LeaveWorker, PauseQueue, RetryTasks, SetWorkerState
from rota.core.ids import TaskId
from rota.core.replies import Granted
from rota.core.tasks.model import Ending, TaskState
from rota.core.workers.model import WorkerState
from rota.core.workflow.commands import StartRun
from rota.core.workflow.states import RunState
from rota.engine.topics import EndOfTask
from rota.errors import StaleIncarnation, WorkerNotFound, WorkflowNotFound
from tests.engine.flows import Flows
from tests.engine.running import Engine, ask, done, running, settle, soon
from tests.engine.virtual import in_virtual_time

# --- waiting for work ---------------------------------------------------------------------------


async def test_a_call_that_waits_is_served_by_the_very_commit_that_brings_work(
    engine: Engine,
) -> None:
    worker = await engine.register()
    call = await engine.parked(worker)
    commits = engine.database.commits

    (task_id,) = await engine.submit()

    granted = await soon(call)
    assert [task.id for task in granted.leases] == [task_id]
    assert engine.database.commits == commits + 1


async def test_a_call_that_need_not_wait_is_answered_at_once(engine: Engine) -> None:
    worker = await engine.register()

    assert await engine.lease(worker) == []
    await engine.submit()
    assert len(await engine.lease(worker, wait_ms=60_000)) == 1


async def test_a_call_whose_worker_leaves_in_the_same_batch_is_told_so(engine: Engine) -> None:
    worker = await engine.register()
    other = await engine.register("w2")
    call = asyncio.ensure_future(engine.coordinator.execute(ask(worker, wait_ms=60_000)))
    left = asyncio.ensure_future(engine.execute(LeaveWorker(worker_id=worker.id)))
    stays = asyncio.ensure_future(engine.coordinator.execute(ask(other, wait_ms=60_000)))

    await soon(left)
    with pytest.raises(WorkerNotFound):
        await soon(call)
    (task_id,) = await engine.submit()
    assert [task.id for task in (await soon(stays)).leases] == [task_id]


async def test_work_that_comes_back_wakes_whoever_waits(engine: Engine) -> None:
    first, second = await engine.register("w1"), await engine.register("w2")
    await engine.submit(max_attempts=9)
    (task,) = await engine.lease(first)

    call = await engine.parked(second)
    await engine.report(first, done(task, ok=False, retry_in_ms=0))
    (again,) = (await soon(call)).leases
    call = await engine.parked(first)
    await engine.execute(LeaveWorker(worker_id="w2"))

    (last,) = (await soon(call)).leases
    assert [task.fence, again.fence, last.fence] == [1, 2, 3]


@pytest.mark.parametrize("how", ["due", "retried now", "revived", "resumed"])
async def test_work_that_may_run_at_last_wakes_whoever_waits(engine: Engine, how: str) -> None:
    worker = await engine.register()
    if how == "resumed":
        await engine.execute(PauseQueue("default", paused=True))
    delay_ms = 50 if how in {"due", "retried now"} else None
    (task_id,) = await engine.submit(delay_ms=delay_ms)
    if how == "revived":
        await engine.execute(CancelTasks((task_id,)))
    call = await engine.parked(worker)

    match how:
        case "due":
            await engine.turn(50)
        case "resumed":
            await engine.execute(PauseQueue("default", paused=False))
        case _:
            await engine.execute(RetryTasks((task_id,)))

    assert [task.id for task in (await soon(call)).leases] == [task_id]


async def test_capacity_that_comes_free_wakes_whoever_waits(engine: Engine) -> None:
    worker = await engine.register(max_concurrent_tasks=1)
    await engine.submit("a", "b")
    (first,) = await engine.lease(worker)
    call = await engine.parked(worker)

    await engine.report(worker, done(first))

    assert [task.lane.name for task in (await soon(call)).leases] == ["b"]


async def test_a_worker_that_takes_nothing_waits_until_it_may(engine: Engine) -> None:
    worker = await engine.register()
    await engine.execute(SetWorkerState(worker_id="w1", state=WorkerState.QUARANTINED))
    call = await engine.parked(worker)
    await engine.submit()
    await settle()
    assert not call.done()

    await engine.execute(SetWorkerState(worker_id="w1", state=WorkerState.ACTIVE))

    assert len((await soon(call)).leases) == 1


async def test_only_those_who_can_serve_it_are_woken(engine: Engine) -> None:
    able = await engine.register("able", capabilities=("gpu",))
    unable = await engine.register("unable")
    calls = [await engine.parked(able), await engine.parked(unable)]

    await engine.submit(requires=("gpu",))

    assert len((await soon(calls[0])).leases) == 1
    assert not calls[1].done()
    calls[1].cancel()


async def test_a_call_that_waits_is_refused_when_its_worker_is_gone(engine: Engine) -> None:
    worker, other = await engine.register("w1"), await engine.register("w2")
    calls = [await engine.parked(worker), await engine.parked(other)]

    await engine.register("w1")
    await engine.execute(LeaveWorker(worker_id="w2"))

    with pytest.raises(StaleIncarnation):
        await soon(calls[0])
    with pytest.raises(WorkerNotFound):
        await soon(calls[1])


async def test_a_call_that_is_given_up_takes_no_work_with_it(engine: Engine) -> None:
    worker, other = await engine.register("w1"), await engine.register("w2")
    call = await engine.parked(worker)

    call.cancel()
    await settle()
    (task_id,) = await engine.submit()

    assert (await engine.task(task_id)).state is TaskState.QUEUED
    assert [task.id for task in await engine.lease(other)] == [task_id]


async def test_leases_of_a_caller_that_went_away_meanwhile_go_back_unused(
    engine: Engine,
) -> None:
    worker = await engine.register()
    (task_id,) = await engine.submit()
    call = asyncio.ensure_future(engine.coordinator.execute(ask(worker, wait_ms=60_000)))
    # The batch is carried out after the call was put and before anybody hears of it.
    await asyncio.sleep(0)
    call.cancel()
    await settle()

    task = await engine.task(task_id)
    assert (task.state, task.attempt) == (TaskState.QUEUED, 0)
    assert [line.ending for line in task.log] == [Ending.RELEASED]


async def test_leases_granted_in_the_moment_of_giving_up_go_back_unused(engine: Engine) -> None:
    worker = await engine.register()
    call = await engine.parked(worker)

    def give_up() -> None:
        call.cancel()

    engine.database.on_commit = give_up

    (task_id,) = await engine.submit()
    engine.database.on_commit = None
    await settle()

    task = await engine.task(task_id)
    assert (task.state, task.attempt, task.fence) == (TaskState.QUEUED, 0, 1)


def test_a_call_waits_as_long_as_it_said_and_no_longer() -> None:
    async def body(engine: Engine) -> tuple[list[object], int]:
        worker = await engine.register()
        before_ms = engine.clock.now_ms()
        leases = await engine.lease(worker, wait_ms=7_300)
        return [*leases], engine.clock.now_ms() - before_ms

    assert in_virtual_time(body) == ([], 7_300)


def test_a_call_given_up_is_no_longer_counted() -> None:
    async def body(engine: Engine) -> list[int]:
        worker = await engine.register()
        call = await engine.parked(worker)
        counts = [engine.coordinator.metrics().waiting_leases]
        call.cancel()
        await engine.submit()
        return [*counts, engine.coordinator.metrics().waiting_leases]

    assert in_virtual_time(body) == [1, 0]


async def test_calls_are_answered_with_nothing_when_the_coordinator_is_about_to_stop(
    engine: Engine,
) -> None:
    worker = await engine.register()
    call = await engine.parked(worker)

    engine.coordinator.release_waiting()

    assert await soon(call) == Granted([])


@pytest.mark.parametrize("inline", [True, False])
async def test_a_stop_answers_calls_that_wait(
    tmp_path: Path,
    inline: bool,  # noqa: FBT001 - a parameter of a test
) -> None:
    async with running(tmp_path / "rota.db", inline=inline) as engine:
        worker = await engine.register()
        (task_id,) = await engine.submit(delay_ms=60_000)
        call = asyncio.ensure_future(engine.coordinator.execute(ask(worker, wait_ms=600_000)))
        end = asyncio.create_task(engine.coordinator.wait_for_end(task_id, wait_ms=600_000))
        await engine.beat(worker)
        await settle()
        await engine.coordinator.stop()

        assert await soon(call) == Granted([])
        await soon(end)


# --- waiting for results ------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["succeeded", "failed", "cancelled"])
async def test_a_wait_for_the_end_is_woken_by_the_commit_that_brings_it(
    engine: Engine, how: str
) -> None:
    worker = await engine.register()
    (task_id,) = await engine.submit(max_attempts=1)
    (task,) = await engine.lease(worker)
    waits = [
        asyncio.create_task(engine.coordinator.wait_for_end(task_id, wait_ms=600_000))
        for _ in range(3)
    ]
    await settle()
    assert not any(wait.done() for wait in waits)

    if how == "cancelled":
        await engine.execute(CancelTasks((task_id,)))
    else:
        await engine.report(worker, done(task, ok=how == "succeeded"))

    await soon(asyncio.gather(*waits))
    assert (await engine.task(task_id)).state == how


async def test_nobody_waits_for_the_end_of_what_has_ended_or_never_was(engine: Engine) -> None:
    (task_id,) = await engine.submit()
    await engine.execute(CancelTasks((task_id,)))

    for known in (task_id, TaskId(1)):
        wait = asyncio.create_task(engine.coordinator.wait_for_end(known, wait_ms=600_000))
        await soon(wait)


def test_a_wait_for_the_end_is_over_when_its_time_is() -> None:
    async def body(engine: Engine) -> int:
        (task_id,) = await engine.submit()
        before_ms = engine.clock.now_ms()
        await engine.coordinator.wait_for_end(task_id, wait_ms=4_200)
        return engine.clock.now_ms() - before_ms

    assert in_virtual_time(body) == 4_200


async def test_a_retry_in_between_does_not_wake_whoever_waits_for_the_end(engine: Engine) -> None:
    worker = await engine.register()
    (task_id,) = await engine.submit()
    (task,) = await engine.lease(worker)
    wait = asyncio.create_task(engine.coordinator.wait_for_end(task_id, wait_ms=600_000))
    await settle()

    await engine.report(worker, done(task, ok=False))
    await settle()

    assert not wait.done()
    wait.cancel()


async def test_nothing_is_left_of_waits_that_are_over(engine: Engine) -> None:
    (task_id,) = await engine.submit()
    waits = [
        asyncio.create_task(engine.coordinator.wait_for_end(task_id, wait_ms=600_000))
        for _ in range(2)
    ]
    await settle()
    waits[0].cancel()
    await settle()
    await engine.execute(CancelTasks((task_id,)))
    await soon(waits[1])

    assert engine.coordinator._notifier.ends.keys == []
    assert not engine.coordinator._waiting_leases


async def test_a_worker_that_fell_silent_gets_nothing_until_it_is_heard_of(engine: Engine) -> None:
    worker = await engine.register(heartbeat_interval_ms=1_000)
    call = await engine.parked(worker)
    engine.clock.turn(2_500)

    (task_id,) = await engine.submit()
    await settle()
    assert not call.done()
    await engine.beat(worker)

    granted = await soon(call)
    assert [task.id for task in granted.leases] == [task_id]


# --- waiting for runs ---------------------------------------------------------------------------

GATE = """
name: gate
initial_node: a
nodes:
  a: {wait_for: {event: go}, output: {output.said: result}}
"""


async def test_a_started_run_has_its_end_from_the_commit_that_ends_it(engine: Engine) -> None:
    flows = Flows(engine)
    await flows.put(GATE)

    with engine.coordinator.start_run(StartRun(workflow="gate", input={})) as started:
        run_id = (await started.reply).record.id
        end = started.end_within(60_000)
        assert end is not None
        await flows.signal(run_id, "go", 7)
        notice = await soon(end)

    assert notice is not None
    assert notice.run is not None
    assert (notice.id, notice.run) == (run_id, await flows.look(run_id))
    assert notice.run.record.output == {"said": 7}


async def test_the_end_of_a_run_is_not_missed_before_its_start_is_seen(engine: Engine) -> None:
    flows = Flows(engine)
    await flows.put(GATE)

    with engine.coordinator.start_run(StartRun(workflow="gate", input={})) as started:
        await settle()
        await flows.steer(started.reply.result().record.id, "cancel")
        end = started.end_within(60_000)
        assert end is not None
        notice = await soon(end)

    assert notice is not None
    assert notice.run is not None
    assert notice.run.record.state is RunState.CANCELLED


async def test_a_run_that_did_not_start_has_no_end(engine: Engine) -> None:
    with engine.coordinator.start_run(StartRun(workflow="none", input={})) as started:
        with pytest.raises(WorkflowNotFound):
            await started.reply

        assert started.end_within(60_000) is None


async def test_a_run_that_one_batch_ends_and_retries_is_not_shown_as_ended(engine: Engine) -> None:
    flows = Flows(engine)
    run_id = await flows.start(
        "name: one\ninitial_node: a\nnodes:\n  a: {task: work, retry: {max_attempts: 1}}\n"
    )
    worker = await engine.register()
    (task,) = await engine.lease(worker)
    commits = engine.database.commits

    with engine.coordinator.subscribe(EndOfTask(TaskId(run_id))) as end:
        await asyncio.gather(
            engine.report(worker, done(task, ok=False)), flows.steer(run_id, "retry")
        )
        notice = await soon(end.within(60_000))

    assert engine.database.commits == commits + 1
    assert notice == (run_id, None)
    assert (await flows.look(run_id)).record.state is RunState.RUNNING
