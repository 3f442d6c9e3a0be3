"""How long does the event loop keep callers waiting? Asked from another thread."""

import asyncio
import contextlib
import time


class LoopLag:
    """Asks the loop for a sign, and measures how long that takes."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._asked_at: float | None = None
        self._lag_s = 0.0

    def measure_ms(self) -> float:
        """The lag seen by the last question, or of the one that still waits."""
        if self._asked_at is not None:
            return (time.monotonic() - self._asked_at) * 1000
        self._asked_at = time.monotonic()
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._answer)
        return self._lag_s * 1000

    def _answer(self) -> None:
        if self._asked_at is not None:
            self._lag_s = time.monotonic() - self._asked_at
            self._asked_at = None
