"""Lease calls that wait for work, indexed by the lanes that their workers can serve.

Theory of operation. Thousands of calls may wait, and a batch must not pay for calls that it has no
work for. So the waitlist groups calls by kind: workers of one kind can serve the same lanes. For
each lane it remembers the kinds that can serve it. The dispatcher considers a few calls at a time,
those not considered for longest. A call that is considered and gets nothing moves to the end of its
kind. The workers held here may be out of date, so the deciding transaction reads each considered
worker again. The waitlist belongs to the writer.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import Generic, Protocol, TypeVar

from rota.core.tasks.model import Lane
from rota.core.workers.model import WorkerRecord, can_serve

MOST_KINDS = 10_000  # with this many, kinds without waiting calls are forgotten
MOST_LANES = 20_000  # lanes whose kinds are remembered; lane numbers only rise
SWEPT_AFTER = 64  # calls added before the next search for abandoned ones

Skills = tuple[tuple[str, ...] | None, tuple[str, ...] | None, tuple[str, ...]]


class WaitingLease(Protocol):
    """A lease call that waits for work."""

    @property
    def command(self) -> object:
        """The command; a subscription may replace it while the call waits."""
        ...

    @property
    def is_abandoned(self) -> bool:
        """Whether the caller has stopped waiting."""
        ...


LeaseKey = TypeVar("LeaseKey", bound=WaitingLease)


class _Kind(Generic[LeaseKey]):
    """Workers that can serve the same lanes, and their waiting calls."""

    def __init__(self, worker: WorkerRecord) -> None:
        self.worker = worker  # one of them
        self.calls: dict[LeaseKey, None] = {}  # the call considered last is last


class Waitlist(Generic[LeaseKey]):
    def __init__(self) -> None:
        self._kinds: dict[Skills, _Kind[LeaseKey]] = {}
        self._places: dict[LeaseKey, tuple[str, _Kind[LeaseKey]]] = {}  # with the worker's id
        self._by_worker: dict[str, dict[LeaseKey, None]] = {}
        # The kinds that can serve each lane, in the order of their turns. Filled on first use.
        self._servers: dict[int, deque[_Kind[LeaseKey]]] = {}
        self._new = 0  # calls added since the last search for abandoned ones

    def __len__(self) -> int:
        return len(self._places)

    def add(self, call: LeaseKey, worker: WorkerRecord) -> None:
        """Let a call wait for work."""
        self.drop(call)
        kind = self._kind_of(worker)
        kind.calls[call] = None
        self._places[call] = worker.id, kind
        self._by_worker.setdefault(worker.id, {})[call] = None
        self._new += 1

    def drop(self, call: LeaseKey) -> None:
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
        """Drop abandoned calls; a long waitlist is searched only after enough new calls."""
        if len(self._places) <= SWEPT_AFTER or self._new >= max(SWEPT_AFTER, len(self._places) / 4):
            self._new = 0
            for call in [call for call in self._places if call.is_abandoned]:
                self.drop(call)

    def forget_lanes(self) -> None:
        """Forget the kinds of each lane: after a rollback a number may mean another lane."""
        self._servers.clear()

    def calls(self) -> list[LeaseKey]:
        """All waiting calls, except abandoned ones."""
        return [call for call in self._places if not call.is_abandoned]

    def of_workers(self, worker_ids: Iterable[str]) -> list[LeaseKey]:
        """Return the waiting calls of these workers, except abandoned ones."""
        return [
            call
            for worker_id in worker_ids
            for call in self._by_worker.get(worker_id, ())
            if not call.is_abandoned
        ]

    def some(
        self, lanes: Mapping[int, Lane], most: int, *, but: Collection[LeaseKey]
    ) -> list[LeaseKey]:
        """Return at most `most` calls that can serve these lanes, except the calls in `but`."""
        found: dict[LeaseKey, None] = {}
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
        self,
        kind: _Kind[LeaseKey],
        most: int,
        found: dict[LeaseKey, None],
        but: Collection[LeaseKey],
    ) -> None:
        calls, gone, taken = kind.calls, list[LeaseKey](), list[LeaseKey]()
        for call in calls:
            if len(found) + len(taken) >= most:
                break
            if call.is_abandoned:
                gone.append(call)  # abandoned calls do not count towards the limit
            elif call not in but and call not in found:
                taken.append(call)
        for call in gone:
            self.drop(call)
        for call in taken:
            del calls[call]
            calls[call] = None
            found[call] = None

    def _servers_of(self, number: int, lane: Lane) -> "deque[_Kind[LeaseKey]]":
        servers = self._servers.get(number)
        if servers is None:
            if len(self._servers) >= MOST_LANES:  # most of these lanes no longer exist
                self._servers.clear()
            servers = self._servers[number] = deque(
                kind for kind in self._kinds.values() if serves(kind.worker, lane)
            )
        return servers

    def _kind_of(self, worker: WorkerRecord) -> _Kind[LeaseKey]:
        skills = worker.queues, worker.tasks, worker.capabilities
        kind = self._kinds.get(skills)
        if kind is None:
            if len(self._kinds) >= MOST_KINDS:
                self._kinds = {key: kind for key, kind in self._kinds.items() if kind.calls}
            kind = self._kinds[skills] = _Kind(worker)
            self._servers.clear()
        return kind


def serves(worker: WorkerRecord, lane: Lane) -> bool:
    return can_serve(worker, queue=lane.queue, name=lane.name, requires=lane.requires)
