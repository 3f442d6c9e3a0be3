import asyncio
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from rota.core.commands import (
    CancelTasks,
    ExpireAttempts,
    RetryTasks,
    ReturnLeases,
    SweepWorkers,
)
from rota.core.flows.model import Rate
from rota.core.ids import TaskId
from rota.core.locks import AcquireLock
from rota.core.shards.commands import SweepServices
from rota.core.tasks import operations
from rota.core.tasks.model import Ending, NewTask, TaskState
from rota.core.workers import registry
from rota.engine.duties import DUTIES
from rota.engine.queries.kv import LockQueries
from rota.engine.queries.tasks import TaskQueries
from rota.engine.scheduler import DutyScheduler
from tests.conftest import TurnedClock
from tests.engine.running import Engine, done, running
from tests.engine.virtual import in_virtual_time, let_pass

LEASE_MS = 15_000  # of a worker with the default interval
HOUR_MS = 3_600_000


async def sweep_for(engine: Engine, duration_ms: int) -> None:
    """Let so much time pass, in steps that look like an ordinary life."""
    for _ in range(0, duration_ms, registry.SWEEP_INTERVAL_MS):
        await engine.turn(registry.SWEEP_INTERVAL_MS)


# --- moments ------------------------------------------------------------------------------------


async def test_a_delayed_task_is_queued_at_its_moment_and_not_before(engine: Engine) -> None:
    (task_id,) = await engine.submit(delay_ms=500)

    await engine.turn(499)
    assert (await engine.task(task_id)).state is TaskState.SCHEDULED
    await engine.turn(1)
    assert (await engine.task(task_id)).state is TaskState.QUEUED


async def test_more_due_tasks_than_one_step_takes_are_all_queued(engine: Engine) -> None:
    await engine.submit_all([NewTask(name="work", delay_ms=5)] * 4_500)

    await engine.turn(5)

    (figures,) = await engine.coordinator.queries.queues.all()
    assert (figures.depth, figures.scheduled) == (4_500, 0)


@pytest.mark.parametrize("delay_ms", [7, 1_530, 61_003])
def test_a_waiting_worker_gets_a_delayed_task_in_the_millisecond_it_is_due(delay_ms: int) -> None:
    async def body(engine: Engine) -> int:
        worker = await engine.register(heartbeat_interval_ms=HOUR_MS)
        before_ms = engine.clock.now_ms()
        await engine.submit(delay_ms=delay_ms)
        (task,) = await engine.lease(worker, wait_ms=HOUR_MS)
        assert task.started_at_ms is not None
        return task.started_at_ms - before_ms

    assert delay_ms <= in_virtual_time(body) <= delay_ms + 1


def test_a_nearer_moment_that_comes_up_later_is_kept_too() -> None:
    async def body(engine: Engine) -> list[int]:
        worker = await engine.register(heartbeat_interval_ms=HOUR_MS)
        before_ms = engine.clock.now_ms()
        starts = []
        await engine.submit(delay_ms=700)
        await let_pass(100)
        await engine.submit(delay_ms=50)
        for _ in range(2):
            (task,) = await engine.lease(worker, wait_ms=HOUR_MS)
            assert task.started_at_ms is not None
            starts.append(task.started_at_ms - before_ms)
        return starts

    first_ms, second_ms = in_virtual_time(body)

    assert 150 <= first_ms <= 151
    assert 700 <= second_ms <= 701


def test_an_attempt_ends_in_the_millisecond_its_time_is_up() -> None:
    async def body(engine: Engine) -> list[int]:
        worker = await engine.register(heartbeat_interval_ms=HOUR_MS)
        before_ms = engine.clock.now_ms()
        (task_id,) = await engine.submit(timeout_ms=2_345, max_attempts=1)
        await engine.lease(worker)
        await engine.coordinator.wait_for_end(task_id, wait_ms=HOUR_MS)
        task = await engine.task(task_id)
        assert task.error is not None
        assert task.error.type == "timeout"
        return [engine.clock.now_ms() - before_ms]

    (ended_ms,) = in_virtual_time(body)
    assert 2_345 <= ended_ms <= 2_346


