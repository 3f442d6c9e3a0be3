"""How can minutes of waiting pass in milliseconds, the same way each time?

An event loop without sockets, threads or a real clock. When nothing is ready it does not wait: it
turns its time to the next timer. What is ready at one moment runs in an order drawn from seeded
dice, so that another seed is another interleaving, and the same seed the same one.
"""

import asyncio
import random
from asyncio import base_events
from typing import Any

MOST_ROUNDS = 100_000  # of one schedule; one that needs more is spinning


class Deadlock(Exception):  # noqa: N818 - read at the raise site
    """Nothing is ready and no timer is set: nothing will happen any more."""


class Spinning(Exception):  # noqa: N818 - as above
    """The schedule goes on without coming to an end."""


class VirtualLoop(base_events.BaseEventLoop):
    def __init__(self, dice: random.Random) -> None:
        super().__init__()
        self.rounds = 0
        self._dice = dice
        self._now_s = 0.0
        # The loop asks its selector to wait for sockets; there are none, so it asks itself.
        self._selector = self

    def time(self) -> float:
        return self._now_s

    def select(self, timeout_s: float | None) -> list[Any]:
        """Let the time pass until the next timer, at once."""
        if timeout_s is None:
            raise Deadlock
        self._now_s += timeout_s
        return []

    def _run_once(self) -> None:
        self.rounds += 1
        if self.rounds > MOST_ROUNDS:
            self.rounds = 0  # there must be some left for the end
            raise Spinning
        ready: Any = self._ready  # type: ignore[attr-defined]  # a deque, not in the stubs
        if len(ready) > 1:
            shuffled = list(ready)
            self._dice.shuffle(shuffled)
            ready.clear()
            ready.extend(shuffled)
        super()._run_once()  # type: ignore[misc]  # as above

    def _process_events(self, events: list[Any]) -> None:
        assert not events

    def _write_to_self(self) -> None:
        """Wakes a loop that waits for sockets; this one never does."""


def end_all_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel what still runs and let it go to its end, so that nothing outlives the schedule."""
    while tasks := asyncio.all_tasks(loop):
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.wait(tasks))
