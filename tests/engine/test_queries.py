import asyncio
from pathlib import Path

import pytest

from rota.core.access import AccessToken, Scope
from rota.core.commands import AddToken, CancelTasks, PauseQueue, RevokeToken, TaskFilter
from rota.core.ids import TaskId
from rota.core.tasks.model import NewTask, TaskState
from rota.engine.queries import tasks
from rota.engine.queries.queues import QueueFigures
from tests.conftest import TurnedClock
from tests.engine.running import Engine, done, running


async def test_tasks_are_listed_newest_first_and_page_by_page(engine: Engine) -> None:
    ids = await engine.submit(*["work"] * 5)
    every = TaskFilter()

    first = await engine.coordinator.queries.tasks.page(every, limit=2)
    second = await engine.coordinator.queries.tasks.page(every, limit=9, before=first[-1].id)

    assert [task.id for task in first + second] == ids[::-1]
    assert await engine.coordinator.queries.tasks.ids(every, limit=3) == ids[:1:-1]
    assert await engine.coordinator.queries.tasks.count(every) == 5


async def test_tasks_are_chosen_by_what_the_filter_says(engine: Engine) -> None:
    (mail,) = await engine.submit("mail", queue="q", labels={"team": "blue"})
    (other,) = await engine.submit("other", queue="q")
    await engine.execute(CancelTasks((other,)))
    listed = engine.coordinator.queries.tasks.ids

    assert await listed(TaskFilter(name="mail"), limit=9) == [mail]
    assert await listed(TaskFilter(queue="q"), limit=9) == [other, mail]
    assert await listed(TaskFilter(label="team=blue"), limit=9) == [mail]
    assert await listed(TaskFilter(states=(TaskState.CANCELLED,)), limit=9) == [other]
    assert await listed(TaskFilter(queue="unknown"), limit=9) == []


async def test_a_position_is_a_queued_tasks_place_in_its_lane(engine: Engine) -> None:
    ids = await engine.submit("work", "other", "work", "work")
    (first,) = await engine.submit("work", priority=9)
    (later,) = await engine.submit("work", delay_ms=5)

    async def position(task_id: TaskId) -> int | None:
        return await engine.coordinator.queries.tasks.position(await engine.task(task_id))

    assert [await position(task_id) for task_id in (first, *ids)] == [1, 2, 1, 3, 4]
    assert await position(later) is None


async def test_a_position_far_back_is_not_told(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "MOST_COUNTED_AHEAD", 3)
    ids = await engine.submit(*["work"] * 5)

    positions = [
        await engine.coordinator.queries.tasks.position(await engine.task(task_id))
        for task_id in ids
    ]

    assert positions == [1, 2, 3, None, None]


async def test_queues_tell_how_much_waits_and_how_fast_it_goes(
    engine: Engine, clock: TurnedClock
) -> None:
    worker = await engine.register(max_concurrent_tasks=2)
    await engine.submit_all([NewTask(name="work", max_attempts=1)] * 6)
    await engine.submit(delay_ms=99)
    good, bad = await engine.lease(worker)
    await engine.report(worker, done(good), done(bad, ok=False))
    await engine.lease(worker, 1)
    await engine.execute(PauseQueue("quiet", paused=True))
    clock.turn(5_000)

    assert await engine.coordinator.queries.queues.all() == [
        QueueFigures(
            name="default",
            paused=False,
            depth=3,
            scheduled=1,
            running=1,
            oldest_age_ms=5_000,
            submitted_per_s=7 / 60,
            finished_per_s=2 / 60,
            failed_per_s=1 / 60,
        ),
        QueueFigures(name="quiet", paused=True),
    ]


async def test_workers_tell_what_they_hold_and_how_they_do(engine: Engine) -> None:
    worker = await engine.register("a")
    await engine.register("b")
    await engine.submit("work", "work")
    first, _ = await engine.lease(worker)
    await engine.report(worker, done(first))

    found = await engine.coordinator.queries.workers.all()
    alone = await engine.coordinator.queries.workers.by_id("a")

    assert [(one.worker.id, one.held) for one in found] == [("a", 1), ("b", 0)]
    assert alone == found[0]
    assert found[0].qualities["work"].statistics.tasks_completed == 1
    assert await engine.coordinator.queries.workers.by_id("c\0") is None


async def test_tokens_are_listed_until_they_are_revoked(engine: Engine) -> None:
    token = AccessToken(id="t", hash="h", name="n", scopes=(Scope.READ,), created_at_ms=1)

    await engine.execute(AddToken(token))
    assert await engine.coordinator.queries.tokens() == [token]
    await engine.execute(RevokeToken("t"))
    assert await engine.coordinator.queries.tokens() == []


async def test_many_may_look_at_once_beside_the_writer(tmp_path: Path, clock: TurnedClock) -> None:
    async with running(tmp_path / "rota.db", clock, inline=False) as engine:

        async def write(number: int) -> None:
            await engine.submit_all([NewTask(name=f"n{number}-{step}") for step in range(30)])

        async def look() -> None:
            every = await engine.coordinator.queries.tasks.page(TaskFilter(), limit=1_000)
            assert len(every) % 30 == 0
            await engine.coordinator.queries.queues.all()
            await engine.coordinator.queries.tasks.count(TaskFilter(queue="default"))

        await asyncio.gather(*(write(number) for number in range(20)), *(look() for _ in range(20)))

        assert await engine.coordinator.queries.tasks.count(TaskFilter()) == 600
