"""Reads for operators: counts by state, the backlog with its reasons, replicas and sizes."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from rota.core.commands import KeptMinute
from rota.core.dispatch import limit_reasons, wait_reasons
from rota.core.dispatch.wait_reasons import Explanation, WorkerSlot
from rota.core.flows.commands import LimitState
from rota.core.flows.queue_settings import DEFAULT_SETTINGS, QueueSettings
from rota.core.locks import LockState
from rota.core.replicas import Replica
from rota.core.tasks.model import Lane, TaskRecord, TaskState
from rota.core.workers.model import HealthPolicy
from rota.engine.clock import Clock
from rota.engine.queries.reader import CachedRead, StoreReader
from rota.engine.queries.workers import slots_of
from rota.store.dashboard import DashboardStore, RunWorkCount
from rota.store.database import Transaction
from rota.store.events import EventStore
from rota.store.locks import LockStore
from rota.store.replicas import ReplicaStore
from rota.store.tasks.flows import FlowStore
from rota.store.tasks.queues import LaneCounts, QueueStore


class StateCounts(Struct, frozen=True, kw_only=True):
    tasks: dict[str, int]  # by state
    runs: dict[str, int]
    unacknowledged: int = 0  # failed tasks that nobody has acknowledged


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

    async def lanes_now(self) -> list[Backlog]:
        """Return the same as `backlog`, read now."""
        return await self._read(self._backlog)

    def _backlog(self, tx: Transaction) -> list[Backlog]:
        queues = QueueStore(tx)
        by_lane, paused = queues.lane_counts(), queues.paused()
        slots = self._slots(tx)
        known = dict(self._lanes.by_number)
        full = _full_queues(FlowStore(tx).settings(), by_lane, known)
        return [
            Backlog(
                lane=known[number],
                figures=figures,
                why=wait_reasons.explain_lane(
                    known[number],
                    slots,
                    is_paused=known[number].queue in paused,
                    limit=full.get(known[number].queue),
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

    async def limit_keys(self, task: TaskRecord) -> tuple[str, ...]:
        """Return the limits that a queued task has; what they count is the leader's to say."""
        if task.state is not TaskState.QUEUED:
            return ()
        settings = await self._read(lambda tx: FlowStore(tx).settings())
        return limit_reasons.limit_keys(task, settings.get(task.lane.queue, DEFAULT_SETTINGS))

    async def why(
        self,
        task: TaskRecord,
        position: int | None,
        limits: Sequence[LimitState] = (),
        *,
        shows_counts: bool = True,
    ) -> Explanation:
        """Explain why a task has its present state; limits: those that it has, as they are now."""

        def body(tx: Transaction) -> Explanation:
            is_paused = task.lane.queue in QueueStore(tx).paused()
            return wait_reasons.explain_lane(task.lane, self._slots(tx), is_paused=is_paused)

        lane = await self._read(body) if task.state is TaskState.QUEUED else wait_reasons.READY
        now_ms = self._clock.now_ms()
        limit = limit_reasons.explain_limits(
            task, limits, position=position, now_ms=now_ms, shows_counts=shows_counts
        )
        return wait_reasons.explain_task(task, lane, limit=limit, position=position, now_ms=now_ms)

    def _slots(self, tx: Transaction) -> list[WorkerSlot]:
        return slots_of(tx, self._lanes, health=self._health, now_ms=self._clock.now_ms())


def _full_queues(
    settings: Mapping[str, QueueSettings],
    by_lane: Mapping[int, LaneCounts],
    known: Mapping[int, Lane],
) -> dict[str, Explanation]:
    """The queues that run as many tasks as their settings allow."""
    running = dict.fromkeys(settings, 0)
    for number, figures in by_lane.items():
        if number in known and known[number].queue in running:
            running[known[number].queue] += figures.running
    found = {
        queue: limit_reasons.explain_queue(queue, one, running=running[queue])
        for queue, one in settings.items()
    }
    return {queue: one for queue, one in found.items() if one is not None}


def _count(tx: Transaction) -> StateCounts:
    store = DashboardStore(tx)
    tasks = store.tasks_by_state()
    unacknowledged = tasks.pop("unacknowledged")
    return StateCounts(tasks=tasks, runs=store.runs_by_state(), unacknowledged=unacknowledged)
