"""Unique and debounced tasks on both stores: who holds a key, until when, and at what cost."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from rota.core.commands import (
    CancelTasks,
    CompleteJob,
    LeaveWorker,
    RetryTasks,
    StartJob,
    SubmitTasks,
)
from rota.core.ids import TaskId
from rota.core.tasks.model import NewTask, TaskError, TaskState
from rota.core.tasks.unique import Debounce, Unique
from rota.errors import Invalid, UniqueConflict
from rota.store.database import Transaction
from rota.store.tasks.lanes import Lanes
from rota.store.tasks.queues import InboxStore
from rota.store.tasks.tasks import TaskStore
from tests.engine.running import Engine, done, running
from tests.engine.test_inbox import by_key

KEYS = ["debounce:d", "key:k", "key:other", *(f"key:k{number}" for number in range(50))]
PLACES = [("default", key) for key in KEYS]
REPLACE = Unique(key="k", on_conflict="replace")
REJECT = Unique(key="k", on_conflict="reject")


def task(payload: int = 1, unique: Unique | None = None, **options: Any) -> NewTask:
    raw = Raw(b"%d" % payload)
    return NewTask(name="work", payload=raw, unique=unique or Unique(key="k"), **options)


def debounced(payload: int, **options: Any) -> NewTask:
    debounce = msgspec.convert({"key": "d", "wait_ms": 1_000, **options}, Debounce)
    return NewTask(name="work", payload=Raw(b"%d" % payload), debounce=debounce)


async def submit(engine: Engine, one: NewTask) -> TaskId:
    (task_id,) = await engine.submit_all([one])
    return task_id


def held(engine: Engine) -> list[TaskId]:
    """The tasks that hold a key, as the store has them."""

    def body(tx: Transaction) -> list[TaskId]:
        return [one.task_id for one in TaskStore(tx, Lanes()).key_holders(PLACES).values()]

    return sorted(engine.database.read(body))


# --- until when ---------------------------------------------------------------------------------


async def test_an_unfinished_task_holds_its_key_until_it_ends(engine: Engine) -> None:
    worker = await engine.register()
    first = await submit(engine, task())
    assert await submit(engine, task()) == first

    (lease,) = await engine.lease(worker)
    while_running = await submit(engine, task())
    await engine.report(worker, done(lease))
    after = await submit(engine, task())

    assert while_running == first
    assert after != first
    assert held(engine) == [after]


async def test_a_queued_task_holds_its_key_until_it_starts(engine: Engine) -> None:
    queued = Unique(key="k", while_="queued")
    worker = await engine.register()
    first = await submit(engine, task(unique=queued))
    assert await submit(engine, task(unique=queued)) == first

    await engine.lease(worker)

    assert held(engine) == []
    assert await submit(engine, task(unique=queued)) != first


async def test_a_task_that_waits_for_its_next_attempt_still_is_unfinished(engine: Engine) -> None:
    worker = await engine.register()
    first = await submit(engine, task())
    (lease,) = await engine.lease(worker)

    await engine.report(worker, done(lease, ok=False, error=TaskError()))

    assert (await engine.task(first)).state is TaskState.SCHEDULED
    assert await submit(engine, task()) == first


async def test_a_queued_task_that_started_once_does_not_take_its_key_back(engine: Engine) -> None:
    queued = Unique(key="k", while_="queued")
    worker = await engine.register()
    first = await submit(engine, task(unique=queued))
    await engine.lease(worker)

    await engine.execute(LeaveWorker(worker_id=worker.id, incarnation=worker.incarnation))
    second = await submit(engine, task(unique=queued))

    assert (await engine.task(first)).state is TaskState.QUEUED
    assert held(engine) == [second]
    await engine.register("w2")
    assert await submit(engine, task(unique=queued)) == second


async def test_a_retried_task_does_not_take_its_key_back(engine: Engine) -> None:
    first = await submit(engine, task())
    await engine.execute(CancelTasks((first,)))
    assert held(engine) == []
    second = await submit(engine, task())

    await engine.execute(RetryTasks((first,)))
    worker = await engine.register()
    leases = await engine.lease(worker)
    await engine.report(worker, *[done(one) for one in leases if one.id == first])

    assert {one.id for one in leases} == {first, second}
    assert held(engine) == [second]
    assert await submit(engine, task()) == second


async def test_a_job_that_starts_lets_go_of_a_key_for_queued_tasks(engine: Engine) -> None:
    first = await submit(engine, task(unique=Unique(key="k", while_="queued")))

    await engine.execute(StartJob(task_id=first, holder="me"))

    assert held(engine) == []


async def test_a_job_lets_go_of_its_key_as_a_task_of_a_worker_does(engine: Engine) -> None:
    first = await submit(engine, task())
    await engine.execute(StartJob(task_id=first, holder="me"))
    assert await submit(engine, task()) == first

    await engine.execute(CompleteJob(task_id=first, result=Raw(b"1")))

    assert held(engine) == []


async def test_a_task_that_ends_and_the_next_one_share_a_batch(engine: Engine) -> None:
    worker = await engine.register()
    first = await submit(engine, task())
    (lease,) = await engine.lease(worker)

    outcomes, second = await asyncio.gather(
        engine.report(worker, done(lease)), submit(engine, task())
    )

    assert outcomes == ["accepted"]
    assert second != first
    assert held(engine) == [second]


async def test_a_key_is_free_after_its_time(engine: Engine) -> None:
    short = Unique(key="k", for_ms=1_000)
    first = await submit(engine, task(unique=short))
    await engine.turn(999)
    assert await submit(engine, task(unique=short)) == first

    await engine.turn(1)
    second = await submit(engine, task(unique=short))
    await engine.execute(CancelTasks((first,)))

    assert second != first
    assert held(engine) == [second], "the end of the first does not free the key of the second"
    assert await submit(engine, task(unique=short)) == second


async def test_a_restart_forgets_no_key(tmp_path: Path) -> None:
    path = tmp_path / "rota.db"
    async with running(path) as engine:
        worker = await engine.register()
        running_task = await submit(engine, task())
        waiting = await submit(engine, task(unique=Unique(key="other", while_="queued")))
        (lease,) = await engine.lease(worker, 1)
        assert lease.id == running_task

    async with running(path) as engine:
        assert await submit(engine, task()) == running_task
        assert await engine.report(worker, done(lease)) == ["accepted"]
        assert held(engine) == [waiting]


# --- conflicts ----------------------------------------------------------------------------------


async def test_a_rejected_submission_adds_nothing(engine: Engine) -> None:
    await submit(engine, task())

    with pytest.raises(UniqueConflict):
        await engine.submit_all([NewTask(name="other"), task(unique=REJECT)])

    worker = await engine.register()
    assert len(await engine.lease(worker)) == 1


async def test_a_replaced_task_runs_with_the_new_contents(engine: Engine) -> None:
    first = await submit(engine, task(1, key="mine", labels=["old"], unique=REPLACE))
    await engine.submit("work", priority=1)

    again = await submit(
        engine, task(2, priority=2, labels={"new": "er"}, timeout_ms=500, unique=REPLACE)
    )

    worker = await engine.register()
    leases = await engine.lease(worker)
    assert again == first == leases[0].id
    assert (leases[0].payload, leases[0].priority) == (b"2", 2)
    assert leases[0].options.timeout_ms == 500
    assert leases[0].key == "mine"
    assert (await by_key(engine, "mine")).id == first


async def test_a_replaced_task_may_move_to_another_lane(engine: Engine) -> None:
    first = await submit(engine, task(1, unique=REPLACE))
    other = msgspec.structs.replace(task(2, unique=REPLACE), name="other", requires=("gpu",))

    assert await submit(engine, other) == first

    weak, able = await engine.register("weak"), await engine.register("w", capabilities=("gpu",))
    assert await engine.lease(weak) == []
    assert [one.lane.name for one in await engine.lease(able)] == ["other"]


async def test_a_scheduled_task_is_replaced_by_one_that_runs_now(engine: Engine) -> None:
    first = await submit(engine, task(1, delay_ms=60_000, unique=REPLACE))
    call = await engine.parked(await engine.register())

    assert await submit(engine, task(2, unique=REPLACE)) == first

    (lease,) = (await call).leases
    assert (lease.id, lease.payload) == (first, b"2")


async def test_tasks_that_replace_each_other_in_one_batch_become_the_last(engine: Engine) -> None:
    call = await engine.parked(await engine.register())

    ids = await asyncio.gather(
        *(submit(engine, task(number, unique=REPLACE)) for number in range(5))
    )

    assert len(set(ids)) == 1
    assert [one.payload for one in (await call).leases] == [b"4"]


async def test_many_replacements_of_a_scheduled_task_in_one_batch(engine: Engine) -> None:
    first = await submit(engine, task(9, delay_ms=60_000, unique=REPLACE))

    await asyncio.gather(
        submit(engine, task(1, delay_ms=5_000, unique=REPLACE)),
        submit(engine, task(2, unique=REPLACE)),
        submit(engine, task(3, delay_ms=9_000, unique=REPLACE)),
    )

    now = await engine.task(first)
    assert (now.state, now.payload) == (TaskState.QUEUED, b"3")


async def test_a_batch_with_a_due_task_and_its_replacement_changes_both(engine: Engine) -> None:
    first = await submit(engine, task(1, delay_ms=1_000, unique=REPLACE))
    engine.clock.turn(1_000)

    await asyncio.gather(engine.coordinator.tick(), submit(engine, task(2, unique=REPLACE)))

    now = await engine.task(first)
    assert (now.state, now.payload) == (TaskState.QUEUED, b"2")


async def test_a_running_task_is_not_replaced(engine: Engine) -> None:
    await submit(engine, task(unique=REPLACE))
    await engine.lease(await engine.register())

    with pytest.raises(UniqueConflict):
        await submit(engine, task(2, unique=REPLACE))


async def test_the_time_to_start_begins_again_with_a_replacement(engine: Engine) -> None:
    first = await submit(engine, task(1, start_within_ms=1_000, unique=REPLACE))
    await engine.turn(900)
    await submit(engine, task(2, start_within_ms=1_000, unique=REPLACE))

    await engine.turn(900)
    waiting = await engine.task(first)
    await engine.turn(100)
    ended = await engine.task(first)

    assert (waiting.state, ended.state) == (TaskState.QUEUED, TaskState.FAILED)
    assert held(engine) == []


# --- debounce -----------------------------------------------------------------------------------


async def test_a_burst_becomes_one_task_that_runs_when_it_is_quiet(engine: Engine) -> None:
    ids = set()
    for number in range(5):
        ids.add(await submit(engine, debounced(number)))
        await engine.turn(900)
    (first,) = ids
    assert (await engine.task(first)).state is TaskState.SCHEDULED

    await engine.turn(100)

    (lease,) = await engine.lease(await engine.register())
    assert (lease.id, lease.payload) == (first, b"4")
    assert held(engine) == []


async def test_a_burst_without_an_end_runs_when_its_bound_is_reached(engine: Engine) -> None:
    ids = []
    for number in range(4):
        ids.append(await submit(engine, debounced(number, max_wait_ms=2_500)))
        await engine.turn(900)

    assert ids[0] == ids[1] == ids[2] != ids[3]
    (lease,) = await engine.lease(await engine.register())
    assert (lease.id, lease.payload) == (ids[0], b"2")


async def test_the_first_of_a_burst_is_kept_if_that_is_asked_for(engine: Engine) -> None:
    first = await submit(engine, debounced(1, keep="first"))
    await engine.turn(500)
    assert await submit(engine, debounced(2, keep="first")) == first

    await engine.turn(999)
    early = await engine.task(first)
    await engine.turn(1)

    assert early.state is TaskState.SCHEDULED
    (lease,) = await engine.lease(await engine.register())
    assert lease.payload == b"1"


async def test_a_task_that_is_due_and_not_started_is_no_part_of_the_next_burst(
    engine: Engine,
) -> None:
    first = await submit(engine, debounced(1))
    await engine.turn(1_000)

    second = await submit(engine, debounced(2))

    assert second != first
    await engine.lease(await engine.register())
    assert held(engine) == [second]


# --- expiry -------------------------------------------------------------------------------------


async def test_a_task_that_is_discarded_has_not_failed(engine: Engine) -> None:
    fail, discard = await engine.submit_all(
        [
            NewTask(name="work", start_within_ms=1_000),
            NewTask(name="work", start_within_ms=1_000, on_expiry="discard", unique=REJECT),
        ]
    )

    await engine.turn(1_000)

    ended = [await engine.task(one) for one in (fail, discard)]
    assert [one.state for one in ended] == [TaskState.FAILED, TaskState.CANCELLED]
    assert [one.error.type for one in ended if one.error] == ["start_timeout"] * 2
    assert held(engine) == []


async def test_a_discarded_task_can_be_retried(engine: Engine) -> None:
    (discarded,) = await engine.submit("work", start_within_ms=1_000, on_expiry="discard")
    await engine.turn(1_000)

    await engine.execute(RetryTasks((discarded,)))
    await engine.turn(999)
    waiting = await engine.task(discarded)
    await engine.turn(1)

    assert (waiting.state, waiting.log, waiting.error) == (TaskState.QUEUED, (), None)
    assert (await engine.task(discarded)).state is TaskState.CANCELLED


# --- the inbox ----------------------------------------------------------------------------------


async def test_a_row_of_the_inbox_is_unique_as_well(engine: Engine) -> None:
    first = await submit(engine, task())
    rows = [("row", task(2)), ("strict", task(3, unique=REJECT)), ("new", task(4, unique=REPLACE))]

    def put(tx: Transaction) -> None:
        for key, one in rows:
            InboxStore(tx).put(key, msgspec.json.encode(one), at_ms=1)

    engine.database.write(put)
    await engine.turn(1_000)

    states = [(await by_key(engine, key)).state for key, _ in rows]
    assert states == [TaskState.CANCELLED, TaskState.FAILED, TaskState.CANCELLED]
    assert (await engine.task(first)).payload == b"4"
    assert held(engine) == [first]


async def test_a_payload_that_cannot_be_compared_refuses_its_submission_alone(
    engine: Engine,
) -> None:
    bad = NewTask(name="work", payload=Raw(b"1e999"), unique=Unique())

    refused, accepted = await asyncio.gather(
        engine.submit_all([bad]), engine.submit(), return_exceptions=True
    )

    assert isinstance(refused, Invalid)
    assert isinstance(accepted, list)


async def test_a_key_may_have_any_character(engine: Engine) -> None:
    strange = Unique(key="a\0b\\ \N{BUG}'\"")
    first = await submit(engine, task(unique=strange))

    assert await submit(engine, task(unique=strange)) == first
    assert await submit(engine, task(unique=Unique(key="a"))) != first


# --- costs --------------------------------------------------------------------------------------


async def test_a_task_that_is_not_unique_costs_no_statement_about_keys(engine: Engine) -> None:
    await submit(engine, task())
    worker = await engine.register()
    (other,) = await engine.lease(worker, 1)
    asked: list[str] = []

    def note(tx: Transaction) -> None:
        kind = type(tx)
        for way in ("execute", "execute_many", "pipeline", "pipeline_many", "rows"):
            original = getattr(kind, way)

            def noting(self: Any, query: str, *rest: Any, _way: Any = original, **more: Any) -> Any:
                asked.append(query)
                return _way(self, query, *rest, **more)

            patches.setattr(kind, way, noting)

    with pytest.MonkeyPatch.context() as patches:
        engine.database.read(note)
        await engine.submit_all([NewTask(name="work")] * 3)
        leases = await engine.lease(worker)
        assert len(leases) == 3
        await engine.report(worker, *map(done, leases))
        assert [query for query in asked if query.startswith("unique.")] == []
        await engine.report(worker, done(other))

    assert "unique.release" in asked


async def test_a_submission_of_many_unique_tasks_is_one_read(engine: Engine) -> None:
    reply = await engine.execute(
        SubmitTasks([task(unique=Unique(key=f"k{number % 50}")) for number in range(100)])
    )

    ids = [item.id for item in reply.items]  # type: ignore[union-attr]  # it has no session
    assert ids[:50] == ids[50:]
    assert len(held(engine)) == 50
