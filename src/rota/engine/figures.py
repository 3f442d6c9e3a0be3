"""What has this coordinator done, and how fast? In memory, cheap, for metrics and health."""

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

RATE_WINDOW_S = 60


class Rate:
    """Events a second over the last minute, counted in buckets of a second."""

    def __init__(self) -> None:
        self._buckets: deque[tuple[int, int]] = deque()
        self._total = 0

    def add(self, count: int, now_ms: int) -> None:
        second = now_ms // 1000
        if self._buckets and self._buckets[-1][0] >= second:
            last, before = self._buckets[-1]
            self._buckets[-1] = (last, before + count)
        else:
            self._buckets.append((second, count))
        self._total += count
        self._drop_old(second)

    def per_second(self, now_ms: int) -> float:
        self._drop_old(now_ms // 1000)
        return self._total / RATE_WINDOW_S

    def _drop_old(self, second: int) -> None:
        while self._buckets and self._buckets[0][0] <= second - RATE_WINDOW_S:
            self._total -= self._buckets.popleft()[1]


@dataclass
class QueueRates:
    submitted: Rate = field(default_factory=Rate)
    finished: Rate = field(default_factory=Rate)
    failed: Rate = field(default_factory=Rate)


@dataclass
class Figures:
    """Counters since the start of this process, and gauges as of now."""

    submitted: Counter[str] = field(default_factory=Counter)  # by queue
    finished: Counter[tuple[str, str]] = field(default_factory=Counter)  # by queue and state
    requeued: Counter[str] = field(default_factory=Counter)  # by how the attempt ended
    leased: int = 0
    refused_results: Counter[str] = field(default_factory=Counter)  # by outcome
    evicted_workers: int = 0
    held_sweeps: Counter[str] = field(default_factory=Counter)  # by reason
    forgotten: int = 0
    batches: int = 0
    batched_events: int = 0
    failed_batches: int = 0
    commit_seconds: float = 0.0
    overloads: int = 0
    waiting: int = 0  # changes waiting for their commit
    parked: int = 0  # lease calls waiting for work
    duty_runs_ms: dict[str, int] = field(default_factory=dict)  # when each duty last ran
    rates: dict[str, QueueRates] = field(default_factory=dict)

    def note_submitted(self, by_queue: Mapping[str, int], now_ms: int) -> None:
        for queue, count in by_queue.items():
            self.submitted[queue] += count
            self._rates(queue).submitted.add(count, now_ms)

    def note_finished(self, ends: Iterable[tuple[str, str]], now_ms: int) -> None:
        for (queue, state), count in Counter(ends).items():
            self.finished[queue, state] += count
            rates = self._rates(queue)
            rates.finished.add(count, now_ms)
            if state == "failed":
                rates.failed.add(count, now_ms)

    def _rates(self, queue: str) -> QueueRates:
        return self.rates.setdefault(queue, QueueRates())
