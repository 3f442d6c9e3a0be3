"""The worker's clock, and the pauses between retries."""

import random
import time


def now_s() -> float:
    """Seconds on a clock that never goes back and, where the system has one, counts sleep too."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


def jittered(wait_s: float) -> float:
    """Shorten a wait by up to a half, so that callers spread out."""
    return wait_s * random.uniform(0.5, 1.0)  # noqa: S311 - spread, not secrecy


class RetryBackoff:
    """Exponential back-off with jitter for a caller that retries without end."""

    def __init__(self, *, first_s: float = 0.1, most_s: float = 10.0) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._next_s = first_s

    def wait_s(self, *, at_least_s: float = 0.0) -> float:
        full_s = max(self._next_s, at_least_s)
        self._next_s = min(self._next_s * 2, self._most_s)
        return jittered(full_s)

    def reset(self) -> None:
        self._next_s = self._first_s
