"""Room for new kinds of tasks: refused alone, made by dropping lanes, and agreed on by replicas."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from rota.core import limits
from rota.core.commands import CancelTasks, PruneHistory
from rota.core.ids import TaskId
from rota.core.tasks.model import NewTask
from rota.errors import TooMany
from tests.conftest import TurnedClock
from tests.engine.running import Engine
from tests.engine.sharing import replicas

FAR_MS = 4_000_000_000_000  # after the end of every task, by any clock


async def forget(engine: Engine, *ids: TaskId) -> None:
    """End tasks, and delete them from history."""
    await engine.execute(CancelTasks(ids))
    await engine.execute(PruneHistory(FAR_MS))


async def test_a_submission_without_room_breaks_no_batch(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_LANES_PER_QUEUE", 2)

    first, refused, second = await asyncio.gather(
        engine.submit("a", "b"),
        engine.submit("c"),
        engine.submit("c", queue="other"),
        return_exceptions=True,
    )

    assert isinstance(refused, TooMany)
    assert isinstance(first, list)
    assert isinstance(second, list)
    assert engine.coordinator.metrics().failed_batches == 0


async def test_a_queue_gets_new_lanes_when_the_tasks_of_old_ones_are_gone(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_LANES_PER_QUEUE", 3)
    ids = await engine.submit("a", "b", "c")
    await forget(engine, *ids[:2])

    (task_id,) = await engine.submit("d")

    assert (await engine.task(task_id)).lane.name == "d"
    assert (await engine.task(ids[2])).lane.name == "c"
    with pytest.raises(TooMany):
        await engine.submit("e", "f")


@pytest.fixture(params=[0, 1], ids=["first-leads", "second-leads"])
async def pair(
    clock: TurnedClock, request: pytest.FixtureRequest
) -> AsyncIterator[tuple[Engine, Engine]]:
    async with replicas(clock, leader=request.param) as (one, other):
        yield one, other


async def test_a_lane_that_one_replica_has_dropped_is_used_by_no_other(
    pair: tuple[Engine, Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_LANES_PER_QUEUE", 4)
    one, other = pair
    ids = await one.submit("a", "b", "c", "d")
    ids += await other.submit("a", "b", "c", "d")
    await forget(one, *ids)
    await one.submit("e")

    again = await other.submit("a", "e")

    for engine in pair:
        found = [(await engine.task(task_id)).lane.name for task_id in again]
        assert found == ["a", "e"]
    worker = await one.register()
    assert [task.lane.name for task in await one.lease(worker)] == ["e", "a", "e"]


async def test_lanes_are_dropped_for_all_replicas_even_if_no_new_one_is_added(
    pair: tuple[Engine, Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_LANES_PER_QUEUE", 4)
    one, other = pair
    ids = await one.submit("a", "b", "c", "d")
    ids += await other.submit("a", "b", "c")
    await forget(one, *ids[:3], *ids[4:])  # that with the highest number stays
    with pytest.raises(TooMany):
        await one.submit(*(f"n{number}" for number in range(10)))

    again = await other.submit("a", "b", "d")

    for engine in pair:
        found = [(await engine.task(task_id)).lane.name for task_id in again]
        assert found == ["a", "b", "d"]


async def test_a_full_store_takes_known_kinds_and_recovers(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_LANES", 4)
    tasks = [NewTask(name="n", queue=f"q{number}") for number in range(4)]
    ids = await engine.submit_all(tasks)

    with pytest.raises(TooMany, match="more than 4 distinct"):
        await engine.submit("n", queue="late")
    assert await engine.submit_all(tasks[:1])
    await forget(engine, *ids[1:])
    await engine.turn(limits.LANE_SWEEP_INTERVAL_MS)

    assert await engine.submit("n", queue="late")
    shown = {queue.name for queue in await engine.coordinator.queries.queues.all()}
    assert {"q0", "late"} <= shown
    assert len(shown) == 3
