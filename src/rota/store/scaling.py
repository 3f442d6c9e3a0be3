"""The inputs of autoscaling: work in each lane, recent arrivals and ends, and durations.

All of it is read beside the writer. Recent tasks are a sample: the newest rows of indexes that
exist for other reasons, so that neither a submission nor a result pays for being counted.
"""

from collections import Counter
from typing import NamedTuple

import msgspec
from msgspec import Raw, Struct

from rota.core.ids import COUNTER_BITS
from rota.core.workers.statistics import Statistics
from rota.store.database import Transaction, decoding

MOST_SAMPLED = 1_000  # tasks; shares of so many are off by 3 % at most


class LaneWork(NamedTuple):
    queued: int = 0
    oldest_since_ms: int | None = None
    running: int = 0
    running_since_ms: float | None = None  # on average


class RecentStatistics(Struct, array_like=True):
    """Stored `Statistics` without a decoded histogram, which saves most of the time."""

    tasks_completed: int
    tasks_failed: int
    total_duration_ms: float
    success_weight: float
    failure_weight: float
    weighted_duration_ms: float
    buckets: Raw
    updated_at_ms: int


class NamedStatistics(NamedTuple):
    """The statistics of one worker on one task name."""

    name: str
    statistics: RecentStatistics


assert RecentStatistics.__struct_fields__ == Statistics.__struct_fields__
_named_statistics = decoding(
    NamedStatistics, statistics=msgspec.msgpack.Decoder(RecentStatistics).decode
)


class ScalingStore:
    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def work(self) -> dict[int, LaneWork]:
        """Queued and running tasks of each lane that has any."""
        found: dict[int, LaneWork] = {}
        for lane, count, since_ms in self._tx.rows("queues.queued_by_lane"):
            found[lane] = LaneWork(count, since_ms)
        for lane, count, since_ms in self._tx.rows("scaling.running_by_lane"):
            found[lane] = found.get(lane, LaneWork())._replace(
                running=count, running_since_ms=since_ms
            )
        return found

    def submitted(self, *, since_ms: int) -> Counter[int]:
        """Count the newest tasks by lane, live or finished."""
        newest = [
            row
            for query in ("scaling.newest_live", "scaling.newest_finished")
            for row in self._tx.rows(query, first_id=since_ms << COUNTER_BITS, limit=MOST_SAMPLED)
        ]
        newest.sort(reverse=True)
        return Counter([lane for _, lane in newest[:MOST_SAMPLED]])

    def finished(self, *, since_ms: int) -> Counter[int]:
        """Count the tasks that finished last by lane."""
        limit = MOST_SAMPLED
        return Counter(self._tx.column("scaling.last_finished", since_ms=since_ms, limit=limit))

    def statistics(self) -> list[NamedStatistics]:
        return self._tx.records(_named_statistics, "scaling.statistics")
