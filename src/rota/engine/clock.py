"""What time is it? Asked of a value, so that tests and simulations can turn it."""

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int: ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


class SteadyClock:
    """The time as it was when this was made, and carried on by a clock that nobody sets.

    Leases of members are counted with it: a wall clock that is put forward by less than would be
    noticed would otherwise end them before their members do.
    """

    def __init__(self) -> None:
        self._ahead_ms = (time.time_ns() - time.monotonic_ns()) // 1_000_000

    def now_ms(self) -> int:
        return self._ahead_ms + time.monotonic_ns() // 1_000_000


def steady(clock: Clock) -> Clock:
    """A clock for what must not end early; one that tests turn is steady enough.

    So is that of a store: whoever shares it goes by the same one, and it is nobody's to set.
    """
    return SteadyClock() if isinstance(clock, SystemClock) else clock


FOLLOWED_MS = 1_000  # a clock of the store that is behind by more than this was set back
STEP_MS = 1  # by which we give way, a write, to one that goes a little slower


class StoreClock:
    """The clock of a store that several coordinators share, carried on by our own in between.

    With every write the store says what time it is. What it says has come some way, so it can only
    be late, and the latest of these times is the truest. Time does not go back by it, unless the
    store's own clock was set back.
    """

    def __init__(self, own: Clock) -> None:
        self._own = own
        self._ahead_ms: int | None = None  # of our own clock; None: nothing is known yet
        self._last_ms = 0

    def note(self, now_ms: int) -> None:
        """The store says that it is now."""
        ahead_ms = now_ms - self._own.now_ms()
        known_ms = self._ahead_ms
        if known_ms is None or ahead_ms >= known_ms or ahead_ms < known_ms - FOLLOWED_MS:
            if known_ms is not None and ahead_ms < known_ms:
                self._last_ms = 0
            self._ahead_ms = ahead_ms
        else:
            self._ahead_ms = max(ahead_ms, known_ms - STEP_MS)

    def now_ms(self) -> int:
        if self._ahead_ms is None:
            return self._own.now_ms()
        self._last_ms = max(self._last_ms, self._own.now_ms() + self._ahead_ms)
        return self._last_ms


def clock_of(own: Clock, *, is_shared: bool) -> Clock:
    """What a coordinator goes by: its own clock, or that of the store it shares with others."""
    return StoreClock(steady(own)) if is_shared else own
