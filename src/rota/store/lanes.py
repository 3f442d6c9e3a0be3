"""The lanes: what tasks ask of workers, each distinct wish interned under a number.

The book is kept in memory, since it is small, grows only, and is asked for every task. It is
written in the transaction that first needs a lane; after a rollback it is read again. When it has
grown long, lanes that no task is left of are struck out of it, before a coordinator begins.
"""

import msgspec

from rota.core.accepting import check_lanes
from rota.core.limits import MAX_LANES
from rota.core.tasks import Lane
from rota.store.database import Transaction


class Lanes:
    def __init__(self) -> None:
        self.by_number: dict[int, Lane] = {}
        self._numbers: dict[tuple[str, str, tuple[str, ...]], int] = {}
        self._last = 0  # the highest number

    def read(self, tx: Transaction) -> None:
        """Take everything anew from the store. Readers meanwhile see the old book or the new."""
        fresh = Lanes()
        for number, queue, name, requires in tx.rows("queues.lanes"):
            fresh._remember(number, Lane(queue, name, tuple(msgspec.json.decode(requires))))
        self.by_number, self._numbers = fresh.by_number, fresh._numbers
        self._last = fresh._last

    def keep_up(self, tx: Transaction, last: int | None = None) -> None:
        """Read the book again if others have written on; `last` is the number they have come to."""
        if last is None:
            last = tx.rows("replicas.last_lane")[0][0] or 0
        if last != self._last:
            self.read(tx)

    def strike_out(self, tx: Transaction) -> int:
        """Forget lanes that no task is left of, if there are many lanes; how many those were.

        Only where nobody else has a book of the same store.
        """
        if len(self.by_number) <= MAX_LANES // 2:
            return 0
        unused = [number for (number,) in tx.rows("queues.unused_lanes")]
        if unused:
            tx.run("queues.drop_lanes", unused)
            self.read(tx)
        return len(unused)

    def number(self, tx: Transaction, queue: str, name: str, requires: tuple[str, ...]) -> int:
        """The number of a lane, given to it now if it is new."""
        known = self._numbers.get((queue, name, requires))
        if known is not None:
            return known
        lane = Lane(queue, name, tuple(sorted(set(requires))))
        number = self._numbers.get((lane.queue, lane.name, lane.requires))
        if number is None:
            check_lanes(len(self.by_number), 1, most=MAX_LANES)
            number = self._last + 1
            text = msgspec.json.encode(lane.requires).decode()
            tx.run("queues.add_lane", number, lane.queue, lane.name, text)
            self._remember(number, lane)
        return number

    def _remember(self, number: int, lane: Lane) -> None:
        self.by_number[number] = lane
        self._last = max(self._last, number)
        self._numbers[lane.queue, lane.name, lane.requires] = number

    def has(self, lane: Lane) -> bool:
        return (lane.queue, lane.name, lane.requires) in self._numbers

    def number_of(self, lane: Lane) -> int:
        return self._numbers[lane.queue, lane.name, lane.requires]

    def matching(self, *, queue: str | None = None, name: str | None = None) -> list[int]:
        # Copied in one step: readers ask from their threads while the writer adds a lane.
        known = list(self.by_number.items())
        return [
            number
            for number, lane in known
            if queue in {None, lane.queue} and name in {None, lane.name}
        ]
