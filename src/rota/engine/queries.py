"""What is committed? Reads for gateways, on threads of their own, beside the writer."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from msgspec import Struct

from rota.core import limits
from rota.core.access import AccessToken
from rota.core.events import TaskFilter
from rota.core.ids import TaskId
from rota.core.locks import LockFigures
from rota.core.memory import MemoryEntry, standing
from rota.core.replicas import Replica
from rota.core.shards.members import ShardPolicy
from rota.core.snapshot import Quality
from rota.core.tasks import FINISHED, Task, TaskState
from rota.core.workers import Worker
from rota.core.workflow.definition import Definition
from rota.core.workflow.records import Artifact, JournalEntry, RunRecord, Version
from rota.core.workflow.run import RUN_ENDED
from rota.engine.board_views import BoardViews
from rota.engine.clock import Clock
from rota.engine.dealing import of_run
from rota.engine.figures import Figures
from rota.engine.notice_log import NoticeLog
from rota.engine.projections import Trace
from rota.engine.queue_views import QueueFigures, queue_figures
from rota.engine.scale_views import ScaleViews
from rota.engine.session_views import SessionViews
from rota.engine.shard_views import ServiceView, view_of
from rota.engine.traces import Traces
from rota.store.access import Access
from rota.store.artifacts import Artifacts
from rota.store.database import Database, Transaction
from rota.store.inbox import Inbox
from rota.store.lanes import Lanes
from rota.store.listing import Listing
from rota.store.locks import Locks
from rota.store.memory import Memories, matching, starting_with
from rota.store.replicas import Replicas
from rota.store.runs import Runs
from rota.store.shards import Checkpoint, ServiceSummary, Shards
from rota.store.tasks import Tasks
from rota.store.workers import Workers
from rota.store.workflows import Workflows

T = TypeVar("T")

READER_THREADS = 2
MOST_COUNTED_AHEAD = 1_000  # a position further back than this is not cheap, and not told


class WorkerFigures(Struct, frozen=True, kw_only=True):
    worker: Worker
    held: int
    qualities: dict[str, Quality]


class Queries:
    def __init__(
        self,
        database: Database,
        lanes: Lanes,
        figures: Figures,
        *,
        clock: Clock,
        steady_clock: Clock,
        inline: bool,
        shard_policy: ShardPolicy,
    ) -> None:
        self._database = database
        self._lanes = lanes
        self._figures = figures
        self._clock = clock
        self._steady_clock = steady_clock
        self._shard_policy = shard_policy
        self._started_at_ms = steady_clock.now_ms()
        self._is_shared = database.is_shared
        self._threads = None if inline else ThreadPoolExecutor(READER_THREADS, "rota-reader")
        self._traces = Traces()
        self.notices = NoticeLog(self._read)
        self.sessions = SessionViews(self._read, lanes)
        self.board = BoardViews(self._read, lanes, clock=clock, health=shard_policy.health)
        self.scale = ScaleViews(self._read, lanes, figures, clock=clock)

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown()

    def begin(self) -> None:
        """The coordinator runs from now on, by the clock of its store."""
        self._started_at_ms = self._steady_clock.now_ms()

    async def read(self, body: Callable[[Transaction], T]) -> T:
        return await self._read(body)

    async def turn(self) -> int:
        """A number that rises whenever anybody writes."""
        if self._threads is None:
            return self._database.turn()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._database.turn)

    def listen(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back, on another thread, when others have hinted at something new."""
        return self._database.listen(callback)

    async def _read(self, body: Callable[[Transaction], T]) -> T:
        if self._is_shared:
            body = self._knowing_lanes(body)
        if self._threads is None:
            return self._database.read(body)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._database.read, body)

    def _knowing_lanes(self, body: Callable[[Transaction], T]) -> Callable[[Transaction], T]:
        """Others make lanes as well, and what is read may name one that is new."""

        def whole(tx: Transaction) -> T:
            self._lanes.keep_up(tx)
            return body(tx)

        return whole

    # --- replicas -----------------------------------------------------------------------------

    async def replicas(self) -> list[Replica]:
        """The coordinators on this store; none where there can be only one."""
        return await self._read(lambda tx: Replicas(tx).every())

    # --- tasks --------------------------------------------------------------------------------

    async def task(self, task_id: TaskId) -> Task | None:
        def body(tx: Transaction) -> Task | None:
            task = Tasks(tx, self._lanes).by_ids([task_id]).get(task_id)
            return None if task is None else of_run(task, Runs(tx).tasks([task_id]).get(task_id))

        return await self._read(body)

    async def task_by_key(self, key: str) -> Task | None:
        """The task that was accepted under this key."""
        found = await self._read(lambda tx: Tasks(tx, self._lanes).by_keys([key]))
        return await self.task(found[key].id) if key in found else None

    async def has_inbox(self) -> bool:
        """Whether tasks of others' transactions wait to be accepted."""
        return not await self._read(lambda tx: Inbox(tx).is_empty())

    async def is_live(self, task_id: TaskId) -> bool:
        """Whether a task exists and has not finished."""
        found = await self._read(lambda tx: Tasks(tx, self._lanes).by_ids([task_id]))
        return task_id in found and found[task_id].state not in FINISHED

    async def position(self, task: Task) -> int | None:
        """A queued task's place in its lane, from 1; None when it is not queued or far back."""
        if task.state is not TaskState.QUEUED:
            return None
        ahead = await self._read(
            lambda tx: Listing(tx, self._lanes).ahead(task, most=MOST_COUNTED_AHEAD)
        )
        return ahead + 1 if ahead < MOST_COUNTED_AHEAD else None

    async def tasks(
        self, selection: TaskFilter, *, limit: int, before: TaskId | None = None
    ) -> list[Task]:
        """Newest first."""

        def body(tx: Transaction) -> list[Task]:
            page = Listing(tx, self._lanes).page(selection, limit=limit, before=before)
            working = Runs(tx).tasks([task.id for task in page])
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
        """When the next scheduled task, deadline or time limit comes up."""

        def body(tx: Transaction) -> int | None:
            moments = (Tasks(tx, self._lanes).next_moment_ms(), Runs(tx).next_timer_ms())
            return min((moment for moment in moments if moment is not None), default=None)

        return await self._read(body)

    # --- queues -------------------------------------------------------------------------------

    async def queues(self) -> list[QueueFigures]:
        def body(tx: Transaction) -> list[QueueFigures]:
            return queue_figures(tx, self._lanes, self._figures.rates, now_ms=self._clock.now_ms())

        return await self._read(body)

    # --- workers ------------------------------------------------------------------------------

    async def worker(self, worker_id: str) -> WorkerFigures | None:
        def body(tx: Transaction) -> WorkerFigures | None:
            worker = Workers(tx).by_ids([worker_id]).get(worker_id)
            if worker is None:
                return None
            held = Tasks(tx, self._lanes).held([worker.incarnation])[worker.incarnation]
            qualities = Workers(tx).qualities(worker_id)
            return WorkerFigures(worker=worker, held=held, qualities=qualities)

        return await self._read(body)

    async def workers(self) -> list[WorkerFigures]:
        def body(tx: Transaction) -> list[WorkerFigures]:
            workers = Workers(tx).every()
            held = Tasks(tx, self._lanes).held([one.incarnation for one in workers.values()])
            qualities: dict[str, dict[str, Quality]] = {}
            for (worker_id, name), quality in Workers(tx).every_quality().items():
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
        """The newest version of each."""
        return await self._read(lambda tx: Workflows(tx).every())

    async def workflow_versions(self, name: str) -> list[Version]:
        return await self._read(lambda tx: Workflows(tx).versions(name))

    async def workflow(self, name: str, version: int | None = None) -> Version | None:
        """One version of a workflow, or the newest."""

        def body(tx: Transaction) -> Version | None:
            wanted = version or Workflows(tx).newest(name)
            return None if wanted is None else Workflows(tx).version(name, wanted)

        return await self._read(body)

    async def definition(self, name: str, version: int | None = None) -> Definition | None:
        def body(tx: Transaction) -> Definition | None:
            wanted = version or Workflows(tx).newest(name)
            return None if wanted is None else Workflows(tx).definition(name, wanted)

        return await self._read(body)

    async def run(self, run_id: int) -> RunRecord | None:
        found = await self._read(lambda tx: Runs(tx).by_ids([run_id]))
        return found.get(run_id)

    async def is_run_live(self, run_id: int) -> bool:
        record = await self.run(run_id)
        return record is not None and record.state not in RUN_ENDED

    async def runs(
        self, *, workflow: str | None, state: str | None, limit: int, before: int | None
    ) -> list[RunRecord]:
        return await self._read(
            lambda tx: Runs(tx).page(workflow=workflow, state=state, limit=limit, before=before)
        )

    async def journal(self, run_id: int, *, after: int, limit: int) -> list[JournalEntry]:
        return await self._read(lambda tx: Runs(tx).journal(run_id, after=after, limit=limit))

    async def trace(self, run_id: int, seen: Callable[[Trace], T]) -> T:
        """What `seen` makes of a run's journal, folded."""
        return await self._read(lambda tx: self._traces.look(tx, run_id, seen))

    async def tasks_by_ids(self, ids: list[TaskId]) -> dict[TaskId, Task]:
        return await self._read(lambda tx: Tasks(tx, self._lanes).by_ids(list(ids)))

    async def run_tasks(self, run_id: int) -> dict[int, int]:
        """The tokens of a run whose tasks are leased, with their tasks."""
        return await self._read(lambda tx: Runs(tx).executing(run_id))

    async def artifacts(
        self, run_id: int, *, limit: int, before: int | None = None
    ) -> list[Artifact]:
        """The committed artifacts of a run, newest first."""
        return await self._read(lambda tx: Artifacts(tx).page(run_id, limit=limit, before=before))

    async def artifact(self, run_id: int, name: str) -> tuple[Artifact, bytes | None] | None:
        """The newest committed one of a name; its content, too, when that is in the store."""

        def body(tx: Transaction) -> tuple[Artifact, bytes | None] | None:
            found = Artifacts(tx).newest(run_id, name)
            if found is None:
                return None
            content = Artifacts(tx).content(found.id) if found.file is None else None
            return found, content

        return await self._read(body)

    # --- services -------------------------------------------------------------------------------

    async def services(self) -> list[ServiceSummary]:
        return await self._read(lambda tx: Shards(tx).summaries())

    async def service(self, name: str) -> ServiceView | None:
        return await self._read(lambda tx: self._service(tx, name))

    def _service(self, tx: Transaction, name: str) -> ServiceView | None:
        stored = Shards(tx).find(name)
        if stored is None:
            return None
        return view_of(
            stored,
            self._shard_policy,
            now_ms=self._steady_clock.now_ms(),
            started_at_ms=self._started_at_ms,
        )

    async def has_service(self, name: str) -> bool:
        return await self._read(lambda tx: Shards(tx).has(name))

    async def checkpoint(self, service: str, shard: int) -> Checkpoint | None:
        """How far the owner of a shard had come when it last said so."""
        return await self._read(lambda tx: Shards(tx).checkpoint(service, shard))

    # --- memory and locks -----------------------------------------------------------------------

    async def memory(self, key: str) -> MemoryEntry | None:
        entry = await self._read(lambda tx: Memories(tx).one(key))
        return standing(entry, self._clock.now_ms())

    async def memories(
        self, *, prefix: str | None, pattern: str | None, after: str, limit: int
    ) -> tuple[list[MemoryEntry], bool]:
        """The next keys that match, no more of them than fit a page, and whether there are more."""
        wanted = starting_with(prefix or "") if pattern is None else matching(pattern)
        now_ms = self._clock.now_ms()
        return await self._read(
            lambda tx: Memories(tx).page(
                wanted,
                after=after,
                now_ms=now_ms,
                limit=limit,
                most_bytes=limits.MAX_MEMORY_PAGE_BYTES,
            )
        )

    async def lock(self, name: str) -> LockFigures:
        now_ms = self._steady_clock.now_ms()
        return await self._read(lambda tx: Locks(tx).look(name, now_ms=now_ms))

    async def locks(self, *, after: str, limit: int) -> list[LockFigures]:
        """The next locks that somebody has."""
        now_ms = self._steady_clock.now_ms()
        return await self._read(lambda tx: Locks(tx).page(after=after, now_ms=now_ms, limit=limit))

    # --- access ---------------------------------------------------------------------------------

    async def tokens(self) -> list[AccessToken]:
        return await self._read(lambda tx: Access(tx).every())
