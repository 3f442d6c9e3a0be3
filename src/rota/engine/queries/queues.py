"""Depth, age and rates of each queue, summed over its lanes."""

from collections.abc import Mapping

from msgspec import Struct

from rota.engine.metrics.metrics import QueueRates
from rota.store.database import Transaction
from rota.store.tasks.lanes import Lanes
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


def queue_figures(
    tx: Transaction, lanes: Lanes, rates: Mapping[str, QueueRates], *, now_ms: int
) -> list[QueueFigures]:
    queues = QueueStore(tx)
    paused, by_lane = queues.paused(), queues.lane_counts()
    by_queue: dict[str, list[LaneCounts]] = {name: [] for name in queues.known()}
    for number, lane in lanes.current().items():
        if number in by_lane:
            by_queue.setdefault(lane.queue, []).append(by_lane[number])
    return [
        _queue(
            name, counted, rates.get(name, QueueRates()), is_paused=name in paused, now_ms=now_ms
        )
        for name, counted in sorted(by_queue.items())
    ]


def _queue(
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