@pytest.mark.parametrize("per_ms", [1_800, 5_800])
def test_a_rate_opens_in_its_millisecond_while_nothing_else_is_due(per_ms: int) -> None:
    async def body(engine: Engine) -> int:
        worker = await engine.register(heartbeat_interval_ms=HOUR_MS)
        # From here on the duties of moments and the sweeps no longer look at the same time.
        await engine.submit(delay_ms=300)
        await let_pass(10)
        rate = Rate(key="r", limit=1, per_ms=per_ms)
        await engine.submit_all([NewTask(name="rated", rate=rate)] * 2)
        before_ms = engine.clock.now_ms()
        for _ in range(2):
            await engine.lease(worker, wait_ms=HOUR_MS)
        (task,) = await engine.lease(worker, wait_ms=HOUR_MS)
        assert task.started_at_ms is not None
        return task.started_at_ms - before_ms

    assert per_ms <= in_virtual_time(body) <= per_ms + 1


async def test_an_attempt_past_its_deadline_is_tried_again_and_names_its_worker(
    engine: Engine,
) -> None:
    worker = await engine.register()
    (task_id,) = await engine.submit(timeout_ms=100)
    (first,) = await engine.lease(worker)

    await engine.turn(100)
    task = await engine.task(task_id)
    await engine.turn(1_000)
    (second,) = await engine.lease(worker)

    assert task.state is TaskState.SCHEDULED
    assert [(line.ending, line.worker_id) for line in task.log] == [(Ending.TIMED_OUT, "w1")]
    assert (second.attempt, second.fence) == (2, 2)
    assert (await engine.beat(worker, [task_id, TaskId(5)])).lost == (5,)
    assert await engine.report(worker, done(first), done(second)) == ["stale", "accepted"]


async def test_a_task_that_is_not_started_in_time_has_failed(engine: Engine) -> None:
    worker = await engine.register(tasks=("work",))
    late, started = await engine.submit("other", "work", start_within_ms=100)
    (task,) = await engine.lease(worker)

    await engine.turn(100)

    failed = await engine.task(late)
    assert failed.state is TaskState.FAILED
    assert failed.error is not None
    assert failed.error.type == "start_timeout"
    assert (await engine.task(started)).state is TaskState.RUNNING
    assert await engine.report(worker, done(task)) == ["accepted"]


