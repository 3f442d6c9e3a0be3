"""Room for new lanes: how many there may be in all, in one queue, and by one submission.

A lane is a distinct (queue, name, requires) set. Lanes are kept in memory and searched by every
lease call, so their number is limited. A queue has a share of them, so that the submitters of one
queue cannot take the room of all others.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping

import msgspec
from msgspec import Struct

from rota.core import limits
from rota.core.tasks.model import Lane
from rota.errors import TooMany

HOW_TO = "use names and capabilities again instead of writing ids into them"


class LaneRoom(Struct):
    """The lanes that a store has at the start of a batch, and those that the batch adds."""

    is_known: Callable[[Lane], bool]
    total: int
    by_queue: Mapping[str, int]
    new: set[Lane] = msgspec.field(default_factory=set)
    new_by_queue: Counter[str] = msgspec.field(default_factory=Counter[str])

    def has(self, lane: Lane) -> bool:
        return lane in self.new or self.is_known(lane)

    def take(self, wanted: Collection[Lane]) -> None:
        """Add the lanes of one submission, all of them or none."""
        lanes = {lane for lane in wanted if not self.has(lane)}
        self._check_submission(len(lanes))
        check_lanes(self.total + len(self.new), len(lanes))
        for queue, count in Counter(lane.queue for lane in lanes).items():
            self._check_queue(queue, count)
        self._add(lanes)

    def try_take(self, lane: Lane, *, spare: int = 0, within_share: bool = True) -> bool:
        """Add one lane, unless there is no room for it; `spare` lanes are left free."""
        if self.has(lane):
            return True
        if self.total + len(self.new) + spare >= limits.MAX_LANES:
            return False
        if within_share and self._count(lane.queue) >= limits.MAX_LANES_PER_QUEUE:
            return False
        self._add({lane})
        return True

    def _add(self, lanes: Collection[Lane]) -> None:
        self.new |= {*lanes}
        self.new_by_queue.update(lane.queue for lane in lanes)

    def _count(self, queue: str) -> int:
        return self.by_queue.get(queue, 0) + self.new_by_queue[queue]

    def _check_submission(self, count: int) -> None:
        most = limits.MAX_NEW_LANES_PER_SUBMISSION
        if count > most:
            raise TooMany(
                f"one submission may add {most} distinct sets of queue, task name and required "
                f"capabilities, not {count}; {HOW_TO}, or submit in smaller parts",
                limit="max_new_lanes_per_submission",
            )

    def _check_queue(self, queue: str, wanted: int) -> None:
        most = limits.MAX_LANES_PER_QUEUE
        if self._count(queue) + wanted > most:
            raise TooMany(
                f"more than {most} distinct sets of task name and required capabilities in queue "
                f"{queue!r}; {HOW_TO}",
                limit="max_lanes_per_queue",
                queue=queue,
            )


def check_lanes(known: int, wanted: int) -> None:
    """Refuse lanes beyond the limit for all queues together."""
    most = limits.MAX_LANES
    if known + wanted > most:
        raise TooMany(
            f"more than {most} distinct sets of queue, task name and required capabilities; "
            f"{HOW_TO}",
            limit="max_lanes",
        )


def is_short_of_room(total: int, by_queue: Mapping[str, int], wanted: Collection[Lane]) -> bool:
    """Whether some of these new lanes could be refused."""
    if total + len(wanted) >= limits.MAX_LANES:
        return True
    counts = Counter(lane.queue for lane in wanted)
    return any(
        by_queue.get(queue, 0) + count > limits.MAX_LANES_PER_QUEUE
        for queue, count in counts.items()
    )
