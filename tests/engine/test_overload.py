import asyncio
import threading
from pathlib import Path

import pytest

from rota.core.tasks.model import NewTask
from rota.errors import Overloaded
from tests.conftest import TurnedClock
from tests.engine.running import running, settle, soon

MOST = 100


async def test_beyond_the_bound_submissions_are_refused_and_accepted_work_is_worked_off(
    tmp_path: Path, clock: TurnedClock
) -> None:
    async with running(tmp_path / "rota.db", clock, max_waiting=MOST) as engine:
        worker = await engine.register()
        calls = [asyncio.create_task(engine.submit(*["work"] * 20)) for _ in range(8)]
        beat = asyncio.create_task(engine.beat(worker))

        results = await asyncio.gather(*calls, return_exceptions=True)

        accepted = [one for one in results if isinstance(one, list)]
        refused = [one for one in results if isinstance(one, Overloaded)]
        assert (len(accepted), len(refused)) == (5, 3)
        assert (await soon(beat)).lost == ()
        (queue,) = await engine.coordinator.queries.queues.all()
        assert queue.depth == MOST
        assert engine.coordinator.metrics().overloads == 3
        assert await engine.submit()


async def test_a_refusal_says_which_bound_and_when_to_come_back(
    tmp_path: Path, clock: TurnedClock
) -> None:
    async with running(tmp_path / "rota.db", clock, max_waiting=1) as engine:
        first = asyncio.create_task(engine.submit())
        await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="the limit is 1") as refusal:
            await engine.submit()
        await soon(first)

    assert refusal.value.facts == {"retry_after_s": 1, "limit": "max_waiting"}


async def test_a_submission_larger_than_the_bound_is_taken_when_nothing_waits(
    tmp_path: Path, clock: TurnedClock
) -> None:
    async with running(tmp_path / "rota.db", clock, max_waiting=10) as engine:
        assert len(await engine.submit(*["work"] * 500)) == 500


async def test_what_waits_is_counted_until_it_is_delivered_by_the_thread(
    tmp_path: Path, clock: TurnedClock
) -> None:
    async with running(tmp_path / "rota.db", clock, inline=False, max_waiting=MOST) as engine:
        worker = await engine.register()
        is_held, may_go = threading.Event(), threading.Event()

        def hold() -> None:
            is_held.set()
            assert may_go.wait(30)

        engine.database.on_commit = hold
        first = asyncio.create_task(engine.submit_all([NewTask(name="work")] * 60))
        await asyncio.to_thread(is_held.wait, 30)
        engine.database.on_commit = None
        waiting = engine.coordinator.metrics().waiting
        second = asyncio.create_task(engine.submit_all([NewTask(name="work")] * 40))
        await settle()
        with pytest.raises(Overloaded):
            await engine.submit()
        beat = asyncio.create_task(engine.beat(worker))
        await settle()
        may_go.set()
        answers = await soon(asyncio.gather(first, second))
        await soon(beat)

        assert waiting == 60
        assert [len(ids) for ids in answers] == [60, 40]
        assert engine.coordinator.metrics().waiting == 0
        assert await engine.submit()
