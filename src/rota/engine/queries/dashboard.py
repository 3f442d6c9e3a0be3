"""Reads for operators: counts, the backlog with its reasons, failures by cause."""

import heapq
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, NamedTuple, Protocol, TypeVar

from msgspec import Struct

from rota.core import limits
from rota.core.dispatch import wait_reasons
from rota.core.dispatch.wait_reasons import Explanation, WorkerSlot
from rota.core.ids import TaskId
from rota.core.snapshot import Quality
from rota.core.tasks import error_fingerprints
from rota.core.tasks.model import Lane, TaskError, TaskRecord, TaskState
from rota.core.workers import circuit_breaker, model
from rota.core.workers.model import HealthPolicy
from rota.engine.clock import Clock
from rota.store.dashboard import DashboardStore, Failures, RunWorkCount
from rota.store.database import Transaction
from rota.store.tasks.lanes import Lanes
from rota.store.tasks.queues import LaneCounts, QueueStore
from rota.store.tasks.tasks import TaskStore
from rota.store.workers import WorkerStore

T = TypeVar("T")

MOST_GROUPS = limits.MAX_PAGE  # failure groups in a reply, the largest first
MOST_SAMPLES = 5  # task ids in a failure group
READING_SHARE = 20  # an answer is cached for this many times the duration of its read


class DashboardReader(Protocol):
    def __call__(self, body: Callable[[Transaction], T], /) -> Awaitable[T]: ...


class CachedAnswer(Generic[T]):
    """Caches the answer of one read, for all callers, in proportion to the cost of the read."""

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


class StateCounts(Struct, frozen=True, kw_only=True):
    tasks: dict[str, int]  # by state
    runs: dict[str, int]


class QueueNames(Struct, frozen=True, kw_only=True):
    known: set[str]
    paused: set[str]


class Backlog(Struct, frozen=True, kw_only=True):
    """The tasks that wait in one lane, and the reason."""

    lane: Lane
    figures: LaneCounts
    why: Explanation


class FailureGroup(Struct, kw_only=True):
    """Failed tasks of one name and one cause."""

    fingerprint: str
    name: str
    kinds: list[Failures]  # the same cause in each lane of that name
    queues: dict[str, int] = {}
    error: TaskError | None = None  # of the newest task
    ids: list[TaskId] = []  # of a few of the newest tasks

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
    is_complete: bool  # `shown` has all groups


