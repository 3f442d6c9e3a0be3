"""What happens when? A heap of moments; time jumps from one to the next."""

import heapq
from collections.abc import Callable
from typing import Any

START_MS = 1_800_000_000_000


class Timeline:
    def __init__(self) -> None:
        self.now_ms = START_MS
        self.events = 0
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []

    def at(self, moment_ms: int, action: Callable[..., None], *arguments: Any) -> None:
        """Do this then; what was asked for first comes first at the same moment."""
        assert moment_ms >= self.now_ms
        self.events += 1
        heapq.heappush(self._heap, (moment_ms, self.events, action, arguments))

    def after(self, delay_ms: int, action: Callable[..., None], *arguments: Any) -> None:
        self.at(self.now_ms + delay_ms, action, *arguments)

    def run_until(self, end_ms: int) -> None:
        heap = self._heap
        while heap and heap[0][0] <= end_ms:
            self.now_ms, _, action, arguments = heapq.heappop(heap)
            action(*arguments)
        self.now_ms = end_ms


class MemberClock:
    """A clock that only rises, with a zero of its own, and not quite at the right speed."""

    def __init__(self, timeline: Timeline, *, rate: float, zero_ms: int) -> None:
        self._timeline = timeline
        self._rate = rate
        self._zero_ms = zero_ms

    def now_ms(self) -> int:
        return int((self._timeline.now_ms - START_MS) * self._rate) + self._zero_ms

    def moment_ms(self, own_ms: int) -> int:
        """When, in true time, this clock will have reached a moment of its own."""
        return START_MS + max(0, int((own_ms - self._zero_ms) / self._rate) + 1)
