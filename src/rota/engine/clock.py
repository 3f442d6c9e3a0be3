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
    """A clock for what must not end early; one that tests turn is steady enough."""
    return SteadyClock() if isinstance(clock, SystemClock) else clock
