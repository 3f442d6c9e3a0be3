"""What is stuck, and why? Reads for those who look after the coordinator."""

import heapq
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, NamedTuple, Protocol, TypeVar

from msgspec import Struct

from rota.core import breakers, explaining, fingerprints, limits, workers
from rota.core.explaining import Explanation, Seat
from rota.core.ids import TaskId
from rota.core.snapshot import Quality
from rota.core.tasks import Lane, Task, TaskError, TaskState
from rota.core.workers import HealthPolicy
from rota.engine.clock import Clock
from rota.store.board import Board, Failures, RunWork
from rota.store.database import Transaction
from rota.store.lanes import Lanes
from rota.store.queues import LaneFigures, Queues
from rota.store.tasks import Tasks
from rota.store.workers import Workers

T = TypeVar("T")

MOST_GROUPS = limits.MAX_PAGE  # kinds of failures that are shown, the largest
MOST_SAMPLES = 5  # tasks that are named for a group
READING_SHARE = 20  # what takes a while to read is read anew after so many times that


class Read(Protocol):
    def __call__(self, body: Callable[[Transaction], T], /) -> Awaitable[T]: ...


class Kept(Generic[T]):
    """What was read a moment ago; read anew as often as it is cheap, whoever asks."""

    def __init__(self, read: Callable[[], Awaitable[T]]) -> None:
        self._read = read
        self._value: T | None = None
        self._stale_at_s = 0.0

    async def get(self) -> T:
        if self._value is None or time.monotonic() >= self._stale_at_s:
            started_s = time.monotonic()
            self._value = await self._read()
            now_s = time.monotonic()
            self._stale_at_s = now_s + (now_s - started_s) * READING_SHARE
        return self._value


class Counts(Struct, frozen=True, kw_only=True):
    tasks: dict[str, int]  # by state
    runs: dict[str, int]


class QueueNames(Struct, frozen=True, kw_only=True):
    known: set[str]
    paused: set[str]


class Backlog(Struct, frozen=True, kw_only=True):
    """What waits in one lane, and why."""

    lane: Lane
    figures: LaneFigures
    why: Explanation


class FailureGroup(Struct, kw_only=True):
    """Failed tasks of one name that failed alike."""

    fingerprint: str
    name: str
    kinds: list[Failures]  # the same cause in each lane of that name
    queues: dict[str, int] = {}
    error: TaskError | None = None  # of the newest
    ids: list[TaskId] = []  # a few of the newest

    @property
    def count(self) -> int:
        return sum(one.count for one in self.kinds)

    @property
    def first_failed_at_ms(self) -> int:
        return min(one.first_failed_at_ms for one in self.kinds)

    @property
    def last_failed_at_ms(self) -> int:
        return max(one.last_failed_at_ms for one in self.kinds)


class FailureGroups(NamedTuple):
    shown: list[FailureGroup]  # largest first
    tasks: int  # of all groups
    is_complete: bool  # all groups are shown


