import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rota.core.commands import CancelTasks, PauseQueue, SetWorkerState
from rota.core.tasks.model import NewTask, TaskRecord, TaskState
from rota.core.workers.circuit_breaker import DEFAULT_BREAKER_POLICY
from rota.core.workers.model import WorkerRecord, WorkerState
from rota.store.postgres.transaction import PostgresTransaction
from rota.store.sqlite.database import SqliteTransaction
from tests.conftest import TurnedClock
from tests.engine.running import Engine, done, running

FAILURES = DEFAULT_BREAKER_POLICY.failures_in_a_row


async def granted(
    engine: Engine, *workers: WorkerRecord, most: int = 100
) -> list[list[TaskRecord]]:
    """What several workers get that ask at one moment."""
    return [*await asyncio.gather(*(engine.lease(worker, most) for worker in workers))]


async def test_higher_priority_first_then_first_come_over_all_lanes(engine: Engine) -> None:
    worker = await engine.register(max_concurrent_tasks=100)
    tasks = [
        NewTask(name=f"n{number % 4}", queue=f"q{number % 2}", priority=number * 7 % 3)
        for number in range(24)
    ]
    ids = await engine.submit_all(tasks)

    order = [task.id for _ in range(6) for task in await engine.lease(worker, 4)]

    expected = sorted(zip(tasks, ids, strict=True), key=lambda pair: (-pair[0].priority, pair[1]))
    assert order == [task_id for _, task_id in expected]


async def test_what_has_just_come_stands_in_line_with_what_waits(engine: Engine) -> None:
    worker = await engine.register(max_concurrent_tasks=100)
    (old,) = await engine.submit("a", priority=1)
    new = [NewTask(name="b", priority=2), NewTask(name="a"), NewTask(name="b", priority=1)]

    ids, leased = await asyncio.gather(engine.submit_all(new), engine.lease(worker, 2))

    urgent, last, middle = ids
    assert [task.id for task in leased] == [urgent, old]
    assert [task.id for task in await engine.lease(worker)] == [middle, last]


