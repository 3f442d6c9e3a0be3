"""What time is it in a test? As late as the test says."""

import time
from collections.abc import Callable


class TurnedClock:
    """Stands still until it is turned. Starts at the real time, so that dates make sense."""

    def __init__(self, now_ms: int | None = None) -> None:
        self._now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        self.on_turn: Callable[[], None] | None = None

    def now_ms(self) -> int:
        return self._now_ms

    def advance(self, *, ms: int = 0, seconds: float = 0, minutes: float = 0) -> None:
        """Let time pass; what became due by it is queued, and what ran out has ended."""
        self.turn_to(self._now_ms + ms + round(seconds * 1_000) + round(minutes * 60_000))

    def turn_to(self, moment_ms: int) -> None:
        if moment_ms < self._now_ms:
            raise ValueError("the clock of a test goes forward only")
        self._now_ms = moment_ms
        if self.on_turn is not None:
            self.on_turn()
