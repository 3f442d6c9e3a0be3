"""How do beats cost little? Those that come within a moment are carried out together.

A beat alone is a commit. A fleet's beats come all the time, and none of them is in a hurry: each
may wait for a small part of its own interval, in which others come.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from rota.core.events import Heartbeat
from rota.engine.coordinator import Coordinator
from rota.errors import RotaError

PATIENCE = 1 / 20  # of the interval, that a beat may wait
MOST_WAIT_S = 0.25

Answer = Callable[[Any], None]  # takes the outcome, or the exception


class Beats:
    """Gathers beats, and hands them on in one go. Belongs to the event loop."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._waiting: list[tuple[Heartbeat, Answer]] = []
        self._timer: asyncio.TimerHandle | None = None

    def add(self, beat: Heartbeat, *, interval_ms: int, answer: Answer) -> None:
        """`answer` is called with what became of this beat."""
        loop = asyncio.get_running_loop()
        self._waiting.append((beat, answer))
        when = loop.time() + min(MOST_WAIT_S, interval_ms / 1000 * PATIENCE)
        if self._timer is not None and when < self._timer.when():
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = loop.call_at(when, self._hand_on)

    def _hand_on(self) -> None:
        self._timer = None
        waiting, self._waiting = self._waiting, []
        for beat, answer in waiting:
            try:
                self._coordinator.hear(beat, answer)
            except RotaError as error:
                answer(error)
