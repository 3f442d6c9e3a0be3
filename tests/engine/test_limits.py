"""Limits on keys, fairness between tenants, and settings of queues, on a running coordinator."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from rota.core.commands import CancelTasks, CompleteJob, PruneHistory, Result, RetryTasks, StartJob
from rota.core.flows.commands import (
    ChangeSettings,
    CloseLimit,
    ConsumeLimit,
    DropLimit,
    LimitState,
    LookAtLimits,
    PutLimit,
    QueueChange,
)
from rota.core.flows.model import Concurrency, Rate
from rota.core.flows.queue_settings import QueueRate
from rota.core.ids import TaskId
from rota.core.tasks.model import NewTask, TaskError, TaskRecord, TaskState
from rota.core.workers.model import WorkerRecord
from rota.errors import Invalid, KeyBusy, LimitKindConflict, LimitNotFound, QueueFull
from tests.conftest import TurnedClock
from tests.engine.holding import check_working_set, small_windows
from tests.engine.running import Engine, done, running

ONE = Concurrency(key="one")
LONG_MS = 3_600_000


async def fleet(engine: Engine, **options: Any) -> WorkerRecord:
    fields = {"max_concurrent_tasks": 1_000, "heartbeat_interval_ms": LONG_MS, **options}
    return await engine.register(**fields)


async def submit(engine: Engine, count: int = 1, **options: Any) -> list[TaskId]:
    name = options.pop("name", "work")
    return await engine.submit_all([NewTask(name=name, **options) for _ in range(count)])


async def limit(engine: Engine, key: str) -> LimitState:
    (found,) = (await engine.execute(LookAtLimits(keys=(key,)))).items
    return found


def failed(task: TaskRecord, **options: Any) -> Result:
    return done(task, ok=False, error=TaskError(), **options)


# --- concurrency --------------------------------------------------------------------------------


async def test_no_more_tasks_of_a_key_run_than_its_limit_allows(engine: Engine) -> None:
    worker = await fleet(engine)
    await submit(engine, 5, concurrency=Concurrency(key="k", limit=2))

    first = await engine.lease(worker)
    assert await engine.lease(worker) == []
    await engine.report(worker, done(first[0]))
    second = await engine.lease(worker)

    assert (len(first), len(second)) == (2, 1)
    state = await limit(engine, "k")
    assert (state.running, state.waiting, state.record.limit) == (2, 2, 2)


async def test_a_blocked_key_does_not_hold_up_what_is_behind_it(engine: Engine) -> None:
    worker = await fleet(engine)
    blocked = await submit(engine, 50, concurrency=ONE)
    free = await submit(engine, 3)
    other = await submit(engine, 2, concurrency=Concurrency(key="two", limit=2))

    leased = await engine.lease(worker)

    assert {task.id for task in leased} == {blocked[0], *free, *other}


async def test_a_key_is_shared_by_tasks_of_all_names_and_queues(engine: Engine) -> None:
    worker = await fleet(engine)
    await submit(engine, name="a", concurrency=ONE)
    await submit(engine, name="b", queue="mail", concurrency=ONE)

    (first,) = await engine.lease(worker)
    await engine.report(worker, done(first))

    assert [task.lane.name for task in await engine.lease(worker)] == ["b"]


async def test_a_task_needs_room_in_all_of_its_limits(engine: Engine) -> None:
    worker = await fleet(engine)
    both = [Concurrency(key="a"), Concurrency(key="b")]
    held = await submit(engine, concurrency=both[:1])
    await submit(engine, concurrency=both)
    after = await submit(engine, concurrency=both[1:])

    leased = await engine.lease(worker)
    assert [task.id for task in leased] == [*held, *after]
    await engine.report(worker, done(leased[0]))
    assert await engine.lease(worker) == []
    await engine.report(worker, done(leased[1]))

    assert len(await engine.lease(worker)) == 1


async def test_room_that_one_flow_cannot_use_goes_to_the_next(engine: Engine) -> None:
    """The first flow under `a` is refused by `b`; the second needs `a` alone."""
    worker = await fleet(engine)
    await submit(engine, concurrency=Concurrency(key="a"))
    await submit(engine, concurrency=Concurrency(key="b"))
    holders = await engine.lease(worker)
    await submit(engine, concurrency=[Concurrency(key="a"), Concurrency(key="b")])
    wanted = await submit(engine, concurrency=Concurrency(key="a"))
    assert await engine.lease(worker) == []

    await engine.report(worker, done(holders[0]))

    assert [task.id for task in await engine.lease(worker)] == wanted


async def test_a_wake_up_is_not_lost_in_a_lane_without_workers(engine: Engine) -> None:
    worker = await fleet(engine, tasks=("served",))
    other = await fleet(engine, worker_id="w2", tasks=("unserved",))
    await submit(engine, name="served", concurrency=ONE)
    (running_task,) = await engine.lease(worker)
    await submit(engine, name="unserved", concurrency=ONE, priority=9)
    await submit(engine, name="served", concurrency=ONE)
    assert await engine.lease(worker) == []
    assert await engine.lease(other) == []  # and it asks no more

    await engine.report(worker, done(running_task))

    assert len(await engine.lease(worker)) == 1


async def test_a_waiting_lease_call_gets_the_task_when_the_slot_is_free(engine: Engine) -> None:
    worker, other = await fleet(engine), await fleet(engine, worker_id="w2")
    await submit(engine, 2, concurrency=ONE)
    (first,) = await engine.lease(worker)
    call = await engine.parked(other)

    await engine.report(worker, done(first))

    assert len((await call).leases) == 1


async def test_a_limit_that_is_raised_lets_waiting_tasks_start(engine: Engine) -> None:
    worker = await fleet(engine)
    await submit(engine, 5, concurrency=ONE)
    await engine.lease(worker)

    await engine.execute(PutLimit(key="one", limit=3))

    assert len(await engine.lease(worker)) == 2


async def test_a_limit_of_zero_pauses_its_key_and_interrupts_nothing(engine: Engine) -> None:
    worker = await fleet(engine)
    await submit(engine, 3, concurrency=Concurrency(key="k", limit=2))
    first = await engine.lease(worker)

    await engine.execute(PutLimit(key="k", limit=0))
    await engine.report(worker, *map(done, first))
    assert await engine.lease(worker) == []
    await engine.execute(DropLimit(key="k"))

    assert len(await engine.lease(worker)) == 1


async def test_a_pinned_limit_is_not_changed_by_tasks(engine: Engine) -> None:
    await engine.execute(PutLimit(key="k", limit=7))
    await submit(engine, concurrency=Concurrency(key="k", limit=2))
    pinned = (await limit(engine, "k")).record

    await engine.execute(DropLimit(key="k"))

    assert (pinned.limit, pinned.is_pinned) == (7, True)
    assert (await limit(engine, "k")).record.limit == 2


async def test_the_value_that_was_changed_last_counts(engine: Engine) -> None:
    """A task name that repeats its old value does not change the limit back."""
    values = []
    for name, value in [("a", 2), ("b", 5), ("a", 2), ("b", 5), ("a", 3), ("b", 5)]:
        await submit(engine, name=name, concurrency=Concurrency(key="k", limit=value))
        values.append((await limit(engine, "k")).record.limit)

    assert values == [2, 5, 5, 5, 3, 3]


async def test_a_slot_is_kept_through_back_off_where_the_task_holds_it(
    engine: Engine, clock: TurnedClock
) -> None:
    worker = await fleet(engine)
    strict = Concurrency(key="k", hold="task")
    first, second = await submit(engine, 2, concurrency=strict)

    (task,) = await engine.lease(worker)
    await engine.report(worker, failed(task, retry_in_ms=1_000))
    assert await engine.lease(worker) == []
    await engine.turn(1_000)
    (again,) = await engine.lease(worker)
    await engine.report(worker, done(again))
    (last,) = await engine.lease(worker)

    assert [task.id, again.id, last.id] == [first, first, second]
    assert (await limit(engine, "k")).running == 1


async def test_a_slot_is_free_during_back_off_where_the_attempt_holds_it(engine: Engine) -> None:
    worker = await fleet(engine)
    first, second = await submit(engine, 2, concurrency=ONE)

    (task,) = await engine.lease(worker)
    await engine.report(worker, failed(task, retry_in_ms=1_000))

    assert (task.id, [one.id for one in await engine.lease(worker)]) == (first, [second])


async def test_a_holder_that_is_cancelled_while_it_waits_frees_its_slot(engine: Engine) -> None:
    worker = await fleet(engine)
    first, second = await submit(engine, 2, concurrency=Concurrency(key="k", hold="task"))
    (task,) = await engine.lease(worker)
    await engine.report(worker, failed(task, retry_in_ms=1_000))

    await engine.execute(CancelTasks((first,)))

    assert [one.id for one in await engine.lease(worker)] == [second]


async def test_a_cancelled_attempt_has_its_slot_until_its_worker_lets_go(engine: Engine) -> None:
    worker = await fleet(engine)
    first, second = await submit(engine, 2, concurrency=ONE)
    await engine.lease(worker)

    await engine.execute(CancelTasks((first,)))
    assert await engine.lease(worker) == []
    await engine.beat(worker, [first])
    assert await engine.lease(worker) == []
    await engine.beat(worker, [])

    assert [one.id for one in await engine.lease(worker)] == [second]


async def test_a_cancelled_attempt_that_still_runs_cannot_be_retried(engine: Engine) -> None:
    worker = await fleet(engine)
    (task_id,) = await submit(engine, concurrency=ONE)
    await engine.lease(worker)
    await engine.execute(CancelTasks((task_id,)))

    early = await engine.execute(RetryTasks((task_id,)))
    await engine.beat(worker, [])
    late = await engine.execute(RetryTasks((task_id,)))

    assert (early.changed, late.changed) == ((), (task_id,))
    assert "has not stopped yet" in early.refused[task_id].detail


async def test_the_slots_of_a_worker_that_is_gone_are_free(engine: Engine) -> None:
    worker = await fleet(engine)
    first, second = await submit(engine, 2, concurrency=ONE)
    await engine.lease(worker)
    await engine.execute(CancelTasks((first,)))

    again = await fleet(engine)

    assert [one.id for one in await engine.lease(again)] == [second]


async def test_a_retried_task_is_limited_again(engine: Engine) -> None:
    worker = await fleet(engine)
    first, second = await submit(engine, 2, concurrency=ONE, max_attempts=1)
    (task,) = await engine.lease(worker)
    await engine.report(worker, failed(task))
    await engine.execute(RetryTasks((first,)))

    leased = await engine.lease(worker)
    assert [task.id for task in leased] == [first]
    await engine.report(worker, done(leased[0]))

    assert [one.id for one in await engine.lease(worker)] == [second]


async def test_a_full_key_can_refuse_new_tasks(engine: Engine) -> None:
    worker = await fleet(engine)
    strict = Concurrency(key="k", on_full="reject")
    (first,) = await submit(engine, concurrency=strict)
    with pytest.raises(KeyBusy):
        await submit(engine, concurrency=strict)
    (task,) = await engine.lease(worker)
    with pytest.raises(KeyBusy) as refused:
        await submit(engine, concurrency=strict)
    await engine.report(worker, done(task))

    assert refused.value.facts["key"] == "k"
    assert refused.value.facts["holder"] is not None
    assert await submit(engine, concurrency=strict) != [first]


async def test_a_full_key_can_cancel_what_waits(engine: Engine) -> None:
    worker = await fleet(engine)
    latest = Concurrency(key="k", on_full="cancel_queued")
    (first,) = await submit(engine, concurrency=latest)
    (second,) = await submit(engine, concurrency=latest)
    (task,) = await engine.lease(worker)
    (third,) = await submit(engine, concurrency=latest)
    (fourth,) = await submit(engine, concurrency=latest)

    states = [(await engine.task(one)).state for one in (first, second, third, fourth)]

    assert task.id == second
    assert states == [
        TaskState.CANCELLED,
        TaskState.RUNNING,
        TaskState.CANCELLED,
        TaskState.QUEUED,
    ]


async def test_a_full_key_can_cancel_what_runs_and_waits_until_it_has_stopped(
    engine: Engine,
) -> None:
    worker = await fleet(engine)
    newest = Concurrency(key="k", on_full="cancel_running")
    (first,) = await submit(engine, concurrency=newest)
    await engine.lease(worker)

    (second,) = await submit(engine, concurrency=newest)
    during = await engine.lease(worker)
    told = await engine.beat(worker, [first])
    await engine.beat(worker, [])
    after = await engine.lease(worker)

    assert (await engine.task(first)).state is TaskState.CANCELLED
    assert (during, told.cancel) == ([], (first,))
    assert [task.id for task in after] == [second]


async def test_a_submission_that_would_fill_a_key_twice_is_refused_as_a_whole(
    engine: Engine,
) -> None:
    with pytest.raises(KeyBusy):
        await submit(engine, 2, concurrency=Concurrency(key="k", on_full="reject"))

    await submit(engine, concurrency=Concurrency(key="k", on_full="reject"))


async def test_limits_are_counted_from_the_store_after_a_restart(
    engine: Engine, tmp_path: Any
) -> None:
    path = tmp_path / "again.db"
    async with running(path, engine.clock) as first:
        worker = await fleet(first)
        await submit(first, 4, concurrency=Concurrency(key="k", limit=2))
        leased = await first.lease(worker)
    async with running(path, engine.clock) as second:
        assert (await limit(second, "k")).running == 2
        assert await second.lease(worker) == []
        await second.report(worker, done(leased[0]))

        assert len(await second.lease(worker)) == 1


async def test_a_failed_commit_takes_no_slot(engine: Engine) -> None:
    worker = await fleet(engine)
    await submit(engine, 2, concurrency=ONE)
    engine.database.commit_problem = OSError("disk")
    with pytest.raises(Exception, match="store"):
        await engine.lease(worker)
    engine.database.commit_problem = None

    assert len(await engine.lease(worker)) == 1


async def test_a_key_has_one_kind(engine: Engine) -> None:
    await submit(engine, concurrency=ONE)

    with pytest.raises(LimitKindConflict):
        await submit(engine, rate=Rate(key="one", limit=1))


@pytest.mark.parametrize(
    "options",
    [
        {"concurrency": [ONE, ONE]},
        {"concurrency": ONE, "rate": Rate(key="one", limit=1)},
        {"rate": Rate(key="r", limit=5, burst=2, cost=3)},
        {"rate": Rate(key="r", limit=1_001, mode="window")},
        {"rate": Rate(key="r", limit=2, cost=3, mode="window")},
    ],
)
async def test_limits_that_can_never_be_met_are_refused(
    engine: Engine, options: dict[str, Any]
) -> None:
    with pytest.raises(Invalid):
        await submit(engine, **options)


async def test_a_job_takes_a_slot_like_a_lease(engine: Engine) -> None:
    first, second = await submit(engine, 2, concurrency=ONE)

    await engine.execute(StartJob(task_id=first, holder="me"))
    with pytest.raises(KeyBusy):
        await engine.execute(StartJob(task_id=second, holder="me"))
    await engine.execute(CompleteJob(task_id=first, result=Raw(b"1")))

    await engine.execute(StartJob(task_id=second, holder="me"))


async def test_flows_and_limits_without_tasks_are_forgotten(engine: Engine) -> None:
    worker = await fleet(engine)
    await engine.execute(PutLimit(key="pinned", limit=1))
    await submit(engine, concurrency=ONE, fair_key="a")
    await submit(engine, rate=Rate(key="r", limit=1, per_ms=1_000))
    await submit(engine, concurrency=Concurrency(key="kept"), delay_ms=60_000)
    tasks = await engine.lease(worker)
    held = engine.coordinator.leading.pipeline._held.flows

    await engine.execute(PruneHistory(0))
    assert {*held.limits.by_key} == {"one", "r", "kept", "pinned"}
    await engine.report(worker, *map(done, tasks))
    await engine.execute(PruneHistory(0))
    assert {*held.limits.by_key} == {"r", "kept", "pinned"}
    engine.clock.turn(1_000)
    await engine.execute(PruneHistory(0))

    assert {*held.limits.by_key} == {"kept", "pinned"}
    assert len(held._specs) == 1


# --- rates --------------------------------------------------------------------------------------


async def test_starts_of_a_rate_are_spaced_evenly(engine: Engine, clock: TurnedClock) -> None:
    worker = await fleet(engine)
    await submit(engine, 6, rate=Rate(key="r", limit=4, per_ms=1_000))

    starts = []
    for _ in range(5):
        starts.append(len(await engine.lease(worker)))
        await engine.turn(125)

    assert starts == [1, 0, 1, 0, 1]


async def test_a_burst_comes_at_once_after_a_quiet_time(engine: Engine) -> None:
    worker = await fleet(engine)
    await submit(engine, 9, rate=Rate(key="r", limit=10, per_ms=1_000, burst=3))

    first = len(await engine.lease(worker))
    await engine.turn(200)

    assert (first, len(await engine.lease(worker))) == (3, 2)


async def test_a_window_counts_the_starts_of_the_last_period(engine: Engine) -> None:
    worker = await fleet(engine)
    await submit(engine, 9, rate=Rate(key="r", limit=3, per_ms=1_000, mode="window"))

    starts = [len(await engine.lease(worker))]
    for by_ms in (999, 1):
        await engine.turn(by_ms)
        starts.append(len(await engine.lease(worker)))

    assert starts == [3, 0, 3]


async def test_a_waiting_call_gets_its_task_when_the_rate_opens(engine: Engine) -> None:
    worker = await fleet(engine)
    await submit(engine, 2, rate=Rate(key="r", limit=1, per_ms=1_000))
    await engine.lease(worker)
    call = await engine.parked(worker)

    await engine.turn(1_000)

    assert len((await call).leases) == 1


async def test_single_tasks_of_many_flows_follow_each_other_at_the_rate(engine: Engine) -> None:
    """Each flow is gone with its task, and must still leave word of when the next may start."""
    worker = await fleet(engine)
    for tenant in "abc":
        await submit(engine, rate=Rate(key="r", limit=1, per_ms=1_000), fair_key=tenant)

    starts: list[TaskRecord] = []
    for _ in range(3):
        starts += await engine.lease(worker)
        assert await engine.lease(worker) == []
        await engine.turn(1_000)

    assert len(starts) == 3


async def test_a_rate_goes_on_after_a_restart(engine: Engine, tmp_path: Any) -> None:
    path = tmp_path / "again.db"
    async with running(path, engine.clock) as first:
        worker = await fleet(first)
        await submit(first, 3, rate=Rate(key="r", limit=1, per_ms=1_000))
        await first.lease(worker)
    async with running(path, engine.clock) as second:
        assert await second.lease(worker) == []
        await second.turn(1_000)

        assert len(await second.lease(worker)) == 1


async def test_uses_outside_tasks_count_for_a_rate(engine: Engine) -> None:
    worker = await fleet(engine)
    await engine.execute(PutLimit(key="r", limit=1, per_ms=1_000))
    free = await engine.execute(ConsumeLimit(key="r"))
    late = await engine.execute(ConsumeLimit(key="r"))
    await submit(engine, rate=Rate(key="r", limit=9))

    assert (free.opens_at_ms, late.opens_at_ms) == (None, engine.clock.now_ms() + 1_000)
    assert await engine.lease(worker) == []


async def test_a_closed_rate_lets_nothing_start(engine: Engine) -> None:
    worker = await fleet(engine)
    await submit(engine, 2, rate=Rate(key="r", limit=1_000))

    await engine.execute(CloseLimit(key="r", for_ms=5_000))
    assert await engine.lease(worker) == []
    await engine.turn(5_000)

    assert len(await engine.lease(worker)) >= 1


async def test_a_rate_limited_task_closes_its_rates_for_every_task(engine: Engine) -> None:
    worker = await fleet(engine)
    shared = Rate("s", limit=1_000, burst=2)
    await submit(engine, 1, max_attempts=1, rate=[Rate("r", limit=1_000), shared])
    (task,) = await engine.lease(worker)
    (other,) = await submit(engine, 1, name="other", rate=shared)
    (free,) = await submit(engine, 1, rate=Rate("t", limit=1_000))

    await engine.report(worker, done(task, ok=False, snooze_ms=5_000, rate_limited=True))
    started = await engine.lease(worker)
    await engine.turn(4_999)
    assert await engine.lease(worker) == []
    opens_at_ms = (await limit(engine, "r")).opens_at_ms
    await engine.turn(1)
    later = await engine.lease(worker)

    assert [one.id for one in started] == [free]
    assert opens_at_ms == engine.clock.now_ms()
    assert {one.id for one in later} == {task.id, other}
    assert {one.attempt for one in later} == {1}


async def test_a_closed_rate_stays_closed_over_a_restart(engine: Engine) -> None:
    worker = await fleet(engine)
    await submit(engine, 2, rate=Rate("r", limit=1_000, burst=9))
    task, other = await engine.lease(worker)

    await engine.report(
        worker, done(task, ok=False, snooze_ms=5_000, rate_limited=True), done(other, snooze_ms=1)
    )
    engine.coordinator.leading.pipeline._held._is_certain = False
    await engine.turn(1)

    assert await engine.lease(worker) == []
    await engine.turn(4_999)
    assert len(await engine.lease(worker)) == 2


async def test_an_operator_opens_a_closed_rate_by_setting_it(engine: Engine) -> None:
    worker = await fleet(engine)
    await submit(engine, 1, rate=Rate("r", limit=1_000))
    await engine.execute(CloseLimit(key="r", for_ms=5_000))

    await engine.execute(PutLimit(key="r"))
    assert await engine.lease(worker) == []
    await engine.execute(PutLimit(key="r", limit=10))

    assert len(await engine.lease(worker)) == 1


async def test_only_known_limits_can_be_used(engine: Engine) -> None:
    for command in (ConsumeLimit(key="r"), CloseLimit(key="r", for_ms=1), DropLimit(key="r")):
        with pytest.raises(LimitNotFound):
            await engine.execute(command)


# --- tenants ------------------------------------------------------------------------------------


async def order(engine: Engine, worker: WorkerRecord, count: int) -> list[str | None]:
    tasks = []
    for _ in range(count):
        tasks += await engine.lease(worker, 1)
    return [task.options.fair_key for task in tasks]


async def test_tenants_take_turns_however_much_one_of_them_has(engine: Engine) -> None:
    worker = await fleet(engine)
    await submit(engine, 50, fair_key="big")
    await submit(engine, 3, fair_key="small")
    await submit(engine, 2)

    first = await order(engine, worker, 6)

    assert {first.count("big"), first.count("small"), first.count(None)} == {2}


async def test_a_batch_is_shared_between_tenants_too(engine: Engine) -> None:
    worker = await fleet(engine)
    await submit(engine, 50, fair_key="a")
    await submit(engine, 50, fair_key="b")

    leased = await engine.lease(worker, 20)

    assert sum(task.options.fair_key == "a" for task in leased) == 10


async def test_weights_divide_the_starts(engine: Engine) -> None:
    worker = await fleet(engine)
    await submit(engine, 60, fair_key="a")
    await submit(engine, 60, fair_key="b")
    await engine.execute(
        ChangeSettings(queue="default", change=QueueChange(weights={"a": 3.0, "b": 1.0}))
    )

    served = await order(engine, worker, 40)

    assert abs(served.count("a") - 30) <= 1


async def test_a_higher_priority_comes_before_fairness(engine: Engine) -> None:
    worker = await fleet(engine)
    await submit(engine, 2, fair_key="a")
    await submit(engine, 2, fair_key="b", priority=5)

    assert await order(engine, worker, 4) == ["b", "b", "a", "a"]


async def test_a_tenant_saves_up_no_time_while_it_has_no_work(engine: Engine) -> None:
    worker = await fleet(engine)
    await submit(engine, 30, fair_key="a")
    await order(engine, worker, 20)
    await submit(engine, 20, fair_key="b")

    served = await order(engine, worker, 10)

    assert abs(served.count("a") - 5) <= 1


# --- settings of queues -------------------------------------------------------------------------


async def change(engine: Engine, **options: Any) -> None:
    await engine.execute(ChangeSettings(queue="default", change=QueueChange(**options)))


async def test_a_queue_runs_no_more_than_it_may(engine: Engine) -> None:
    worker = await fleet(engine)
    await submit(engine, 9)
    await submit(engine, 1, queue="other")
    before = await engine.lease(worker, 2)
    await change(engine, max_running=3)

    leased = await engine.lease(worker)
    assert sorted(task.lane.queue for task in leased) == ["default", "other"]
    await engine.report(worker, done(before[0]))
    assert len(await engine.lease(worker)) == 1
    await change(engine, max_running=None)

    assert len(await engine.lease(worker)) == 5


async def test_a_queue_starts_no_faster_than_it_may(engine: Engine) -> None:
    worker = await fleet(engine)
    await change(engine, rate=QueueRate(limit=2, per_ms=1_000))
    await submit(engine, 5)

    starts = []
    for _ in range(3):
        starts.append(len(await engine.lease(worker)))
        await engine.turn(500)

    assert starts == [1, 1, 1]


async def test_a_full_queue_refuses_new_tasks(engine: Engine) -> None:
    worker = await fleet(engine)
    await change(engine, max_queued=3)
    await submit(engine, 2)
    with pytest.raises(QueueFull):
        await submit(engine, 2)
    await submit(engine, 1)
    with pytest.raises(QueueFull):
        await submit(engine, 1)
    await submit(engine, 5, queue="other")
    await engine.lease(worker, 2)

    await submit(engine, 1)


# --- everything together ------------------------------------------------------------------------

KEYS = ("a", "b")
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "concurrency": st.lists(
            st.builds(
                Concurrency,
                key=st.sampled_from(KEYS),
                limit=st.just(1),
                hold=st.sampled_from(["attempt", "task"]),
            ),
            min_size=1,
            max_size=2,
            unique_by=lambda one: one.key,
        ),
        "rate": st.builds(Rate, key=st.just("r"), limit=st.just(2), per_ms=st.just(1_000)),
        "fair_key": st.sampled_from(["x", "y"]),
        "priority": st.integers(0, 1),
        "name": st.sampled_from(["work", "other"]),
        "delay_ms": st.sampled_from([None, 700]),
    },
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.lists(OPTIONS, min_size=1, max_size=4)),
        st.tuples(st.just("lease"), st.integers(1, 4)),
        st.tuples(st.just("done"), st.integers(0, 5)),
        st.tuples(st.just("fail"), st.integers(0, 5)),
        st.tuples(st.just("snooze"), st.integers(0, 5)),
        st.tuples(st.just("limited"), st.integers(0, 5)),
        st.tuples(st.just("cancel"), st.integers(0, 9)),
        st.tuples(st.just("retry"), st.integers(0, 9)),
        st.tuples(st.just("beat"), st.just(0)),
        st.tuples(st.just("turn"), st.sampled_from([100, 700])),
        st.tuples(st.just("limit"), st.integers(0, 2)),
        st.tuples(st.just("reload"), st.just(0)),
        st.tuples(st.just("prune"), st.just(0)),
    ),
    max_size=25,
)


class Crowd:
    """One worker that runs what it gets, and checks at the handler who else is in the slot."""

    def __init__(self, engine: Engine, worker: WorkerRecord) -> None:
        self.engine = engine
        self.worker = worker
        self.running: dict[TaskId, TaskRecord] = {}
        self.ids: list[TaskId] = []

    async def take(self, step: str, argument: Any) -> None:
        if step in {"done", "fail", "snooze", "limited"}:
            await self._end(step, argument)
        else:
            await self._act(step, argument)

    async def _end(self, step: str, index: int) -> None:
        if index >= len(self.running):
            return
        task = self.running.pop([*self.running][index])
        results = {
            "done": done(task),
            "fail": failed(task),
            "snooze": done(task, snooze_ms=300),
            "limited": done(task, snooze_ms=300, rate_limited=True),
        }
        await self.engine.report(self.worker, results[step])

    async def _act(self, step: str, argument: Any) -> None:
        engine, worker = self.engine, self.worker
        if step == "submit":
            tasks = [NewTask(**{"name": "work", **options}) for options in argument]
            self.ids += await engine.submit_all(tasks)
        elif step == "lease":
            for task in await engine.lease(worker, argument):
                self.running[task.id] = task
        elif step in {"cancel", "retry"} and argument < len(self.ids):
            kind = CancelTasks if step == "cancel" else RetryTasks
            await engine.execute(kind((self.ids[argument],)))
        elif step == "beat":
            told = await engine.beat(worker, [*self.running])
            for task_id in {*told.cancel, *told.lost} & self.running.keys():
                del self.running[task_id]
            await engine.beat(worker, [*self.running])
        elif step == "turn":
            await engine.turn(argument)
        elif step == "limit":
            await engine.execute(PutLimit(key="a", limit=max(1, argument)))
        else:
            await self._maintain(step)

    async def _maintain(self, step: str) -> None:
        if step == "prune":
            await self.engine.execute(PruneHistory(0))
        elif step == "reload":
            self.engine.coordinator.leading.pipeline._held._is_certain = False

    def check(self) -> None:
        held = self.engine.coordinator.leading.pipeline._held
        for key in KEYS:
            inside = [
                one
                for one in self.running.values()
                if any(slot.key == key for slot in _listed(one.options.concurrency))
            ]
            assert len(inside) <= 2, "no limit was ever higher"
            assert held.flows.limits.running.get(key, 0) >= len(inside), "every handler is counted"


def _listed(given: Any) -> list[Concurrency]:
    return given if isinstance(given, list) else []


@pytest.mark.only("sqlite")
@settings(deadline=None)
@given(steps=STEPS, windows=st.sampled_from([small_windows, nullcontext]))
async def test_limits_hold_and_nothing_is_left_behind(
    steps: list[tuple[str, Any]], windows: Callable[[], AbstractContextManager[None]]
) -> None:
    with windows():
        async with running(":memory:") as engine:
            crowd = Crowd(engine, await fleet(engine))
            for step, argument in steps:
                await crowd.take(step, argument)
                crowd.check()
                check_working_set(engine.coordinator)
            await _drain(crowd)
            left = [await engine.task(one) for one in crowd.ids]
            assert {one.state for one in left} <= {
                TaskState.SUCCEEDED,
                TaskState.CANCELLED,
                TaskState.FAILED,
            }


async def _drain(crowd: Crowd) -> None:
    """Let everything finish; bounded, so that a task that is stuck fails the test."""
    for _ in range(200):
        await crowd.take("beat", 0)
        for task in [*crowd.running.values()]:
            await crowd.take("done", [*crowd.running].index(task.id))
        await crowd.take("turn", 60_000)
        await crowd.take("lease", 100)
        if not crowd.running:
            return
