"""What is stuck, and why? Reads for those who look after the coordinator."""

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from rota.core import breakers, explaining, fingerprints, workers
from rota.core.explaining import Explanation, Seat
from rota.core.ids import TaskId
from rota.core.snapshot import Quality
from rota.core.tasks import Lane, Task, TaskError, TaskState
from rota.core.workers import HealthPolicy
from rota.engine.clock import Clock
from rota.store.board import Board, Cause, Failure, whole_error
from rota.store.database import Transaction
from rota.store.lanes import Lanes
from rota.store.queues import LaneFigures, Queues
from rota.store.tasks import Tasks
from rota.store.workers import Workers

T = TypeVar("T")

MOST_FAILURES_GROUPED = 10_000  # failed tasks that are looked at, the newest
MOST_SAMPLES = 5  # tasks that are named for a group
NO_CAUSE = Cause()
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
    """Failed tasks that failed alike; gathered newest first."""

    fingerprint: str
    name: str
    error: TaskError | None  # of the newest
    count: int = 0
    queues: dict[str, int] = {}
    last_failed_at_ms: int = 0
    first_failed_at_ms: int = 0
    ids: list[TaskId] = []


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

    async def failures(
        self, queues: tuple[str, ...] | None, *, is_fresh: bool = False
    ) -> tuple[list[FailureGroup], int]:
        """Failed tasks by what they failed of, largest group first, and how many were looked at.

        What many look at at once was read a moment ago; whoever changes something reads anew.
        """
        if queues is None and not is_fresh:
            return await self._failed.get()
        return await self._read(lambda tx: self._group(tx, queues))

    def _group(
        self, tx: Transaction, queues: tuple[str, ...] | None
    ) -> tuple[list[FailureGroup], int]:
        found = Board(tx).failures(most=MOST_FAILURES_GROUPED)
        known = dict(self._lanes.by_number)
        groups: dict[str, FailureGroup] = {}
        for failure in found:
            lane = known[failure.lane]
            if queues is None or lane.queue in queues:
                _gather(groups, lane, failure)
        return sorted(groups.values(), key=lambda one: (-one.count, one.fingerprint)), len(found)


def _gather(groups: dict[str, FailureGroup], lane: Lane, failure: Failure) -> None:
    cause = failure.cause or NO_CAUSE
    name = fingerprints.fingerprint(lane.name, cause.type, cause.message)
    group = groups.get(name)
    if group is None:
        group = groups[name] = FailureGroup(
            fingerprint=name, name=lane.name, error=whole_error(failure), queues={}, ids=[]
        )
        group.first_failed_at_ms = group.last_failed_at_ms = failure.finished_at_ms
    group.count += 1
    group.queues[lane.queue] = group.queues.get(lane.queue, 0) + 1
    group.first_failed_at_ms = min(group.first_failed_at_ms, failure.finished_at_ms)
    group.last_failed_at_ms = max(group.last_failed_at_ms, failure.finished_at_ms)
    group.ids.append(failure.id)


def _count(tx: Transaction) -> Counts:
    board = Board(tx)
    return Counts(tasks=board.tasks_by_state(), runs=board.runs_by_state())
