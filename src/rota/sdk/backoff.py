"""How long to wait before trying again? Twice as long each time, up to a limit, never in step."""

import random


class Backoff:
    """The waits of one caller that tries for ever."""

    def __init__(self, *, first_s: float = 0.1, most_s: float = 10.0) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._next_s = first_s

    def wait_s(self, *, at_least_s: float = 0.0) -> float:
        full_s = max(self._next_s, at_least_s)
        self._next_s = min(self._next_s * 2, self._most_s)
        return full_s * random.uniform(0.5, 1.0)  # noqa: S311 - spread, not secrecy

    def reset(self) -> None:
        self._next_s = self._first_s
