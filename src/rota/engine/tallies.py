"""How do coordinators on one store know of each other's pace? Each tells what it counted, in beats.

Rates and charts are about the store, and so is how many workers are wanted: whichever coordinator
is asked has to know what all of them have done. What one has counted since its last beat is written
with the next, beside the counts of a few beats before: who misses one finds it in those after. An
old count is never said anew, so that whoever has heard it adds it once.

It belongs to the writer. Counts of a coordinator that ends are lost to the others since its last
beat; they are for charts.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from rota.core.replicas import Counted, Counts, Replica
from rota.engine.series import ALL

BEATS_TOLD = 5
MOST_QUEUES = 1_000  # told of one by one; of the others, the sum


class Tallies:
    def __init__(self, name: str) -> None:
        """Name: ours, whose counts are known without being told."""
        self._name = name
        self._since: dict[str, Counts] = {}  # by queue, since the last beat
        self._told: deque[Counted] = deque(maxlen=BEATS_TOLD)
        self._number = 0
        self._heard: dict[tuple[str, int], int] = {}  # the last number of each, and of which start

    def add(self, queue: str, more: Counts) -> None:
        before = self._since.get(queue)
        self._since[queue] = more if before is None else _sum((before, more))

    def draw_up(self) -> tuple[Counted, ...]:
        """What is to be told with a beat; if that is never written, it is told with the next."""
        if self._since:
            self._number += 1
            self._told.append(Counted(number=self._number, queues=_bounded(self._since)))
            self._since = {}
        return tuple(self._told)

    def new_of(self, replicas: Iterable[Replica]) -> list[Mapping[str, Counts]]:
        """What the others have told that was not heard before."""
        found: list[Mapping[str, Counts]] = []
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
    """Of one that is new to us: all that it ever counted, or, if there was more, nothing of it."""
    if counts and counts[0].number > 1:
        return counts[-1].number
    return 0


def _bounded(queues: Mapping[str, Counts]) -> dict[str, Counts]:
    if len(queues) <= MOST_QUEUES:
        return dict(queues)
    busiest = sorted(queues, key=lambda queue: (-sum(queues[queue]), queue))
    told = {queue: queues[queue] for queue in busiest[:MOST_QUEUES]}
    return {**told, ALL: _sum(queues[queue] for queue in busiest[MOST_QUEUES:])}


def _sum(counts: Iterable[Counts]) -> Counts:
    return Counts(*map(sum, zip(*counts, strict=True)))
