"""Counters that coordinators on one store exchange with their heartbeats.

Rates, charts and autoscaling describe the whole store. So every coordinator needs the counts of all
coordinators. With each heartbeat a coordinator writes its counts since the last heartbeat, beside
the counts of a few earlier ones. A peer that misses a heartbeat finds its counts in the next ones.
Each set of counts keeps its number, so a peer adds it only once.

Only the writer uses the counters. When a coordinator ends, its peers lose its counts since its last
heartbeat. This is acceptable, because the counts only feed charts.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from rota.core.replicas import Counted, QueueCounts, Replica
from rota.engine.metrics.time_series import ALL

BEATS_TOLD = 5
MOST_QUEUES = 1_000  # counted one by one; the others are summed


class ReplicaCounters:
    def __init__(self, name: str) -> None:
        """`name`: this coordinator, whose own counts are not read from heartbeats."""
        self._name = name
        self._since: dict[str, QueueCounts] = {}  # by queue, since the last heartbeat
        self._told: deque[Counted] = deque(maxlen=BEATS_TOLD)
        self._number = 0
        self._heard: dict[tuple[str, int], int] = {}  # last number read, by name and start time

    def add(self, queue: str, more: QueueCounts) -> None:
        before = self._since.get(queue)
        self._since[queue] = more if before is None else _sum((before, more))

    def draw_up(self) -> tuple[Counted, ...]:
        """Return the counts for a heartbeat; if that is never written, the next one has them."""
        if self._since:
            self._number += 1
            self._told.append(Counted(number=self._number, queues=_bounded(self._since)))
            self._since = {}
        return tuple(self._told)

    def new_of(self, replicas: Iterable[Replica]) -> list[Mapping[str, QueueCounts]]:
        """Return the counts of peers that this coordinator has not read before."""
        found: list[Mapping[str, QueueCounts]] = []
        heard: dict[tuple[str, int], int] = {}
        for one in replicas:
            if one.name == self._name:
                continue
            key = one.name, one.started_at_ms
            heard[key] = max((counted.number for counted in one.counts), default=0)
            known = self._heard.get(key, _unheard(one.counts))
            found += [counted.queues for counted in one.counts if counted.number > known]
        self._heard = heard
        return found


def _unheard(counts: Sequence[Counted]) -> int:
    """Return the number after which the counts of a new peer are read.

    All of its counts are read if the first one is among them, otherwise none.
    """
    if counts and counts[0].number > 1:
        return counts[-1].number
    return 0


def _bounded(queues: Mapping[str, QueueCounts]) -> dict[str, QueueCounts]:
    if len(queues) <= MOST_QUEUES:
        return dict(queues)
    busiest = sorted(queues, key=lambda queue: (-sum(queues[queue]), queue))
    told = {queue: queues[queue] for queue in busiest[:MOST_QUEUES]}
    return {**told, ALL: _sum(queues[queue] for queue in busiest[MOST_QUEUES:])}


def _sum(counts: Iterable[QueueCounts]) -> QueueCounts:
    return QueueCounts(*map(sum, zip(*counts, strict=True)))
