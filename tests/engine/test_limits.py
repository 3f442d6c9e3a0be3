"""Limits on how many tasks of a key run at once, on a running coordinator."""

import asyncio
from typing import Any
from unittest.mock import patch

import pytest
from msgspec import Raw

from rota.core import limits as core_limits
from rota.core.access import Caller, Scope
from rota.core.commands import (
    CancelTasks,
    CompleteJob,
    PruneHistory,
    RetryTasks,
    StartJob,
    SubmitTasks,
)
from rota.core.flows.commands import (
    DropLimit,
    PutLimit,
    RecountLimits,
)
from rota.core.flows.model import Concurrency, Rate
from rota.core.tasks.model import NewTask, TaskState
from rota.engine.flows.flow_domain import FEW_TASKS
from rota.errors import Invalid, KeyBusy, LimitKindConflict, TooMany
from rota.store.tasks.flows import FlowStore
from tests.conftest import TurnedClock
from tests.engine.flows import Flows
from tests.engine.limiting import failed, fleet, limit, submit
from tests.engine.running import Engine, done, running

ONE = Concurrency(key="one")
TWO_STEPS = """
name: two
initial_node: first
nodes:
  first: {task: first}
  second: {task: second, fair_key: x}
transitions:
  - {from: first, to: second}
"""


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


async def test_a_slot_that_is_kept_through_back_off_is_kept_over_a_restart(
    engine: Engine, tmp_path: Any
) -> None:
    path = tmp_path / "again.db"
    strict = Concurrency(key="k", hold="task")
    async with running(path, engine.clock) as before:
        worker = await fleet(before)
        first, second = await submit(before, 2, concurrency=strict)
        (task,) = await before.lease(worker)
        await before.report(worker, failed(task, retry_in_ms=1_000))
    async with running(path, engine.clock) as after:
        assert await after.lease(worker) == []
        assert (await limit(after, "k")).running == 1
        await after.turn(1_000)
        (again,) = await after.lease(worker)
        assert await after.lease(worker) == []
        await after.report(worker, done(again))
        (last,) = await after.lease(worker)

    assert [task.id, again.id, last.id] == [first, first, second]


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
    assert len(held.numbers.specs) == 1


# --- how many keys and flows there may be ---------------------------------------------------------


def bound(queue: str) -> Caller:
    return Caller(name=queue, scopes=(Scope.SUBMIT,), queues=(queue,))


async def named_by(engine: Engine, caller: Caller | None, *keys: str) -> None:
    queue = "default" if caller is None or caller.queues is None else caller.queues[0]
    tasks = [NewTask(name="work", queue=queue, concurrency=Concurrency(key=key)) for key in keys]
    await engine.execute(SubmitTasks(tasks, by=caller))


async def test_a_token_binding_has_a_share_of_the_keys(engine: Engine) -> None:
    worker = await fleet(engine)
    with patch.object(core_limits, "MAX_LIMIT_KEYS_PER_BINDING", 2):
        await named_by(engine, bound("a"), "a1", "a2")
        with pytest.raises(TooMany, match="one binding"):
            await named_by(engine, bound("a"), "a3")
        await named_by(engine, bound("a"), "a1")
        await named_by(engine, bound("b"), "b1", "b2")
        await named_by(engine, None, "c1", "c2", "c3")
        engine.coordinator.leading.pipeline._held._is_certain = False
        with pytest.raises(TooMany):
            await named_by(engine, bound("a"), "a3")
        for task in await engine.lease(worker):
            await engine.report(worker, done(task))
        for task in await engine.lease(worker):
            await engine.report(worker, done(task))
        await engine.execute(PruneHistory(0))
        await engine.execute(PruneHistory(0))

        await named_by(engine, bound("a"), "a4", "a5")


async def test_submissions_of_one_batch_share_what_is_left_of_the_keys(engine: Engine) -> None:
    with patch.object(core_limits, "MAX_LIMIT_KEYS_PER_BINDING", 2):
        await submit(engine, concurrency=ONE)
        outcomes = await asyncio.gather(
            *[named_by(engine, bound("a"), f"a{number}") for number in range(4)],
            return_exceptions=True,
        )

    assert [type(one) for one in outcomes] == [type(None)] * 2 + [TooMany] * 2


async def test_a_key_that_is_new_in_one_batch_has_the_kind_of_the_first_that_names_it(
    engine: Engine,
) -> None:
    outcomes = await asyncio.gather(
        submit(engine, concurrency=Concurrency(key="k")),
        submit(engine, rate=Rate(key="k", limit=1)),
        return_exceptions=True,
    )

    assert isinstance(outcomes[1], LimitKindConflict)
    assert (await limit(engine, "k")).record.kind == "concurrency"


async def test_too_many_flows_refuse_submissions_but_no_report_of_a_run(
    engine: Engine,
) -> None:
    worker = await fleet(engine)
    flows = Flows(engine)
    await flows.start(TWO_STEPS)
    with patch.object(core_limits, "MAX_FLOWS", 1):
        await submit(engine, fair_key="a")
        await submit(engine, fair_key="a")
        with pytest.raises(TooMany, match="combinations"):
            await submit(engine, fair_key="b")
        leased = await engine.lease(worker)
        outcomes = [await engine.report(worker, done(task)) for task in leased]
        more = await engine.lease(worker)

    assert outcomes == [["accepted"]] * 3
    assert [task.lane.name for task in more] == ["second"]


# --- recounting -----------------------------------------------------------------------------------


async def test_limits_that_count_right_are_found_to(engine: Engine) -> None:
    worker = await fleet(engine)
    await submit(engine, 3, concurrency=ONE)
    kept = await submit(engine, 2, concurrency=Concurrency(key="t", hold="task"))
    for task in await engine.lease(worker):
        if task.id in kept:
            await engine.report(worker, failed(task))
        else:
            await engine.execute(CancelTasks((task.id,)))

    found = await engine.execute(RecountLimits())

    assert (found.limits, found.slots, found.flows, found.differences) == (2, 2, 2, [])


async def test_a_recount_names_what_differs(engine: Engine) -> None:
    worker = await fleet(engine)
    await submit(engine, 3, concurrency=ONE)
    (task,) = await engine.lease(worker)
    flows = engine.coordinator.leading.pipeline._held.flows
    (flow,) = flows.open.values()
    with (
        patch.dict(flows.limits.running, {"one": 2}),
        patch.dict(flows.limits.waiting, {"one": 5}),
        patch.object(flow, "blocked_by", None),
    ):
        found = await engine.execute(RecountLimits())

    assert found.differences == [
        "limit 'one' counts 2 running, the store has 1",
        "limit 'one' counts 5 waiting, the store has 2",
        f"flow {flow.number} is not in exactly one of active and blocked",
    ]
    assert await engine.report(worker, done(task)) == ["accepted"]


@pytest.mark.parametrize("count", [1, FEW_TASKS, FEW_TASKS + 1])
async def test_the_first_limit_of_a_store_is_written_by_the_batch_that_names_it(
    engine: Engine, count: int
) -> None:
    plain = [NewTask(name="plain") for _ in range(count - 1)]
    first = NewTask(name="first", concurrency=Concurrency(key="tenant", limit=2))

    await engine.submit_all([*plain, first])

    stored = engine.database.read(lambda tx: FlowStore(tx).limits())
    assert [*stored] == ["tenant"]
