"""What time does the coordinator think it is? The loop's time, set forth and back at will."""

from collections.abc import Callable

from rota.core.workers.eviction_guards import DEFAULT_EVICTION_POLICY
from rota.core.workers.registry import SWEEP_INTERVAL_MS

START_MS = 1_750_000_000_000


class SimulatedClock:
    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._offset_ms = 0
        self._jumps: list[tuple[float, int]] = []

    def now_ms(self) -> int:
        return START_MS + self._offset_ms + int(self._now_s() * 1000)

    def jump(self, by_ms: int) -> None:
        self._offset_ms += by_ms
        self._jumps.append((self._now_s(), by_ms))

    def forward_ms(self, since_s: float) -> int:
        """How much silence a worker seems to have kept since a moment, only by our clock.

        A jump that is longer than the coordinator takes for a pause of its own is none of these:
        there it has to grant amnesty.
        """
        most_ms = DEFAULT_EVICTION_POLICY.pause_sweeps * SWEEP_INTERVAL_MS
        return sum(by_ms for at_s, by_ms in self._jumps if at_s >= since_s and 0 < by_ms <= most_ms)

    @property
    def last_forward_s(self) -> float:
        return max((at_s for at_s, by_ms in self._jumps if by_ms > 0), default=-1.0)

    @property
    def backward_ms(self) -> int:
        """By how much it was set back, in all."""
        return -sum(by_ms for _, by_ms in self._jumps if by_ms < 0)
