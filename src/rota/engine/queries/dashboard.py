"""Reads for operators: counts by state, the backlog with its reasons, replicas and sizes."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from rota.core.commands import KeptMinute
from rota.core.dispatch import wait_reasons
from rota.core.dispatch.wait_reasons import Explanation, WorkerSlot
from rota.core.locks import LockState
from rota.core.replicas import Replica
from rota.core.snapshot import Quality
from rota.core.tasks.model import Lane, TaskRecord, TaskState
from rota.core.workers import circuit_breaker, model
from rota.core.workers.model import HealthPolicy
from rota.engine.clock import Clock
from rota.engine.queries.reader import CachedRead, StoreReader
from rota.engine.queries.workers import loads_of
from rota.store.dashboard import DashboardStore, RunWorkCount
from rota.store.database import Transaction
from rota.store.events import EventStore
from rota.store.locks import LockStore
from rota.store.replicas import ReplicaStore
from rota.store.tasks.queues import LaneCounts, QueueStore
from rota.store.workers import WorkerStore


class StateCounts(Struct, frozen=True, kw_only=True):
    tasks: dict[str, int]  # by state
    runs: dict[str, int]


class Backlog(Struct, frozen=True, kw_only=True):
    """The tasks that wait in one lane, and the reason."""

    lane: Lane
    figures: LaneCounts
    why: Explanation


class Missed(Struct, frozen=True, kw_only=True):
    """What callers may have missed while no leader could tell them."""

    ended: set[int]  # of the tasks and runs that they wait for
    locks: list[LockState]  # of those that they wait for, the held ones
    last_seq: int  # of the events in the log


class DashboardQueries:
    def __init__(self, reader: StoreReader, *, clock: Clock, health: HealthPolicy) -> None:
        self._read = reader.read
        self._lanes = reader.lanes
        self._clock = clock
        self._health = health
        self._counts = CachedRead(reader, _count)
        self._waiting = CachedRead(reader, self._backlog)

    async def counts(self) -> StateCounts:
        """Return the numbers of tasks and runs by state; the answer is cached."""
        return await self._counts.get()

    async def backlog(self) -> list[Backlog]:
        """Return every lane that has a live task, with the reason why its tasks wait; cached."""
        return await self._waiting.get()

    def _backlog(self, tx: Transaction) -> list[Backlog]:
        queues = QueueStore(tx)
        by_lane, paused = queues.lane_counts(), queues.paused()
        slots = self._slots(tx)
        known = dict(self._lanes.by_number)
        return [
            Backlog(
                lane=known[number],
                figures=figures,
                why=wait_reasons.explain_lane(
                    known[number], slots, is_paused=known[number].queue in paused
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

    async def replicas(self) -> list[Replica]:
        """Return the coordinators on this store; none if the store is not shared."""
        return await self._read(lambda tx: ReplicaStore(tx).all())

    async def minutes(self, after_ms: int) -> list[KeptMinute]:
        """Return the stored minutes of the charts after a time."""
        return await self._read(lambda tx: DashboardStore(tx).minutes(after_ms))

    async def missed(self, ids: Sequence[int], locks: Sequence[str]) -> Missed:
        """Return which of these tasks and runs have ended, and which of these locks are held."""

        def body(tx: Transaction) -> Missed:
            live = ReplicaStore(tx).live([*ids]) if ids else set()
            return Missed(
                ended=set(ids) - live,
                locks=LockStore(tx).held([*locks]) if locks else [],
                last_seq=EventStore(tx).bounds().last_seq,
            )

        return await self._read(body)

    async def store_bytes(self) -> int:
        return await self._read(lambda tx: DashboardStore(tx).size_bytes())

    async def why(self, task: TaskRecord, position: int | None) -> Explanation:
        """Explain why a task has its present state."""

        def body(tx: Transaction) -> Explanation:
            is_paused = task.lane.queue in QueueStore(tx).paused()
            return wait_reasons.explain_lane(task.lane, self._slots(tx), is_paused=is_paused)

        lane = await self._read(body) if task.state is TaskState.QUEUED else wait_reasons.READY
        now_ms = self._clock.now_ms()
        return wait_reasons.explain_task(task, lane, position=position, now_ms=now_ms)

    def _slots(self, tx: Transaction) -> list[WorkerSlot]:
        store, now_ms = WorkerStore(tx), self._clock.now_ms()
        loads = loads_of(tx, self._lanes, store.all().values())
        broken = _open_breakers(store.all_qualities(open_only=True), now_ms=now_ms)
        return [
            WorkerSlot(
                worker=worker,
                held=held,
                open_breakers=frozenset(broken.get(worker.id, ())),
                health=model.health(
                    age_ms=now_ms - worker.last_heartbeat_ms,
                    interval_ms=worker.heartbeat_interval_ms,
                    policy=self._health,
                ),
            )
            for worker, held in loads
        ]


def _count(tx: Transaction) -> StateCounts:
    store = DashboardStore(tx)
    return StateCounts(tasks=store.tasks_by_state(), runs=store.runs_by_state())


def _open_breakers(
    qualities: Mapping[tuple[str, str], Quality], *, now_ms: int
) -> dict[str, set[str]]:
    """Return the task names whose circuit breaker is open, by worker."""
    found: dict[str, set[str]] = {}
    for (worker_id, name), quality in qualities.items():
        state = circuit_breaker.current_state(quality.breaker, now_ms=now_ms)
        if wait_reasons.is_open(state):
            found.setdefault(worker_id, set()).add(name)
    return found
