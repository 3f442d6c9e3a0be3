"""How many tasks a second are submitted, finished and failed in each queue."""

from dataclasses import dataclass, field

RATE_WINDOW_S = 60


class EventRate:
    """Events a second over the last minute, counted in slots of a second.

    The slots are a ring of fixed size, so one thread may count while others read.
    """

    def __init__(self) -> None:
        self._slots: list[tuple[int, int]] = [(0, 0)] * RATE_WINDOW_S  # a second, and its count

    def add(self, count: int, now_ms: int) -> None:
        second = now_ms // 1000
        slot = second % RATE_WINDOW_S
        counted_for, before = self._slots[slot]
        self._slots[slot] = (second, before + count if counted_for == second else count)

    def per_second(self, now_ms: int) -> float:
        newest = now_ms // 1000
        oldest = newest - RATE_WINDOW_S  # excluded, and so are seconds in the future
        total = sum(count for second, count in self._slots if oldest < second <= newest)
        return total / RATE_WINDOW_S


@dataclass
class QueueRates:
    submitted: EventRate = field(default_factory=EventRate)
    finished: EventRate = field(default_factory=EventRate)
    failed: EventRate = field(default_factory=EventRate)
