"""Timers without waiting: a coordinator on a loop whose time jumps from timer to timer."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from tests.conftest import TurnedClock
from tests.engine.running import Engine, running
from tests.simulation.loop import VirtualLoop, end_all_tasks

T = TypeVar("T")


class LoopClock(TurnedClock):
    """The loop's own time as a wall clock, so that both pass together; it can still be turned."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def now_ms(self) -> int:
        return super().now_ms() + round(self._loop.time() * 1000)


def in_virtual_time(body: Callable[[Engine], Awaitable[T]], **settings: Any) -> T:
    """Run the body with a coordinator whose duties keep their intervals, in no time at all."""
    loop = VirtualLoop(random.Random(0))

    async def whole() -> T:
        async with running(":memory:", LoopClock(loop), duties=True, **settings) as engine:
            return await body(engine)

    try:
        return loop.run_until_complete(whole())
    finally:
        end_all_tasks(loop)
        loop.close()


async def let_pass(duration_ms: int) -> None:
    """Let virtual time pass; it takes none of ours."""
    assert isinstance(asyncio.get_running_loop(), VirtualLoop)
    await asyncio.sleep(duration_ms / 1000)