async def test_a_task_that_somebody_waits_for_never_enters_the_queue(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = await engine.register()
    await engine.submit()
    await engine.lease(worker)
    parked = await engine.parked(worker)
    asked: list[str] = []

    def noting(way: Callable[..., Any]) -> Callable[..., Any]:
        def note(self: Any, *arguments: Any, **parameters: Any) -> Any:
            asked.extend(one for one in arguments if isinstance(one, str))
            return way(self, *arguments, **parameters)

        return note

    for kind in (SqliteTransaction, PostgresTransaction):
        for way in ("rows", "records", "execute", "execute_many", "pipeline", "pipeline_many"):
            monkeypatch.setattr(kind, way, noting(getattr(kind, way)))
    await engine.submit()

    assert len((await parked).leases) == 1
    assert [query for query in asked if not query.startswith("replicas.")] == [
        "tasks.add",
        "tasks.lease",
        "events.add",
    ]


async def test_what_nobody_has_room_for_is_queued(engine: Engine) -> None:
    worker = await engine.register(max_concurrent_tasks=1)
    parked = await engine.parked(worker)

    ids = await engine.submit_all([NewTask(name="work", key=f"k{place}") for place in range(3)])

    (leased,) = (await parked).leases
    assert leased.id == ids[0]
    await engine.report(worker, done(leased))
    assert [task.id for task in await engine.lease(worker)] == [ids[1]]
    await engine.execute(CancelTasks((ids[2],)))
    assert (await engine.task(ids[2])).state is TaskState.CANCELLED


async def test_what_has_just_come_to_a_paused_queue_waits_there(engine: Engine) -> None:
    worker = await engine.register()
    await engine.submit(queue="mail")
    await engine.lease(worker)
    await engine.execute(PauseQueue("mail", paused=True))
    parked = await engine.parked(worker)

    (held,) = await engine.submit(queue="mail")
    await engine.execute(PauseQueue("mail", paused=False))

    assert [task.id for task in (await parked).leases] == [held]


async def test_a_lease_says_all_that_a_worker_needs(engine: Engine, clock: TurnedClock) -> None:
    worker = await engine.register()
    (task_id,) = await engine.submit("resize", timeout_ms=500, max_attempts=7, queue="images")

    (task,) = await engine.lease(worker)

    assert (task.id, task.lane.name, task.lane.queue) == (task_id, "resize", "images")
    assert (task.fence, task.attempt, task.options.max_attempts) == (1, 1, 7)
    assert (task.started_at_ms, task.deadline_ms) == (clock.now_ms(), clock.now_ms() + 500)


async def test_capacity_is_never_overshot_by_calls_of_one_worker_at_one_moment(
    engine: Engine,
) -> None:
    worker = await engine.register(max_concurrent_tasks=3)
    parked = await engine.parked(worker)
    await engine.submit_all([NewTask(name="work")] * 2)
    await parked
    await engine.submit_all([NewTask(name="work")] * 20)

    shares = await granted(engine, worker, worker, worker, most=2)

    assert sum(len(tasks) for tasks in shares) == 1
    figures = await engine.coordinator.queries.workers.by_id("w1")
    assert figures is not None
    assert figures.held == 3


async def test_several_parked_calls_of_one_worker_share_its_capacity(engine: Engine) -> None:
    worker = await engine.register(max_concurrent_tasks=2)
    calls = [await engine.parked(worker) for _ in range(4)]

    await engine.submit_all([NewTask(name="work")] * 10)

    figures = await engine.coordinator.queries.workers.by_id("w1")
    assert figures is not None
    assert figures.held == 2
    for call in calls:
        call.cancel()


@pytest.mark.parametrize(
    ("worker", "served"),
    [
        ({}, {"a", "b"}),
        ({"tasks": ("b",)}, {"b"}),
        ({"queues": ("other",)}, {"other"}),
        ({"capabilities": ("gpu",), "queues": ("default",)}, {"a", "b", "needs gpu"}),
    ],
)
async def test_a_worker_gets_only_what_it_can_serve(
    engine: Engine, worker: dict[str, Any], served: set[str]
) -> None:
    await engine.submit("a", "b")
    await engine.submit("other", queue="other")
    await engine.submit("needs gpu", requires=("gpu",))

    tasks = await engine.lease(await engine.register(**worker))

    extra = {"other"} if not worker else set()
    assert {task.lane.name for task in tasks} == served | extra


async def test_a_paused_queue_gives_nothing_until_it_is_resumed(engine: Engine) -> None:
    worker = await engine.register()
    await engine.submit(queue="mail")
    await engine.submit(queue="film")

    await engine.execute(PauseQueue("mail", paused=True))
    first = await engine.lease(worker)
    await engine.execute(PauseQueue("mail", paused=False))
    second = await engine.lease(worker)

    assert [task.lane.queue for task in first + second] == ["film", "mail"]


@pytest.mark.parametrize("state", [WorkerState.DRAINING, WorkerState.QUARANTINED])
async def test_a_worker_that_is_not_active_gets_nothing_and_may_finish(
    engine: Engine, state: WorkerState
) -> None:
    worker = await engine.register()
    await engine.submit("a")
    (task,) = await engine.lease(worker)
    await engine.submit("b")

    await engine.execute(SetWorkerState(worker_id="w1", state=state))

    assert await engine.lease(worker) == []
    assert await engine.report(worker, done(task)) == ["accepted"]


# --- among several ------------------------------------------------------------------------------


async def test_equal_workers_that_ask_at_one_moment_share_alike(engine: Engine) -> None:
    workers = [await engine.register(f"w{number}") for number in range(4)]
    await engine.submit_all([NewTask(name="work")] * 12)

    shares = await granted(engine, *workers)

    assert [len(tasks) for tasks in shares] == [3, 3, 3, 3]
    ids = [task.id for tasks in shares for task in tasks]
    assert len(set(ids)) == 12


async def test_a_worker_that_fails_gets_less_than_one_that_succeeds(engine: Engine) -> None:
    good, bad = await engine.register("good"), await engine.register("bad")
    for _ in range(3):
        await engine.submit_all([NewTask(name="work", max_attempts=1)] * 2)
        (one,) = await engine.lease(good, 1)
        (other,) = await engine.lease(bad, 1)
        await engine.report(good, done(one))
        await engine.report(bad, done(other, ok=False))
    await engine.submit_all([NewTask(name="work")] * 3)

    to_bad, to_good = await granted(engine, bad, good)

    assert len(to_good) > len(to_bad)


async def test_round_robin_remembers_whose_turn_it_was(tmp_path: Path) -> None:
    async with running(tmp_path / "rota.db", strategy="round-robin") as engine:
        workers = [await engine.register(name) for name in "abc"]
        order = []
        for _ in range(6):
            await engine.submit()
            shares = await granted(engine, *workers)
            (chosen,) = (w.id for w, tasks in zip(workers, shares, strict=True) if tasks)
            order.append(chosen)

    assert order == ["a", "b", "c", "a", "b", "c"]


async def test_those_who_wait_and_those_who_ask_now_are_dealt_to_alike(engine: Engine) -> None:
    waiting, asking = await engine.register("waiting"), await engine.register("asking")
    call = await engine.parked(waiting)

    _, now = await asyncio.gather(
        engine.submit_all([NewTask(name="work")] * 4), engine.lease(asking)
    )

    assert (len(now), len((await call).leases)) == (2, 2)


# --- breakers -----------------------------------------------------------------------------------


async def broken(engine: Engine, *names: str) -> WorkerRecord:
    """A worker that has failed so often that it is kept from these tasks; another one is fine."""
    await engine.register("fine", max_concurrent_tasks=1_000, queues=("elsewhere",))
    worker = await engine.register("broken", max_concurrent_tasks=1_000)
    for name in names:
        await engine.submit_all([NewTask(name=name, max_attempts=1)] * FAILURES)
        tasks = await engine.lease(worker)
        await engine.report(worker, *(done(task, ok=False) for task in tasks))
    return worker


async def test_an_open_breaker_keeps_tasks_of_its_name_away(engine: Engine) -> None:
    worker = await broken(engine, "work")
    await engine.submit("work", "other")

    assert [task.lane.name for task in await engine.lease(worker)] == ["other"]


async def test_after_a_while_one_task_goes_through_to_see(
    engine: Engine, clock: TurnedClock
) -> None:
    worker = await broken(engine, "work")
    await engine.submit_all([NewTask(name="work")] * 5)

    clock.turn(DEFAULT_BREAKER_POLICY.open_ms)
    probe = await engine.lease(worker)
    none_beside = await engine.lease(worker)
    await engine.report(worker, done(probe[0]))
    all_again = await engine.lease(worker)

    assert [len(tasks) for tasks in (probe, none_beside, all_again)] == [1, 0, 4]


async def test_a_probe_is_one_task_of_the_name_from_whatever_queue(
    engine: Engine, clock: TurnedClock
) -> None:
    worker = await broken(engine, "work")
    await engine.submit(queue="q1")
    await engine.submit(queue="q2")

    clock.turn(DEFAULT_BREAKER_POLICY.open_ms)
    first, second = await engine.lease(worker), await engine.lease(worker)

    assert (len(first), len(second)) == (1, 0)


async def test_a_probe_that_fails_keeps_the_worker_out_for_longer(
    engine: Engine, clock: TurnedClock
) -> None:
    worker = await broken(engine, "work")
    await engine.submit_all([NewTask(name="work")] * 3)
    clock.turn(DEFAULT_BREAKER_POLICY.open_ms)
    (probe,) = await engine.lease(worker)

    await engine.report(worker, done(probe, ok=False))
    clock.turn(DEFAULT_BREAKER_POLICY.open_ms)
    too_early = await engine.lease(worker)
    clock.turn(DEFAULT_BREAKER_POLICY.open_ms)

    assert (len(too_early), len(await engine.lease(worker))) == (0, 1)


async def test_probes_count_towards_what_a_worker_asked_for(
    engine: Engine, clock: TurnedClock
) -> None:
    worker = await broken(engine, "a", "b")
    await engine.submit("a", "b", "c", "c")

    clock.turn(DEFAULT_BREAKER_POLICY.open_ms)

    assert len(await engine.lease(worker, 3)) == 3