@pytest.mark.parametrize("is_asked_between", [True, False])
async def test_a_retried_task_has_its_whole_time_to_start_again(
    engine: Engine,
    is_asked_between: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    (task_id,) = await engine.submit(start_within_ms=100)
    await engine.execute(CancelTasks((task_id,)))
    if is_asked_between:
        await engine.turn(200)
    else:
        engine.clock.turn(200)
    await engine.execute(RetryTasks((task_id,)))

    await engine.turn(99)
    waiting = await engine.task(task_id)
    await engine.turn(1)
    failed = await engine.task(task_id)

    assert (waiting.state, failed.state) == (TaskState.QUEUED, TaskState.FAILED)
    assert failed.error is not None
    assert failed.error.type == "start_timeout"


@pytest.mark.parametrize("is_over_first", [True, False])
async def test_what_was_leased_and_given_back_unstarted_has_to_start_in_time_all_the_same(
    engine: Engine,
    is_over_first: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    worker = await engine.register()
    (task_id,) = await engine.submit(start_within_ms=100)
    (task,) = await engine.lease(worker)
    back = ReturnLeases(
        worker_id=worker.id, incarnation=worker.incarnation, leases=((task_id, task.fence),)
    )

    if is_over_first:
        await engine.turn(100)
    await engine.execute(back)
    await engine.turn(100)

    failed = await engine.task(task_id)
    assert (failed.state, failed.error and failed.error.type) == (
        TaskState.FAILED,
        "start_timeout",
    )


async def test_more_overdue_attempts_than_one_step_takes_all_end(engine: Engine) -> None:
    worker = await engine.register(max_concurrent_tasks=2_000)
    await engine.submit_all([NewTask(name="work", timeout_ms=5, max_attempts=1)] * 1_200)
    assert len(await engine.lease(worker, 2_000)) == 1_200

    await engine.turn(5)

    figures = engine.coordinator.metrics()
    assert figures.finished["default", "failed"] == 1_200


# --- the sweep ----------------------------------------------------------------------------------


async def test_a_silent_worker_is_gone_after_its_lease_and_its_work_moves_on(
    engine: Engine,
) -> None:
    silent = await engine.register("silent")
    alive = await engine.register("alive")
    (task_id,) = await engine.submit()
    await engine.lease(silent)

    for _ in range(16):
        await engine.turn(registry.SWEEP_INTERVAL_MS)
        await engine.beat(alive)

    assert [one.worker.id for one in await engine.coordinator.queries.workers.all()] == ["alive"]
    (task,) = await engine.lease(alive)
    assert (task.id, task.attempt, task.fence) == (task_id, 2, 2)
    assert engine.coordinator.metrics().evicted_workers == 1
    assert [(line["event"], line["worker_id"]) for line in engine.log] == [
        ("worker_registered", "silent"),
        ("worker_registered", "alive"),
        ("worker_removed", "silent"),
    ]
    assert engine.log[-1]["reason"] == "unhealthy"


async def test_a_worker_that_only_reports_is_alive(engine: Engine) -> None:
    worker = await engine.register()
    await engine.submit_all([NewTask(name="work")] * 10)
    tasks = await engine.lease(worker)

    for task in tasks:
        await sweep_for(engine, 10_000)
        assert await engine.report(worker, done(task)) == ["accepted"]


async def test_a_restart_gives_every_worker_a_whole_lease_to_be_heard(
    tmp_path: Path, clock: TurnedClock
) -> None:
    async with running(tmp_path / "rota.db", clock) as engine:
        worker = await engine.register()
        await engine.submit()
        (task,) = await engine.lease(worker)
    clock.turn(HOUR_MS)
    async with running(tmp_path / "rota.db", clock) as engine:
        await engine.coordinator.tick()
        await sweep_for(engine, LEASE_MS - 1_000)

        assert await engine.report(worker, done(task)) == ["accepted"]


async def test_a_pause_of_the_coordinator_is_no_silence_of_its_workers(engine: Engine) -> None:
    worker = await engine.register()
    await engine.submit()
    (task,) = await engine.lease(worker)
    await sweep_for(engine, 20_000 - 10_000)
    await engine.beat(worker)

    await engine.turn(HOUR_MS)

    assert await engine.report(worker, done(task)) == ["accepted"]


async def test_a_clock_set_back_kills_nobody_and_keeps_no_dead_worker_for_long(
    engine: Engine,
) -> None:
    alive, dead = await engine.register("alive"), await engine.register("dead")
    await sweep_for(engine, 3_000)
    await engine.turn(-HOUR_MS)

    for _ in range(20):
        await engine.turn(registry.SWEEP_INTERVAL_MS)
        await engine.beat(alive)

    assert [one.worker.id for one in await engine.coordinator.queries.workers.all()] == ["alive"]
    assert dead.id == "dead"


async def test_leases_go_with_their_worker_however_short_its_patience_was_set(
    tmp_path: Path, clock: TurnedClock
) -> None:
    path = tmp_path / "rota.db"
    async with running(path, clock, degraded_after=0.2, unhealthy_after=0.5) as engine:
        worker = await engine.register(heartbeat_interval_ms=60_000)
        (task_id,) = await engine.submit()
        await engine.lease(worker)

        await sweep_for(engine, 32_000)

        assert await engine.coordinator.queries.workers.all() == []
        assert (await engine.task(task_id)).state is TaskState.QUEUED


# --- forgetting ---------------------------------------------------------------------------------


async def test_history_is_forgotten_when_its_time_is_over_and_not_before(
    tmp_path: Path, clock: TurnedClock
) -> None:
    async with running(tmp_path / "rota.db", clock, history_keep_ms=1_000) as engine:
        (task_id,) = await engine.submit(key="k")
        await engine.execute(CancelTasks((task_id,)))

        await engine.turn(1_000)
        assert (await engine.task(task_id)).state is TaskState.CANCELLED
        await engine.turn(1)
        assert await engine.coordinator.queries.tasks.by_id(task_id) is None
        assert await engine.submit(key="k") != [task_id]
        assert engine.coordinator.metrics().forgotten == 1


async def test_much_history_is_forgotten_in_several_steps(
    tmp_path: Path, clock: TurnedClock
) -> None:
    count = 2 * operations.PRUNED_PER_STEP + 10
    async with running(tmp_path / "rota.db", clock, history_keep_ms=0) as engine:
        ids = await engine.submit_all([NewTask(name="work")] * count)
        await engine.execute(CancelTasks(tuple(ids)))
        clock.turn(1)
        commits = engine.database.commits

        await engine.coordinator.tick()

        assert engine.coordinator.metrics().forgotten == count
        always = [one for one in engine.coordinator.leading.duties.duties if one.is_due is None]
        beats = int(engine.coordinator.is_shared)
        assert engine.database.commits == commits + len(always) + 2 + beats


# --- trouble ------------------------------------------------------------------------------------


def test_duties_go_on_after_the_store_was_away_and_do_not_hammer_it_meanwhile() -> None:
    async def body(engine: Engine) -> tuple[int, TaskState]:
        (task_id,) = await engine.submit(delay_ms=100)
        engine.database.write_problem = OSError("the disk is away")
        tries = engine.database.tries
        await let_pass(10_000)
        tries = engine.database.tries - tries
        engine.database.write_problem = None
        await let_pass(2_000)
        return tries, (await engine.task(task_id)).state

    tries, state = in_virtual_time(body)

    assert state is TaskState.QUEUED
    assert tries <= 80


@pytest.mark.parametrize("problem", ["read_problem", "write_problem"])
def test_a_store_that_is_away_is_not_hammered_for_a_lock_that_is_past_its_expiry(
    problem: str,
) -> None:
    async def body(engine: Engine) -> int:
        await engine.execute(AcquireLock(name="l", owner="ann", ttl_ms=3_000))
        await let_pass(1_500)
        setattr(engine.database, problem, OSError("the disk is away"))
        tries = engine.database.tries
        await let_pass(10_000)
        tries = engine.database.tries - tries
        setattr(engine.database, problem, None)
        await let_pass(1_001)
        assert (await engine.coordinator.queries.locks.status("l")).owner is None
        assert not await engine.coordinator.queries.locks.is_sweep_due()
        return tries

    assert in_virtual_time(body) <= 80


def test_services_are_swept_though_the_read_about_locks_takes_long() -> None:
    async def body(engine: Engine) -> int:
        async def slowly(_: LockQueries) -> bool:
            await asyncio.sleep(HOUR_MS / 1000)
            return False

        with patch.object(LockQueries, "is_sweep_due", slowly):
            await let_pass(20_000)
            return engine.clock.now_ms() - engine.coordinator.metrics().duty_runs_ms["shards"]

    assert in_virtual_time(body) <= 2_000


def test_the_watch_over_moments_survives_a_read_that_fails() -> None:
    async def body(engine: Engine) -> TaskState:
        engine.database.read_problem = OSError("the disk is away")
        await let_pass(5_000)
        engine.database.read_problem = None
        (task_id,) = await engine.submit(delay_ms=100)
        await let_pass(2_000)
        return (await engine.task(task_id)).state

    assert in_virtual_time(body) is TaskState.QUEUED


def test_a_clock_set_back_does_not_put_the_duties_to_sleep() -> None:
    async def body(engine: Engine) -> int:
        await let_pass(500)
        engine.clock.turn(-HOUR_MS)
        # A moment far ahead, and still before the end of the pause as it was meant to be.
        await engine.submit(delay_ms=HOUR_MS // 2)
        await let_pass(5_000)
        return engine.clock.now_ms() - engine.coordinator.metrics().duty_runs_ms["due_tasks"]

    assert 0 <= in_virtual_time(body) <= 1_000


def test_duties_that_find_nothing_due_do_not_hold_up_the_writer() -> None:
    async def body(engine: Engine) -> set[type[Any]]:
        await engine.submit(delay_ms=HOUR_MS)
        await let_pass(500)  # at the start, all duties run
        duties, asked = engine.coordinator.leading.duties, []
        execute = duties._execute

        def note(command: Any) -> Any:
            asked.append(type(command))
            return execute(command)

        duties._execute = note
        await let_pass(9_000)
        return {*asked}

    # What these need is in memory.
    assert in_virtual_time(body) == {SweepServices, SweepWorkers}


def test_a_due_task_is_found_though_the_hint_of_its_commit_was_lost() -> None:
    async def body(engine: Engine) -> TaskState:
        with patch.object(DutyScheduler, "hint", lambda *_: None):
            (task_id,) = await engine.submit(delay_ms=200)
            await let_pass(2_500)
            return (await engine.task(task_id)).state

    assert in_virtual_time(body) is TaskState.QUEUED


def test_duties_run_also_while_what_is_due_cannot_be_read() -> None:
    async def body(engine: Engine) -> TaskState:
        with patch.object(TaskQueries, "next_moment_ms", side_effect=OSError("no reader is free")):
            (task_id,) = await engine.submit(delay_ms=200)
            await let_pass(2_500)
        return (await engine.task(task_id)).state

    assert in_virtual_time(body) is TaskState.QUEUED


async def test_a_lock_is_swept_only_when_it_is_due(engine: Engine) -> None:
    locks = engine.coordinator.queries.locks
    assert not await locks.is_sweep_due()
    await engine.execute(AcquireLock(name="l", owner="ann", ttl_ms=5_000))

    assert not await locks.is_sweep_due()
    assert locks.next_expiry_ms is not None
    engine.clock.turn(5_000)
    assert await locks.is_sweep_due()


def test_every_duty_notes_when_it_ran() -> None:
    async def body(engine: Engine) -> dict[str, int]:
        await let_pass(25_000)
        now_ms = engine.clock.now_ms()
        runs_ms = engine.coordinator.metrics().duty_runs_ms
        return {name: now_ms - at_ms for name, at_ms in runs_ms.items()}

    ages_ms = in_virtual_time(body)

    assert ages_ms.keys() == {duty.name for duty in DUTIES}
    for duty in DUTIES:
        assert ages_ms[duty.name] <= duty.interval_ms


async def test_next_moments_are_read_from_the_store(engine: Engine, clock: TurnedClock) -> None:
    assert await engine.coordinator.queries.tasks.next_moment_ms() is None

    await engine.submit(delay_ms=70)

    assert await engine.coordinator.queries.tasks.next_moment_ms() == clock.now_ms() + 70


async def test_a_time_limit_is_kept_when_the_duty_stands_twice_in_a_batch(engine: Engine) -> None:
    (task_id,) = await engine.submit(start_within_ms=800)
    engine.clock.turn(1_000)

    await asyncio.gather(engine.execute(ExpireAttempts()), engine.execute(ExpireAttempts()))

    assert (await engine.task(task_id)).state is TaskState.FAILED
