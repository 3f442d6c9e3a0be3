"""Reads of committed state for gateways, on reader threads beside the writer."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from msgspec import Struct

from rota.core import limits
from rota.core.access import AccessToken
from rota.core.commands import TaskFilter
from rota.core.ids import TaskId
from rota.core.kv import KvEntry, live_entry
from rota.core.locks import LockStatus
from rota.core.replicas import Replica
from rota.core.shards.members import ShardPolicy
from rota.core.snapshot import Quality
from rota.core.tasks.keys import kept_forms
from rota.core.tasks.model import FINISHED, TaskRecord, TaskState
from rota.core.workers.model import WorkerRecord
from rota.core.workflow.definition.model import Definition
from rota.core.workflow.records import Artifact, JournalEntry, RunRecord, Version
from rota.core.workflow.states import RUN_ENDED
from rota.engine.clock import Clock
from rota.engine.dispatch.dispatcher import of_run
from rota.engine.events.log import EventLog
from rota.engine.metrics.metrics import Metrics
from rota.engine.queries.autoscaling import ScaleQueries
from rota.engine.queries.dashboard import DashboardQueries
from rota.engine.queries.queues import QueueFigures, queue_figures
from rota.engine.queries.services import ServiceStatus, view_of
from rota.engine.queries.sessions import SessionQueries
from rota.engine.runs.projections import RunProjection, RunProjectionCache
from rota.store.access import TokenStore
from rota.store.database import Database, Transaction
from rota.store.kv import KvStore, keys_matching, keys_with_prefix
from rota.store.locks import LockStore
from rota.store.replicas import ReplicaStore
from rota.store.shards import Checkpoint, ShardStore, StoredServiceSummary
from rota.store.tasks.lanes import Lanes
from rota.store.tasks.listing import Listing
from rota.store.tasks.queues import InboxStore
from rota.store.tasks.tasks import TaskStore
from rota.store.workers import WorkerStore
from rota.store.workflow.artifacts import ArtifactStore
from rota.store.workflow.definitions import WorkflowStore
from rota.store.workflow.runs import RunStore

T = TypeVar("T")

READER_THREADS = 2
MOST_COUNTED_AHEAD = 1_000  # a position further back is expensive to count, and not reported


class WorkerFigures(Struct, frozen=True, kw_only=True):
    worker: WorkerRecord
    held: int
    qualities: dict[str, Quality]


class Queries:
    def __init__(
        self,
        database: Database,
        lanes: Lanes,
        metrics: Metrics,
        *,
        clock: Clock,
        steady_clock: Clock,
        inline: bool,
        shard_policy: ShardPolicy,
    ) -> None:
        self._database = database
        self._lanes = lanes
        self._metrics = metrics
        self._clock = clock
        self._steady_clock = steady_clock
        self._shard_policy = shard_policy
        self._started_at_ms = steady_clock.now_ms()
        self._is_shared = database.is_shared
        self._threads = None if inline else ThreadPoolExecutor(READER_THREADS, "rota-reader")
        self._traces = RunProjectionCache()
        self.events = EventLog(self._read)
        self.sessions = SessionQueries(self._read, lanes)
        self.board = DashboardQueries(self._read, lanes, clock=clock, health=shard_policy.health)
        self.scale = ScaleQueries(self._read, lanes, metrics, clock=clock)

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown()

    def begin(self) -> None:
        """Set the start time of the coordinator, by the clock of its store."""
        self._started_at_ms = self._steady_clock.now_ms()

    async def read(self, body: Callable[[Transaction], T]) -> T:
        return await self._read(body)

    async def turn(self) -> int:
        """Return the store's change counter, which rises with every write."""
        if self._threads is None:
            return self._database.change_counter()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._database.change_counter)

    def listen(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback`, on another thread, when a peer hints at a change."""
        return self._database.listen(callback)

    async def _read(self, body: Callable[[Transaction], T]) -> T:
        if self._is_shared:
            body = self._knowing_lanes(body)
        if self._threads is None:
            return self._database.read(body)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._database.read, body)

    def _knowing_lanes(self, body: Callable[[Transaction], T]) -> Callable[[Transaction], T]:
        """Refresh the lanes before a read, because its rows may name a lane that a peer added."""

        def whole(tx: Transaction) -> T:
            self._lanes.refresh(tx)
            return body(tx)

        return whole

    # --- replicas -----------------------------------------------------------------------------

    async def replicas(self) -> list[Replica]:
        """Return the coordinators on this store; none if the store is not shared."""
        return await self._read(lambda tx: ReplicaStore(tx).all())

    # --- tasks --------------------------------------------------------------------------------

    async def task(self, task_id: TaskId) -> TaskRecord | None:
        def body(tx: Transaction) -> TaskRecord | None:
            task = TaskStore(tx, self._lanes).by_ids([task_id]).get(task_id)
            return (
                None if task is None else of_run(task, RunStore(tx).tasks([task_id]).get(task_id))
            )

        return await self._read(body)

    async def tasks_by_key(
        self, key: str, *, queue: str | None, limit: int, before: TaskId | None = None
    ) -> list[TaskRecord]:
        """Return the tasks accepted under this key, in one queue or in any; newest first."""

        def body(tx: Transaction) -> list[TaskRecord]:
            tasks = TaskStore(tx, self._lanes).with_key(
                kept_forms(key), queue=queue, limit=limit, before=before
            )
            links = RunStore(tx).tasks([task.id for task in tasks])
            return [of_run(task, links.get(task.id)) for task in tasks]

        return await self._read(body)

    async def has_inbox(self) -> bool:
        """Whether tasks from applications' own transactions wait in the inbox."""
        return not await self._read(lambda tx: InboxStore(tx).is_empty())

    async def is_live(self, task_id: int) -> bool:
        """Whether a task or a run exists and has not ended."""

        def body(tx: Transaction) -> bool:
            task = TaskStore(tx, self._lanes).by_ids([task_id]).get(TaskId(task_id))
            if task is not None:
                return task.state not in FINISHED
            run = RunStore(tx).by_ids([task_id]).get(task_id)
            return run is not None and run.state not in RUN_ENDED

        return await self._read(body)

    async def position(self, task: TaskRecord) -> int | None:
        """Return a queued task's place in its lane, from 1; None: not queued, or too far back."""
        if task.state is not TaskState.QUEUED:
            return None
        ahead = await self._read(
            lambda tx: Listing(tx, self._lanes).count_ahead(task, limit=MOST_COUNTED_AHEAD)
        )
        return ahead + 1 if ahead < MOST_COUNTED_AHEAD else None

    async def tasks(
        self, selection: TaskFilter, *, limit: int, before: TaskId | None = None
    ) -> list[TaskRecord]:
        """Return a page of tasks, newest first."""

        def body(tx: Transaction) -> list[TaskRecord]:
            page = Listing(tx, self._lanes).page(selection, limit=limit, before=before)
            working = RunStore(tx).tasks([task.id for task in page])
            return [of_run(task, working.get(task.id)) for task in page]

        return await self._read(body)

    async def ids(
        self, selection: TaskFilter, *, limit: int, before: TaskId | None = None
    ) -> list[TaskId]:
        return await self._read(
            lambda tx: Listing(tx, self._lanes).ids(selection, limit=limit, before=before)
        )

    async def count(self, selection: TaskFilter) -> int:
        return await self._read(lambda tx: Listing(tx, self._lanes).count(selection))

    async def next_moment_ms(self) -> int | None:
        """Return the time of the next scheduled task, deadline or time limit."""

        def body(tx: Transaction) -> int | None:
            moments = (TaskStore(tx, self._lanes).next_due_ms(), RunStore(tx).next_timer_ms())
            return min((moment for moment in moments if moment is not None), default=None)

        return await self._read(body)

    # --- queues -------------------------------------------------------------------------------

    async def queues(self) -> list[QueueFigures]:
        def body(tx: Transaction) -> list[QueueFigures]:
            return queue_figures(tx, self._lanes, self._metrics.rates, now_ms=self._clock.now_ms())

        return await self._read(body)

    # --- workers ------------------------------------------------------------------------------

    async def worker(self, worker_id: str) -> WorkerFigures | None:
        def body(tx: Transaction) -> WorkerFigures | None:
            worker = WorkerStore(tx).by_ids([worker_id]).get(worker_id)
            if worker is None:
                return None
            held = TaskStore(tx, self._lanes).lease_counts([worker.incarnation])[worker.incarnation]
            qualities = WorkerStore(tx).qualities([worker_id]).get(worker_id, {})
            return WorkerFigures(worker=worker, held=held, qualities=qualities)

        return await self._read(body)

    async def registered(self, worker_ids: Sequence[str]) -> set[str]:
        """Return those of the given workers that are registered."""
        return await self._read(lambda tx: set(WorkerStore(tx).by_ids([*worker_ids])))

    async def workers(self) -> list[WorkerFigures]:
        def body(tx: Transaction) -> list[WorkerFigures]:
            workers = WorkerStore(tx).all()
            held = TaskStore(tx, self._lanes).lease_counts(
                [one.incarnation for one in workers.values()]
            )
            qualities: dict[str, dict[str, Quality]] = {}
            for (worker_id, name), quality in WorkerStore(tx).all_qualities().items():
                qualities.setdefault(worker_id, {})[name] = quality
            return [
                WorkerFigures(
                    worker=one, held=held[one.incarnation], qualities=qualities.get(one.id, {})
                )
                for one in workers.values()
            ]

        return await self._read(body)

    # --- workflows and runs ---------------------------------------------------------------------

    async def workflows(self) -> list[Version]:
        """Return the newest version of each workflow."""
        return await self._read(lambda tx: WorkflowStore(tx).all())

    async def workflow_versions(self, name: str) -> list[Version]:
        return await self._read(lambda tx: WorkflowStore(tx).versions(name))

    async def workflow(self, name: str, version: int | None = None) -> Version | None:
        """Return one version of a workflow; without `version`, the newest."""

        def body(tx: Transaction) -> Version | None:
            wanted = version or WorkflowStore(tx).newest(name)
            return None if wanted is None else WorkflowStore(tx).version(name, wanted)

        return await self._read(body)

    async def definition(self, name: str, version: int | None = None) -> Definition | None:
        def body(tx: Transaction) -> Definition | None:
            wanted = version or WorkflowStore(tx).newest(name)
            return None if wanted is None else WorkflowStore(tx).definition(name, wanted)

        return await self._read(body)

    async def run(self, run_id: int) -> RunRecord | None:
        found = await self._read(lambda tx: RunStore(tx).by_ids([run_id]))
        return found.get(run_id)

    async def runs(
        self, *, workflow: str | None, state: str | None, limit: int, before: int | None
    ) -> list[RunRecord]:
        return await self._read(
            lambda tx: RunStore(tx).page(workflow=workflow, state=state, limit=limit, before=before)
        )

    async def journal(self, run_id: int, *, after: int, limit: int) -> list[JournalEntry]:
        return await self._read(lambda tx: RunStore(tx).journal(run_id, after=after, limit=limit))

    async def trace(self, run_id: int, seen: Callable[[RunProjection], T]) -> T:
        """Apply `seen` to the projection of a run's journal, and return its result."""
        return await self._read(lambda tx: self._traces.look(tx, run_id, seen))

    async def tasks_by_ids(self, ids: list[TaskId]) -> dict[TaskId, TaskRecord]:
        return await self._read(lambda tx: TaskStore(tx, self._lanes).by_ids(list(ids)))

    async def run_tasks(self, run_id: int) -> dict[int, int]:
        """Return the tokens of a run whose tasks are leased, with the ids of these tasks."""
        return await self._read(lambda tx: RunStore(tx).executing(run_id))

    async def artifacts(
        self, run_id: int, *, limit: int, before: int | None = None
    ) -> list[Artifact]:
        """Return a page of a run's committed artifacts, newest first."""
        return await self._read(
            lambda tx: ArtifactStore(tx).page(run_id, limit=limit, before=before)
        )

    async def artifact(self, run_id: int, name: str) -> tuple[Artifact, bytes | None] | None:
        """Return the newest committed artifact of a name, with its content if the store has it."""

        def body(tx: Transaction) -> tuple[Artifact, bytes | None] | None:
            found = ArtifactStore(tx).newest(run_id, name)
            if found is None:
                return None
            content = ArtifactStore(tx).content(found.id) if found.file is None else None
            return found, content

        return await self._read(body)

    # --- services -------------------------------------------------------------------------------

    async def services(self) -> list[StoredServiceSummary]:
        return await self._read(lambda tx: ShardStore(tx).summaries())

    async def service(self, name: str) -> ServiceStatus | None:
        return await self._read(lambda tx: self._service(tx, name))

    def _service(self, tx: Transaction, name: str) -> ServiceStatus | None:
        stored = ShardStore(tx).find(name)
        if stored is None:
            return None
        return view_of(
            stored,
            self._shard_policy,
            now_ms=self._steady_clock.now_ms(),
            started_at_ms=self._started_at_ms,
        )

    async def has_service(self, name: str) -> bool:
        return await self._read(lambda tx: ShardStore(tx).exists(name))

    async def checkpoint(self, service: str, shard: int) -> Checkpoint | None:
        """Return the last checkpoint that an owner of the shard has saved."""
        return await self._read(lambda tx: ShardStore(tx).checkpoint(service, shard))

    # --- values and locks -----------------------------------------------------------------------

    async def memory(self, key: str) -> KvEntry | None:
        entry = await self._read(lambda tx: KvStore(tx).get(key))
        return live_entry(entry, self._clock.now_ms())

    async def memories(
        self, *, prefix: str | None, pattern: str | None, after: str, limit: int
    ) -> tuple[list[KvEntry], bool]:
        """Return the next matching entries that fit a page, and whether there are more."""
        wanted = keys_with_prefix(prefix or "") if pattern is None else keys_matching(pattern)
        now_ms = self._clock.now_ms()
        return await self._read(
            lambda tx: KvStore(tx).page(
                wanted,
                after=after,
                now_ms=now_ms,
                limit=limit,
                most_bytes=limits.MAX_MEMORY_PAGE_BYTES,
            )
        )

    async def lock(self, name: str) -> LockStatus:
        now_ms = self._steady_clock.now_ms()
        return await self._read(lambda tx: LockStore(tx).status(name, now_ms=now_ms))

    async def locks(self, *, after: str, limit: int) -> list[LockStatus]:
        """Return a page of the locks that are held, by name."""
        now_ms = self._steady_clock.now_ms()
        return await self._read(
            lambda tx: LockStore(tx).page(after=after, now_ms=now_ms, limit=limit)
        )

    # --- access ---------------------------------------------------------------------------------

    async def tokens(self) -> list[AccessToken]:
        return await self._read(lambda tx: TokenStore(tx).all())
