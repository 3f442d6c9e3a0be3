"""Runs at several coordinators: the journal is the one that a coordinator alone would write."""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rota.core.commands import CancelTasks
from tests.conftest import TurnedClock
from tests.engine.flows import Flows, payload_of, tell, tell_at
from tests.engine.graphs import CHILD, FAN, LINE, NAP, PARENT
from tests.engine.running import Engine, done, settle, soon
from tests.engine.sharing import replicas
from tests.engine.test_run_restarts import STORIES

Pair = tuple[Flows, Flows]


@pytest.fixture(params=[0, 1], ids=["first-leads", "second-leads"])
async def pair(clock: TurnedClock, request: pytest.FixtureRequest) -> AsyncIterator[Pair]:
    async with replicas(clock, leader=request.param) as (a, b):
        yield Flows(a), Flows(b)


@pytest.mark.parametrize("name", STORIES)
@pytest.mark.parametrize("seed", range(3))
async def test_several_coordinators_write_the_journal_that_one_alone_would(
    tmp_path: Path, name: str, seed: int
) -> None:
    story, *_ = STORIES[name]
    alone = await tell(story, tmp_path / "alone.db", restarts=lambda _: False)
    dice = random.Random(seed)

    async with replicas(TurnedClock(), 3) as engines:
        places = [Flows(one) for one in engines]
        shared = await tell_at(story, places, lambda step: (step + dice.randrange(2)) % 3)

    assert shared == alone


async def test_a_join_fires_once_however_its_branches_end_at_different_replicas(
    pair: Pair,
) -> None:
    a, b = pair
    worker = await a.engine.register(max_concurrent_tasks=100)
    run_id = await a.start(FAN, {"count": 9})
    leases = await b.engine.lease(worker)
    for number, task in enumerate(leases):
        place = (a, b)[number % 2]
        result = done(task, result=str(payload_of(task)["index"]).encode())
        assert await place.engine.report(worker, result) == ["accepted"]

    assert await a.output(run_id) == {"all": list(range(9))}
    assert await a.replays(run_id)


async def test_a_run_that_ended_elsewhere_has_ended_here(pair: Pair) -> None:
    a, b = pair
    worker = await a.engine.register()
    run_id = await a.start(LINE)
    await b.steer(run_id, "cancel")

    assert (await a.look(run_id)).record.state == "cancelled"
    assert await a.work(worker, {}) == []


async def test_a_caller_that_waits_for_a_run_is_woken_by_its_end_elsewhere(pair: Pair) -> None:
    a, b = pair
    run_id = await a.start(LINE)
    wait = asyncio.create_task(a.engine.coordinator.wait_for_end(run_id, wait_ms=600_000))
    await settle()
    await b.steer(run_id, "cancel")

    await settle()

    await soon(wait)


async def test_a_newer_version_that_was_put_elsewhere_is_started_here(pair: Pair) -> None:
    a, b = pair
    await a.start(LINE)
    newer = (await b.put(LINE.replace("task: second", "task: other"))).version

    shown = await a.begin("line")

    assert shown.record.version == newer.version == 2


async def test_a_child_that_ends_elsewhere_brings_its_parent_on(pair: Pair) -> None:
    a, b = pair
    worker = await a.engine.register(max_concurrent_tasks=1)
    await a.put(CHILD)
    run_id = await b.start(PARENT)
    for place in (a, b, a):
        await place.work(worker, {"work": lambda _: 7})

    assert await b.output(run_id) == {"all": [7, 7, 7]}


async def test_a_timer_fires_once_when_both_coordinators_look(
    pair: Pair, clock: TurnedClock
) -> None:
    a, b = pair
    run_id = await a.start(NAP)
    clock.turn(1_000)
    await b.engine.coordinator.tick()
    await a.engine.coordinator.tick()

    fired = [one for one in await a.journal(run_id) if type(one.event).__name__ == "TimerFired"]
    assert len(fired) == 1
    assert await a.state(run_id) == "completed"


async def test_a_task_of_a_run_that_is_cancelled_elsewhere_tells_its_run_here(pair: Pair) -> None:
    a, b = pair
    worker = await a.engine.register()
    run_id = await a.start(LINE)
    (task,) = await a.engine.lease(worker)

    await b.engine.execute(CancelTasks((task.id,)))

    assert await a.state(run_id) == (await b.state(run_id)) != "running"
    assert await _is_gone(a.engine, worker, task)


async def _is_gone(engine: Engine, worker: object, task: object) -> bool:
    return await engine.report(worker, done(task)) != ["accepted"]  # type: ignore[arg-type]
