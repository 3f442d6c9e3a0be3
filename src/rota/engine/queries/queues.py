"""Depth, age and rates of each queue, summed over its lanes, and the limits of keys.

How much of a limit is used is in the memory of the leader.
"""

from msgspec import Struct

from rota.core.flows.model import LimitKind
from rota.core.flows.queue_settings import (
    DEFAULT_SETTINGS,
    Fairness,
    QueueRate,
    QueueSettings,
    targets,
)
from rota.core.outbound.push import PushRecord
from rota.engine.clock import Clock
from rota.engine.metrics.metrics import Metrics
from rota.engine.metrics.rates import QueueRates
from rota.engine.queries.reader import StoreReader
from rota.store.database import Transaction
from rota.store.outbound.push import PushStore
from rota.store.tasks.flows import FlowStore
from rota.store.tasks.queues import LaneCounts, QueueStore

STEP = 1_000  # limits that are read at once
MOST_STEPS = 20  # of one page whose kind few limits have


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
    max_running: int | None = None
    max_queued: int | None = None
    rate: QueueRate | None = None
    weights: dict[str, float] = {}
    fairness: Fairness = "tasks"
    aging_ms: int | None = None
    target_wait_ms: int | None = None
    target_missed_ms: int | None = None  # since when it waits longer; None: it does not
    is_pushed: bool = False


class QueueNames(Struct, frozen=True, kw_only=True):
    known: set[str]
    paused: set[str]


class QueueQueries:
    def __init__(self, reader: StoreReader, metrics: Metrics, *, clock: Clock) -> None:
        self._read = reader.read
        self._lanes = reader.lanes
        self._metrics = metrics
        self._clock = clock

    async def pushed(self) -> dict[str, PushRecord]:
        """Return the queues whose tasks are pushed, by name."""
        return await self._read(lambda tx: PushStore(tx).all())

    async def stuck(self) -> dict[str, int]:
        """Return the queues that are known to be stuck, and since when."""
        return await self._read(lambda tx: QueueStore(tx).stuck())

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
        settings, missed = FlowStore(tx).settings(), queues.missed_targets()
        pushed = PushStore(tx).all()
        return [
            _figures(
                name,
                lanes,
                rates.get(name, QueueRates()),
                settings.get(name, DEFAULT_SETTINGS),
                is_paused=name in paused,
                missed_ms=missed.get(name),
                is_pushed=name in pushed,
                now_ms=now_ms,
            )
            for name, lanes in sorted(by_queue.items())
        ]

    async def has_target_news(self) -> bool:
        """Return whether a queue misses its target and did not, or the other way round.

        Only the leader knows. This is read beside the writer, because it may read many tasks.
        """
        flows, now_ms = self._metrics.working_set.flows, self._clock.now_ms()
        wanted, missed = targets(flows.queues.settings), set(flows.queues.missed)
        if not wanted:
            return False
        return await self._read(
            lambda tx: any(
                QueueStore(tx).has_waited(queue, before_ms=now_ms - target_ms) != (queue in missed)
                for queue, target_ms in wanted
            )
        )

    async def names(self) -> QueueNames:
        return await self._read(
            lambda tx: QueueNames(known=QueueStore(tx).known(), paused=QueueStore(tx).paused())
        )


def _figures(
    name: str,
    lanes: list[LaneCounts],
    rates: QueueRates,
    settings: QueueSettings,
    *,
    is_paused: bool,
    missed_ms: int | None,
    is_pushed: bool,
    now_ms: int,
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
        max_running=settings.max_running,
        max_queued=settings.max_queued,
        rate=settings.rate,
        weights=settings.weights,
        fairness=settings.fairness,
        aging_ms=settings.aging_ms,
        target_wait_ms=settings.target_wait_ms,
        target_missed_ms=missed_ms,
        is_pushed=is_pushed,
    )


class LimitQueries:
    def __init__(self, reader: StoreReader) -> None:
        self._read = reader.read

    async def keys(
        self, *, prefix: str, kind: LimitKind | None, after: str, limit: int
    ) -> tuple[list[str], str | None]:
        """Return keys in their order, and the last key that was looked at if there may be more."""

        def body(tx: Transaction) -> tuple[list[str], str | None]:
            found: list[str] = []
            last = after
            for _ in range(MOST_STEPS):
                records = FlowStore(tx).limit_page(prefix=prefix, after=last, limit=STEP)
                for record in records:
                    last = record.key
                    if kind in {None, record.kind}:
                        found.append(record.key)
                        if len(found) == limit:
                            return found, last
                if len(records) < STEP:
                    return found, None
            return found, last

        return await self._read(body)