class BoardViews:
    def __init__(self, read: Read, lanes: Lanes, *, clock: Clock, health: HealthPolicy) -> None:
        self._read = read
        self._lanes = lanes
        self._clock = clock
        self._health = health
        self._counts = Kept(lambda: read(_count))
        self._waiting = Kept(lambda: read(self._backlog))
        self._failed = Kept(lambda: read(lambda tx: self._group(tx, None)))

    async def counts(self) -> Counts:
        """Tasks and runs by state."""
        return await self._counts.get()

    async def backlog(self) -> list[Backlog]:
        """Every lane that holds a live task, with the reason why its tasks wait."""
        return await self._waiting.get()

    def _backlog(self, tx: Transaction) -> list[Backlog]:
        queues = Queues(tx)
        by_lane, paused = queues.figures(), queues.paused()
        seats = self._seats(tx)
        known = dict(self._lanes.by_number)
        return [
            Backlog(
                lane=known[number],
                figures=figures,
                why=explaining.explain_lane(
                    known[number], seats, is_paused=known[number].queue in paused
                ),
            )
            for number, figures in by_lane.items()
            if number in known
        ]

    async def work_of_runs(self, ids: list[int]) -> list[tuple[RunWork, Lane]]:
        """What these runs are at."""
        found = await self._read(lambda tx: Board(tx).work_of_runs(ids))
        known = dict(self._lanes.by_number)
        return [(one, known[one.lane]) for one in found if one.lane in known]

    async def queue_names(self) -> QueueNames:
        return await self._read(
            lambda tx: QueueNames(known=Queues(tx).known(), paused=Queues(tx).paused())
        )

    async def store_bytes(self) -> int:
        return await self._read(lambda tx: Board(tx).size_bytes())

    async def why(self, task: Task, position: int | None) -> Explanation:
        """Why a task is where it is."""

        def body(tx: Transaction) -> Explanation:
            is_paused = task.lane.queue in Queues(tx).paused()
            return explaining.explain_lane(task.lane, self._seats(tx), is_paused=is_paused)

        lane = await self._read(body) if task.state is TaskState.QUEUED else explaining.READY
        now_ms = self._clock.now_ms()
        return explaining.explain_task(task, lane, position=position, now_ms=now_ms)

    def _seats(self, tx: Transaction) -> list[Seat]:
        registered = Workers(tx).every()
        held = Tasks(tx, self._lanes).held([one.incarnation for one in registered.values()])
        broken = self._open_breakers(Workers(tx).every_quality(open_only=True))
        now_ms = self._clock.now_ms()
        return [
            Seat(
                worker=one,
                held=held[one.incarnation],
                open_breakers=frozenset(broken.get(one.id, ())),
                health=workers.health(
                    age_ms=now_ms - one.last_heartbeat_ms,
                    interval_ms=one.heartbeat_interval_ms,
                    policy=self._health,
                ),
            )
            for one in registered.values()
        ]

    def _open_breakers(self, qualities: Mapping[tuple[str, str], Quality]) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        now_ms = self._clock.now_ms()
        for (worker_id, name), quality in qualities.items():
            state = breakers.current_state(quality.breaker, now_ms=now_ms)
            if explaining.is_open(state):
                found.setdefault(worker_id, set()).add(name)
        return found

    async def failures(self, queues: tuple[str, ...] | None) -> FailureGroups:
        """Failed tasks by what they failed of; what many look at was read a moment ago."""
        if queues is None:
            return await self._failed.get()
        return await self._read(lambda tx: self._group(tx, queues))

    async def failed_alike(
        self, fingerprint: str, queues: tuple[str, ...] | None
    ) -> list[TaskId] | None:
        """Every failed task of a group, as of now; None when there is no such group."""

        def body(tx: Transaction) -> list[TaskId] | None:
            group = self._groups(tx, queues).get(fingerprint)
            return None if group is None else Board(tx).failed_of(group.kinds, most=group.count)

        return await self._read(body)

    def _group(self, tx: Transaction, queues: tuple[str, ...] | None) -> FailureGroups:
        groups = self._groups(tx, queues)
        shown = heapq.nsmallest(
            MOST_GROUPS, groups.values(), key=lambda one: (-one.count, one.fingerprint)
        )
        board = Board(tx)
        for group in shown:
            group.ids = board.failed_of(group.kinds, most=MOST_SAMPLES)
        errors = board.errors([group.ids[0] for group in shown if group.ids])
        for group in shown:
            group.error = errors.get(group.ids[0]) if group.ids else None
        tasks = sum(group.count for group in groups.values())
        return FailureGroups(shown, tasks, len(shown) == len(groups))

    def _groups(self, tx: Transaction, queues: tuple[str, ...] | None) -> dict[str, FailureGroup]:
        """All groups by fingerprint, counted only."""
        known = dict(self._lanes.by_number)
        groups: dict[str, FailureGroup] = {}
        for one in Board(tx).failures():
            lane = known.get(one.lane)
            if lane is not None and (queues is None or lane.queue in queues):
                name = fingerprints.fingerprint(lane.name, one.cause)
                group = groups.get(name)
                if group is None:
                    group = groups[name] = FailureGroup(fingerprint=name, name=lane.name, kinds=[])
                group.kinds.append(one)
                group.queues[lane.queue] = group.queues.get(lane.queue, 0) + one.count
        return groups


def _count(tx: Transaction) -> Counts:
    board = Board(tx)
    return Counts(tasks=board.tasks_by_state(), runs=board.runs_by_state())
