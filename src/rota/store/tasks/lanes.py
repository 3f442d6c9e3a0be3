"""Lanes: the distinct combinations of queue, task name and requirements, each with a number.

The table is cached in memory, because it is small and is read for every task. It is written in the
transaction that first needs a lane; after a rollback it is loaded again. Lanes without tasks are
dropped when room is short.

A committed number never changes its lane. Coordinators that share a store detect changes by the
highest number: a transaction that drops lanes writes one of them again under a new number, so that
every peer loads the table again before it uses its cache for a write.
"""

from collections.abc import Iterable, Mapping

import msgspec

from rota.core import limits
from rota.core.tasks.lanes import LaneRoom, check_lanes, is_short_of_room
from rota.core.tasks.model import Lane, NewTask, lane_of
from rota.store.database import Transaction

LaneKey = tuple[str, str, tuple[str, ...]]


class Lanes:
    def __init__(self) -> None:
        # Includes lanes that were dropped: a reader may have a view from before.
        self.by_number: dict[int, Lane] = {}
        self._numbers: dict[LaneKey, int] = {}
        self._by_queue: dict[str, int] = {}  # how many lanes each queue has
        self._last = 0  # the highest number
        self._swept_at_ms: int | None = None

    def __len__(self) -> int:
        return len(self._numbers)

    def load(self, tx: Transaction) -> None:
        """Load all lanes from the store. Readers meanwhile see the old cache or the new one."""
        fresh = Lanes()
        for number, queue, name, requires in tx.rows("queues.lanes"):
            fresh._cache(number, Lane(queue, name, tuple(msgspec.json.decode(requires))))
        # A number above the highest one was never committed.
        past = {one: lane for one, lane in self.by_number.items() if one <= fresh._last}
        if len(past) + len(fresh) <= 2 * limits.MAX_LANES:
            fresh.by_number = past | fresh.by_number
        self.by_number, self._numbers = fresh.by_number, fresh._numbers
        self._by_queue, self._last = fresh._by_queue, fresh._last

    def refresh(self, tx: Transaction, last: int | None = None) -> None:
        """Load the lanes again if a peer has changed them; `last` is the highest stored number."""
        if last is None:
            last = tx.value("replicas.last_lane") or 0
        if last != self._last:
            self.load(tx)

    # --- room -------------------------------------------------------------------------------------

    def room_for(self, tx: Transaction, tasks: Iterable[NewTask], now_ms: int) -> LaneRoom | None:
        """The room for the lanes of these tasks; None when all of them exist.

        When room is short, lanes without tasks are dropped first, but not in every batch: the
        search for them reads all lanes.
        """
        known = self._numbers
        unusual = {
            lane_of(task) for task in tasks if (task.queue, task.name, task.requires) not in known
        }
        new = {lane for lane in unusual if not self.has(lane)} if unusual else unusual
        if not new:
            return None
        if is_short_of_room(len(self), self._by_queue, new) and self._may_sweep(now_ms):
            self._swept_at_ms = now_ms
            self.drop_unused(tx)
        return LaneRoom(self.has, len(self), self._by_queue)

    def _may_sweep(self, now_ms: int) -> bool:
        swept_at_ms = self._swept_at_ms
        # A clock that was set back must not delay the next search.
        return swept_at_ms is None or abs(now_ms - swept_at_ms) >= limits.LANE_SWEEP_INTERVAL_MS

    def drop_unused_if_many(self, tx: Transaction) -> int:
        """Drop lanes without tasks when a coordinator starts, if half of all room is used."""
        return self.drop_unused(tx) if len(self) > limits.MAX_LANES // 2 else 0

    def drop_unused(self, tx: Transaction) -> int:
        """Drop the lanes without tasks; returns how many fewer there are.

        Call this before a batch writes tasks: a task that is added and not queued is not seen.
        One lane is written again under a new number. That makes peers, also those of the version
        before, load the lanes again, and keeps numbers from being reused.
        """
        unused = tx.column("queues.unused_lanes")
        if len(unused) <= 1:
            return 0
        tx.pipeline("queues.drop_lanes", numbers=unused)
        self._add(tx, self.by_number[unused[-1]])
        self.load(tx)
        return len(unused) - 1

    # --- numbers ----------------------------------------------------------------------------------

    def number(self, tx: Transaction, queue: str, name: str, requires: tuple[str, ...]) -> int:
        """The number of a lane; a new lane is added."""
        known = self._numbers.get((queue, name, requires))
        if known is not None:
            return known
        lane = Lane(queue, name, tuple(sorted(set(requires))))
        number = self._numbers.get((lane.queue, lane.name, lane.requires))
        if number is None:
            check_lanes(len(self), 1)
            number = self._add(tx, lane)
        return number

    def _add(self, tx: Transaction, lane: Lane) -> int:
        number = self._last + 1
        text = msgspec.json.encode(lane.requires).decode()
        tx.pipeline(
            "queues.add_lane", number=number, queue=lane.queue, name=lane.name, requires=text
        )
        self._cache(number, lane)
        return number

    def _cache(self, number: int, lane: Lane) -> None:
        self.by_number[number] = lane
        self._last = max(self._last, number)
        self._numbers[lane.queue, lane.name, lane.requires] = number
        self._by_queue[lane.queue] = self._by_queue.get(lane.queue, 0) + 1

    def has(self, lane: Lane) -> bool:
        return (lane.queue, lane.name, lane.requires) in self._numbers

    def number_of(self, lane: Lane) -> int:
        return self._numbers[lane.queue, lane.name, lane.requires]

    def number_for(self, task: NewTask) -> int:
        """The number of the lane of a task that was added."""
        known = self._numbers.get((task.queue, task.name, task.requires))
        return self.number_of(lane_of(task)) if known is None else known

    # --- reading ----------------------------------------------------------------------------------

    def current(self) -> Mapping[int, Lane]:
        """The lanes by number, without those that were dropped."""
        return {number: Lane(*key) for key, number in self._known().items()}

    def matching(self, *, queue: str | None = None, name: str | None = None) -> list[int]:
        return [
            number
            for (in_queue, named, _), number in self._known().items()
            if queue in {None, in_queue} and name in {None, named}
        ]

    def _known(self) -> dict[LaneKey, int]:
        """A copy for readers, which call from their threads while the writer adds a lane.

        The copy is one step. A list of the items is not: the garbage collector may run while it is
        made, and let another thread go on.
        """
        return self._numbers.copy()
