"""Depth, age and rates of each queue, summed over its lanes."""

from msgspec import Struct

from rota.engine.clock import Clock
from rota.engine.metrics.metrics import Metrics, QueueRates
from rota.engine.queries.reader import StoreReader
from rota.store.database import Transaction
from rota.store.tasks.queues import LaneCounts, QueueStore


class QueueFigures(Struct, frozen=True, kw_only=True):
    name: str
    paused: bool
    depth: int = 0
    scheduled: int = 0
    running: int = 0
    oldest_age_ms: int | None = None
    submitted_per_s: float = 0.0
    finished_per_s: float = 0.0
    failed_per_s: float = 0.0


class QueueNames(Struct, frozen=True, kw_only=True):
    known: set[str]
    paused: set[str]


class QueueQueries:
    def __init__(self, reader: StoreReader, metrics: Metrics, *, clock: Clock) -> None:
        self._read = reader.read
        self._lanes = reader.lanes
        self._metrics = metrics
        self._clock = clock

    async def all(self) -> list[QueueFigures]:
        """Return the figures of each queue, by name."""
        return await self._read(self._all)

    def _all(self, tx: Transaction) -> list[QueueFigures]:
        now_ms = self._clock.now_ms()
        queues, rates = QueueStore(tx), self._metrics.rates
        paused, by_lane = queues.paused(), queues.lane_counts()
        by_queue: dict[str, list[LaneCounts]] = {name: [] for name in queues.known()}
        for number, lane in self._lanes.current().items():
            if number in by_lane:
                by_queue.setdefault(lane.queue, []).append(by_lane[number])
        return [
            _figures(
                name, lanes, rates.get(name, QueueRates()), is_paused=name in paused, now_ms=now_ms
            )
            for name, lanes in sorted(by_queue.items())
        ]

    async def names(self) -> QueueNames:
        return await self._read(
            lambda tx: QueueNames(known=QueueStore(tx).known(), paused=QueueStore(tx).paused())
        )


def _figures(
    name: str, lanes: list[LaneCounts], rates: QueueRates, *, is_paused: bool, now_ms: int
) -> QueueFigures:
    since = [lane.oldest_since_ms for lane in lanes if lane.oldest_since_ms is not None]
    return QueueFigures(
        name=name,
        paused=is_paused,
        depth=sum(lane.queued for lane in lanes),
        scheduled=sum(lane.scheduled for lane in lanes),
        running=sum(lane.running for lane in lanes),
        oldest_age_ms=max(0, now_ms - min(since)) if since else None,
        submitted_per_s=rates.submitted.per_second(now_ms),
        finished_per_s=rates.finished.per_second(now_ms),
        failed_per_s=rates.failed.per_second(now_ms),
    )
