"""What has this coordinator done, and how fast? In memory, cheap, for metrics and health."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

RATE_WINDOW_S = 60


class Rate:
    """Events a second over the last minute, counted in slots of a second.

    The slots go round and never move, so one thread may count while others read.
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
        oldest = newest - RATE_WINDOW_S  # this one is over; a second in the future counts for none
        total = sum(count for second, count in self._slots if oldest < second <= newest)
        return total / RATE_WINDOW_S


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
        known = self.rates.get(queue)
        if known is None:
            known = self.rates[queue] = QueueRates()
        return known
