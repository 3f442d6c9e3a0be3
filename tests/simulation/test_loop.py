import asyncio
import random
from collections.abc import Coroutine
from typing import Any

import pytest

from tests.simulation.loop import Deadlock, Spinning, VirtualLoop, end_all_tasks


def run(seed: int, work: Coroutine[Any, Any, Any]) -> tuple[Any, float]:
    """What came of the work, and how long it took in the loop's own time."""
    loop = VirtualLoop(random.Random(seed))
    try:
        return loop.run_until_complete(work), loop.time()
    finally:
        end_all_tasks(loop)
        loop.close()


async def order_of_ten() -> list[int]:
    seen: list[int] = []
    for number in range(10):
        asyncio.get_running_loop().call_soon(seen.append, number)
    await asyncio.sleep(1)
    return seen


def test_an_hour_passes_at_once() -> None:
    _, took_s = run(1, asyncio.sleep(3600))

    assert took_s == pytest.approx(3600)


def test_timers_come_in_the_order_of_their_times() -> None:
    async def work() -> list[str]:
        seen: list[str] = []
        for name, delay_s in (("second", 2.0), ("first", 1.0), ("third", 3.0)):
            asyncio.get_running_loop().call_later(delay_s, seen.append, name)
        await asyncio.sleep(5)
        return seen

    assert run(1, work())[0] == ["first", "second", "third"]


def test_the_same_seed_gives_the_same_order_and_another_seed_another() -> None:
    first, again, other = (run(seed, order_of_ten())[0] for seed in (1, 1, 2))

    assert sorted(first) == list(range(10))
    assert first == again
    assert first != other


def test_waiting_for_what_nobody_will_do_is_a_deadlock() -> None:
    async def wait_for_ever() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock):
        run(1, wait_for_ever())


def test_going_on_without_end_is_noticed() -> None:
    def spin_on() -> None:
        asyncio.get_running_loop().call_soon(spin_on)

    async def spin() -> None:
        asyncio.get_running_loop().call_soon(spin_on)
        await asyncio.Event().wait()

    with pytest.raises(Spinning):
        run(1, spin())