class DashboardQueries:
    def __init__(
        self, read: DashboardReader, lanes: Lanes, *, clock: Clock, health: HealthPolicy
    ) -> None:
        self._read = read
        self._lanes = lanes
        self._clock = clock
        self._health = health
        self._counts = CachedAnswer(lambda: read(_count))
        self._waiting = CachedAnswer(lambda: read(self._backlog))
        self._failed = CachedAnswer(lambda: read(lambda tx: self._group(tx, None)))

    async def counts(self) -> StateCounts:
        """Tasks and runs by state."""
        return await self._counts.get()

    async def backlog(self) -> list[Backlog]:
        """Every lane that holds a live task, with the reason why its tasks wait."""
        return await self._waiting.get()

    def _backlog(self, tx: Transaction) -> list[Backlog]:
        queues = QueueStore(tx)
        by_lane, paused = queues.lane_counts(), queues.paused()
        seats = self._seats(tx)
        known = dict(self._lanes.by_number)
        return [
            Backlog(
                lane=known[number],
                figures=figures,
                why=wait_reasons.explain_lane(
                    known[number], seats, is_paused=known[number].queue in paused
                ),
            )
            for number, figures in by_lane.items()
            if number in known
        ]

    async def work_of_runs(self, ids: list[int]) -> list[tuple[RunWorkCount, Lane]]:
        """Count the live tasks of these runs by lane and state."""
        found = await self._read(lambda tx: DashboardStore(tx).run_work(ids))
        known = dict(self._lanes.by_number)
        return [(one, known[one.lane]) for one in found if one.lane in known]

    async def queue_names(self) -> QueueNames:
        return await self._read(
            lambda tx: QueueNames(known=QueueStore(tx).known(), paused=QueueStore(tx).paused())
        )

    async def store_bytes(self) -> int:
        return await self._read(lambda tx: DashboardStore(tx).size_bytes())

    async def why(self, task: TaskRecord, position: int | None) -> Explanation:
        """Explain why a task has its present state."""

        def body(tx: Transaction) -> Explanation:
            is_paused = task.lane.queue in QueueStore(tx).paused()
            return wait_reasons.explain_lane(task.lane, self._seats(tx), is_paused=is_paused)

        lane = await self._read(body) if task.state is TaskState.QUEUED else wait_reasons.READY
        now_ms = self._clock.now_ms()
        return wait_reasons.explain_task(task, lane, position=position, now_ms=now_ms)

    def _seats(self, tx: Transaction) -> list[WorkerSlot]:
        registered = WorkerStore(tx).all()
        held = TaskStore(tx, self._lanes).lease_counts(
            [one.incarnation for one in registered.values()]
        )
        broken = self._open_breakers(WorkerStore(tx).all_qualities(open_only=True))
        now_ms = self._clock.now_ms()
        return [
            WorkerSlot(
                worker=one,
                held=held[one.incarnation],
                open_breakers=frozenset(broken.get(one.id, ())),
                health=model.health(
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
            state = circuit_breaker.current_state(quality.breaker, now_ms=now_ms)
            if wait_reasons.is_open(state):
                found.setdefault(worker_id, set()).add(name)
        return found

    async def failures(self, queues: tuple[str, ...] | None) -> FailureGroups:
        """Return the failed tasks by cause; the answer for all queues is cached."""
        if queues is None:
            return await self._failed.get()
        return await self._read(lambda tx: self._group(tx, queues))

    async def failed_alike(
        self, fingerprint: str, queues: tuple[str, ...] | None
    ) -> list[TaskId] | None:
        """Return every failed task of a group now; None if there is no such group."""

        def body(tx: Transaction) -> list[TaskId] | None:
            group = self._groups(tx, queues).get(fingerprint)
            return (
                None
                if group is None
                else DashboardStore(tx).newest_failed(group.kinds, limit=group.count)
            )

        return await self._read(body)

    def _group(self, tx: Transaction, queues: tuple[str, ...] | None) -> FailureGroups:
        groups = self._groups(tx, queues)
        shown = heapq.nsmallest(
            MOST_GROUPS, groups.values(), key=lambda one: (-one.count, one.fingerprint)
        )
        board = DashboardStore(tx)
        for group in shown:
            group.ids = board.newest_failed(group.kinds, limit=MOST_SAMPLES)
        errors = board.errors([group.ids[0] for group in shown if group.ids])
        for group in shown:
            group.error = errors.get(group.ids[0]) if group.ids else None
        tasks = sum(group.count for group in groups.values())
        return FailureGroups(shown, tasks, len(shown) == len(groups))

    def _groups(self, tx: Transaction, queues: tuple[str, ...] | None) -> dict[str, FailureGroup]:
        """Return all groups by fingerprint, with counts but without samples and errors."""
        known = dict(self._lanes.by_number)
        groups: dict[str, FailureGroup] = {}
        for one in DashboardStore(tx).failures():
            lane = known.get(one.lane)
            if lane is not None and (queues is None or lane.queue in queues):
                name = error_fingerprints.fingerprint(lane.name, one.cause)
                group = groups.get(name)
                if group is None:
                    group = groups[name] = FailureGroup(fingerprint=name, name=lane.name, kinds=[])
                group.kinds.append(one)
                group.queues[lane.queue] = group.queues.get(lane.queue, 0) + one.count
        return groups


def _count(tx: Transaction) -> StateCounts:
    board = DashboardStore(tx)
    return StateCounts(tasks=board.tasks_by_state(), runs=board.runs_by_state())
