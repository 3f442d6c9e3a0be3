"""What scaling looks at: how much stands in each lane, what moved lately, how long tasks take.

All of it is read beside the writer. What moved lately is a sample: the newest rows of indexes that
are there for other reasons, so that neither a submission nor a result pays for being counted.
"""

from collections import Counter
from typing import NamedTuple

import msgspec
from msgspec import Raw, Struct

from rota.core.ids import COUNTER_BITS
from rota.core.statistics import Statistics
from rota.store.database import Transaction

MOST_SAMPLED = 1_000  # tasks; shares made of so many are off by three in a hundred at most


class LaneWork(NamedTuple):
    queued: int = 0
    oldest_since_ms: int | None = None
    running: int = 0
    running_since_ms: float | None = None  # on average


class RecentStatistics(Struct, array_like=True):
    """The front of stored `Statistics`: the histogram is skipped, which saves most of the time."""

    tasks_completed: int
    tasks_failed: int
    total_duration_ms: float
    success_weight: float
    failure_weight: float
    weighted_duration_ms: float
    buckets: Raw
    updated_at_ms: int


assert RecentStatistics.__struct_fields__ == Statistics.__struct_fields__
_unpack = msgspec.msgpack.Decoder(RecentStatistics).decode


class Scaling:
    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def work(self) -> dict[int, LaneWork]:
        """What waits and runs in each lane that holds anything."""
        found: dict[int, LaneWork] = {}
        for lane, count, since_ms in self._tx.rows("queues.depth_by_lane"):
            found[lane] = LaneWork(count, since_ms)
        for lane, count, since_ms in self._tx.rows("scaling.running_by_lane"):
            found[lane] = found.get(lane, LaneWork())._replace(
                running=count, running_since_ms=since_ms
            )
        return found

    def accepted(self, *, since_ms: int) -> Counter[int]:
        """The newest tasks by lane, wherever they stand by now."""
        first = since_ms << COUNTER_BITS
        newest = [
            *self._tx.rows("scaling.newest_live", first, MOST_SAMPLED),
            *self._tx.rows("scaling.newest_finished", first, MOST_SAMPLED),
        ]
        newest.sort(reverse=True)
        return Counter([lane for _, lane in newest[:MOST_SAMPLED]])

    def finished(self, *, since_ms: int) -> Counter[int]:
        """The tasks that finished last, by lane."""
        rows = self._tx.rows("scaling.last_finished", since_ms, MOST_SAMPLED)
        return Counter([lane for (lane,) in rows])

    def statistics(self) -> list[tuple[str, RecentStatistics]]:
        """What every worker knows of every task name."""
        rows = self._tx.rows("scaling.statistics")
        return [(name, _unpack(statistics)) for name, statistics in rows]
