"""Settings of queues, on a running coordinator."""

from typing import Any

import pytest

from rota.core.events import EventFilter, types_of
from rota.core.flows.queue_settings import QueueRate
from rota.errors import QueueFull
from tests.engine.limiting import change, fleet, submit
from tests.engine.running import Engine, done


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


# --- targets --------------------------------------------------------------------------------------


async def told(engine: Engine, kind: str = "queue-target*") -> list[tuple[str, Any]]:
    wanted = EventFilter(types=types_of([kind]))
    found = await engine.coordinator.queries.events.after(0, wanted, limit=100)
    return [(one.type, one.data) for one in found.items]


async def missed_since(engine: Engine) -> int | None:
    (queue,) = await engine.coordinator.queries.queues.all()
    return queue.target_missed_ms


async def test_a_task_that_waits_too_long_is_reported_once_until_none_does(engine: Engine) -> None:
    worker = await fleet(engine)
    await change(engine, target_wait_ms=5_000)
    await submit(engine, 3)
    await engine.turn(5_000)
    assert await told(engine) == []
    await engine.turn(1_000)
    await engine.turn(10_000)
    since_ms = await missed_since(engine)
    assert since_ms == engine.clock.now_ms() - 10_000
    leased = await engine.lease(worker)
    await engine.turn(2_000)

    assert await missed_since(engine) is None
    assert len(leased) == 3
    assert await told(engine) == [
        ("queue-target-missed", {"target_wait_ms": 5_000}),
        ("queue-target-met", {"target_wait_ms": 5_000, "missed_for_ms": 12_000}),
    ]


async def test_a_late_start_is_reported_even_if_nothing_waits_any_more(engine: Engine) -> None:
    worker = await fleet(engine)
    await change(engine, target_wait_ms=5_000)
    await submit(engine, delay_ms=60_000)
    await submit(engine, fair_key="a")
    engine.clock.turn(6_000)
    await engine.lease(worker)
    assert await missed_since(engine) == engine.clock.now_ms()
    await engine.turn(54_000)
    await engine.turn(2_000)
    assert await missed_since(engine) is None
    assert len(await engine.lease(worker)) == 1

    assert [kind for kind, _ in await told(engine)] == ["queue-target-missed", "queue-target-met"]


async def test_a_missed_target_is_known_after_a_restart_and_not_told_again(
    engine: Engine,
) -> None:
    await change(engine, target_wait_ms=5_000)
    await submit(engine)
    await engine.turn(6_000)
    engine.coordinator.leading.pipeline._held._is_certain = False
    await engine.turn(6_000)

    assert len(await told(engine)) == 1
    assert await missed_since(engine) == engine.clock.now_ms() - 6_000


async def test_a_queue_without_a_target_misses_none(engine: Engine) -> None:
    await change(engine, target_wait_ms=5_000)
    await submit(engine)
    await engine.turn(6_000)
    await change(engine, target_wait_ms=None)
    await engine.turn(6_000)

    assert await missed_since(engine) is None
    assert len(await told(engine)) == 1


async def test_a_queue_that_refuses_submissions_says_so_once_a_minute(engine: Engine) -> None:
    await change(engine, max_queued=1)
    await submit(engine)
    for _ in range(3):
        with pytest.raises(QueueFull):
            await submit(engine)
    await engine.turn(60_000)
    with pytest.raises(QueueFull):
        await submit(engine)

    assert await told(engine, "queue-full") == [("queue-full", {"max_queued": 1})] * 2
    assert engine.coordinator.metrics().refusals["queue_full"] == 4
