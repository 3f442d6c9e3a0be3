"""Clocks as values, so that tests and simulations can turn them."""

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int: ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


class SteadyClock:
    """The wall-clock time of its creation, advanced by the monotonic clock, which is never set.

    It measures the leases of members. A wall clock that is set forward by too little to be noticed
    would otherwise end a lease here before it ends at its member.
    """

    def __init__(self) -> None:
        self._ahead_ms = (time.time_ns() - time.monotonic_ns()) // 1_000_000

    def now_ms(self) -> int:
        return self._ahead_ms + time.monotonic_ns() // 1_000_000


def steady(clock: Clock) -> Clock:
    """Return a clock for leases, which must not end early.

    A test clock is steady enough. So is a store's clock: all coordinators on the store use the same
    one, and none of them sets it.
    """
    return SteadyClock() if isinstance(clock, SystemClock) else clock


FOLLOWED_MS = 1_000  # a store clock that is behind by more than this was set back
STEP_MS = 1  # how far one write moves the offset back, when the store clock runs a little slower


class StoreClock:
    """The clock of a store that several coordinators share, advanced by this process's own clock.

    With every write the store reports its time. The report takes some time to arrive, so it can
    only be late, and the latest report is the most accurate. This clock never goes back, unless the
    store's own clock was set back.
    """

    def __init__(self, own: Clock) -> None:
        self._own = own
        self._ahead_ms: int | None = None  # offset from the own clock; None: not known yet
        self._last_ms = 0

    def note(self, now_ms: int) -> None:
        """Take in the time that the store has reported."""
        ahead_ms = now_ms - self._own.now_ms()
        known_ms = self._ahead_ms
        if now_ms < self._last_ms - FOLLOWED_MS:
            self._last_ms = 0  # the store's clock was set back
        if known_ms is None or ahead_ms >= known_ms or ahead_ms < known_ms - FOLLOWED_MS:
            self._ahead_ms = ahead_ms
        else:
            self._ahead_ms = max(ahead_ms, known_ms - STEP_MS)

    def now_ms(self) -> int:
        if self._ahead_ms is None:
            return self._own.now_ms()
        self._last_ms = max(self._last_ms, self._own.now_ms() + self._ahead_ms)
        return self._last_ms


def clock_of(own: Clock, *, is_shared: bool) -> Clock:
    """Return the clock of a coordinator: its own, or that of the store it shares with peers."""
    return StoreClock(steady(own)) if is_shared else own
