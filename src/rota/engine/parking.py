"""Which calls for work wait, and which of them may want what has just come?

Theory of operation. There may be thousands of them, and a batch must not pay for those that it has
nothing for. So calls whose workers can serve the same are kept together, and it is remembered for
each lane which kinds of workers can serve it. What comes is offered to a few at a time: those that
have not been asked for longest; whoever is asked and gets nothing goes to the end of its line.
Nothing here is true for long: workers are read anew when they are asked, in the transaction that
decides. It belongs to the writer.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import Generic, Protocol, TypeVar

from rota.core.tasks import Lane
from rota.core.workers import Worker, can_serve

MOST_KINDS = 10_000  # with more of them than this, those that nobody is of are forgotten
SWEPT_AFTER = 64  # calls that were parked, before those are sought whose callers have gone

Skills = tuple[tuple[str, ...] | None, tuple[str, ...] | None, tuple[str, ...]]


class Parked(Protocol):
    """A call that waits."""

    @property
    def event(self) -> object:
        """What it asks for, as it stands now."""
        ...

    @property
    def is_gone(self) -> bool:
        """Whether the caller has stopped waiting."""
        ...


Call = TypeVar("Call", bound=Parked)


class _Kind(Generic[Call]):
    """Workers that can serve the same, and the calls of theirs that wait."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker  # one of them
        self.calls: dict[Call, None] = {}  # whoever was asked last is last


class Parking(Generic[Call]):
    def __init__(self) -> None:
        self._kinds: dict[Skills, _Kind[Call]] = {}
        self._places: dict[Call, tuple[str, _Kind[Call]]] = {}  # with the worker's id
        self._by_worker: dict[str, dict[Call, None]] = {}
        # By lane, in the order in which they are asked. Made when first wanted.
        self._servers: dict[int, deque[_Kind[Call]]] = {}
        self._new = 0  # since those who have gone were sought

    def __len__(self) -> int:
        return len(self._places)

    def park(self, call: Call, worker: Worker) -> None:
        """Let a call wait that there is nothing for now."""
        self.drop(call)
        kind = self._kind_of(worker)
        kind.calls[call] = None
        self._places[call] = worker.id, kind
        self._by_worker.setdefault(worker.id, {})[call] = None
        self._new += 1

    def drop(self, call: Call) -> None:
        place = self._places.pop(call, None)
        if place is None:
            return
        worker_id, kind = place
        del kind.calls[call]
        of_worker = self._by_worker[worker_id]
        del of_worker[call]
        if not of_worker:
            del self._by_worker[worker_id]

    def sweep(self) -> None:
        """Forget calls whose callers have gone; not each time, when there are many."""
        if len(self._places) <= SWEPT_AFTER or self._new >= max(SWEPT_AFTER, len(self._places) / 4):
            self._new = 0
            for call in [call for call in self._places if call.is_gone]:
                self.drop(call)

    def forget_lanes(self) -> None:
        """After a rollback a number may come to mean another lane."""
        self._servers.clear()

    def worker_ids(self) -> set[str]:
        """Of all whose calls wait."""
        return set(self._by_worker)

    def of_workers(self, worker_ids: Iterable[str]) -> list[Call]:
        """The calls of these workers."""
        return [
            call
            for worker_id in worker_ids
            for call in self._by_worker.get(worker_id, ())
            if not call.is_gone
        ]

    def some(self, lanes: Mapping[int, Lane], most: int, *, but: Collection[Call]) -> list[Call]:
        """A few calls that may want what is in these lanes, and not those that were asked."""
        found: dict[Call, None] = {}
        for number, lane in lanes.items():
            servers = self._servers_of(number, lane)
            for _ in range(len(servers)):
                if len(found) >= most:
                    return [*found]
                kind = servers[0]
                servers.rotate(-1)
                self._take(kind, most, found, but)
        return [*found]

    def _take(
        self, kind: _Kind[Call], most: int, found: dict[Call, None], but: Collection[Call]
    ) -> None:
        calls, gone, taken = kind.calls, list[Call](), list[Call]()
        for call in calls:
            if len(found) + len(taken) >= most:
                break
            if call.is_gone:
                gone.append(call)  # however many stand at the head of the line
            elif call not in but and call not in found:
                taken.append(call)
        for call in gone:
            self.drop(call)
        for call in taken:
            del calls[call]
            calls[call] = None
            found[call] = None

    def _servers_of(self, number: int, lane: Lane) -> "deque[_Kind[Call]]":
        servers = self._servers.get(number)
        if servers is None:
            servers = self._servers[number] = deque(
                kind for kind in self._kinds.values() if serves(kind.worker, lane)
            )
        return servers

    def _kind_of(self, worker: Worker) -> _Kind[Call]:
        skills = worker.queues, worker.tasks, worker.capabilities
        kind = self._kinds.get(skills)
        if kind is None:
            if len(self._kinds) >= MOST_KINDS:
                self._kinds = {key: kind for key, kind in self._kinds.items() if kind.calls}
            kind = self._kinds[skills] = _Kind(worker)
            self._servers.clear()
        return kind


def serves(worker: Worker, lane: Lane) -> bool:
    return can_serve(worker, queue=lane.queue, name=lane.name, requires=lane.requires)
