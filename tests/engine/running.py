"""A coordinator that runs, with everything that a test wants to turn, count or break.

It runs inline: batches are carried out on the event loop, in a known order, without threads. Its
duties stand still unless a test asks for them; `turn` runs each of them once.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, MutableMapping
from contextlib import asynccontextmanager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

from structlog.testing import capture_logs

from rota.core.commands import (
    BeatWorker,
    LeaseWork,
    RegisterWorker,
    ReportResults,
    Result,
    SubmitTasks,
)
from rota.core.ids import TaskId
from rota.core.replies import Beat, CommandBase, Granted, Outcomes, Registered, Submitted
from rota.core.tasks.model import NewTask, TaskRecord
from rota.core.workers.model import WorkerRecord
from rota.engine.coordinator import Coordinator
from rota.engine.dispatch.stuck_watch import StuckWatch
from rota.engine.metrics.sampler import GaugeSampler
from rota.engine.outbound.pusher import PushRunner
from rota.engine.replicas.membership import ReplicaMembership
from rota.engine.scheduler import DutyScheduler
from rota.engine.webhooks.deliverer import WebhookDeliverer
from rota.settings import Settings
from rota.store.database import Database, Transaction
from rota.store.leadership import Elections, LeadershipView
from tests.conftest import TurnedClock
from tests.databases.schemas import open_store
from tests.engine.holding import check_working_set

T = TypeVar("T")
R = TypeVar("R")

TIMEOUT_S = 30.0  # of a wait that should be over at once; only a broken test gets there


class WatchedDatabase:
    """A store whose commits can be counted, and made to fail."""

    def __init__(self, inner: Database, clock: TurnedClock | None = None) -> None:
        """With a clock, a store that has one of its own goes by that."""
        self._inner = inner
        self._clock = clock
        self.tries = 0
        self.commits = 0
        self.write_problem: Exception | None = None  # raised before anything is written
        self.commit_problem: Exception | None = None  # raised in place of the commit
        self.read_problem: Exception | None = None
        self.disk_free: int | None = None  # None: as much as there is
        self.on_commit: Callable[[], None] | None = None

    def write(self, body: Callable[[Transaction], T]) -> T:
        self.tries += 1
        if self.write_problem is not None:
            raise self.write_problem

        def whole(tx: Transaction) -> T:
            answer = body(tx)
            if self.commit_problem is not None:
                raise self.commit_problem
            return answer

        answer = self._inner.write(whole)
        self.commits += 1
        if self.on_commit is not None:
            self.on_commit()
        return answer

    def read(self, body: Callable[[Transaction], T]) -> T:
        if self.read_problem is not None:
            raise self.read_problem
        return self._inner.read(body)

    def begin(self, body: Callable[[Transaction], T], *, wait_s: float) -> None:
        """Nothing is begun without being waited for."""

    def administer(self, body: Callable[[Transaction], T]) -> T:
        return self._inner.administer(body)

    def disk_free_bytes(self) -> int | None:
        return self._inner.disk_free_bytes() if self.disk_free is None else self.disk_free

    @property
    def is_shared(self) -> bool:
        return self._inner.is_shared

    @property
    def elections(self) -> Elections | None:
        inner = self._inner.elections
        return None if inner is None else TurnedElections(inner, self._clock)

    def close(self) -> None:
        self._inner.close()


class TurnedElections:
    """The elections of a store, by the clock that the test turns."""

    def __init__(self, inner: Elections, clock: TurnedClock | None) -> None:
        self._inner = inner
        self._clock = clock

    def look(self) -> LeadershipView:
        found = self._inner.look()
        if self._clock is None:
            return found
        return LeadershipView(leader=found.leader, now_ms=self._clock.now_ms())

    def renew(self, *, lease_ms: int) -> int | None:
        renewed_ms = self._inner.renew(lease_ms=lease_ms)
        return renewed_ms if self._clock is None or renewed_ms is None else self._clock.now_ms()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class Engine:
    """A coordinator, what it stands on, and the calls that tests make over and over."""

    def __init__(
        self,
        coordinator: Coordinator,
        database: WatchedDatabase,
        clock: TurnedClock,
        log: list[MutableMapping[str, Any]],
    ) -> None:
        self.coordinator = coordinator
        self.database = database
        self.clock = clock
        self.log = log  # what has been logged

    async def execute(self, command: CommandBase[R]) -> R:
        """Execute a command when this is awaited, so that calls gathered together share a batch."""
        return await self.coordinator.execute(command)

    async def submit(self, *names: str, **options: Any) -> list[TaskId]:
        """Submit a task of each name, all in one call."""
        return await self.submit_all([NewTask(name=name, **options) for name in names or ("work",)])

    async def submit_all(self, tasks: list[NewTask]) -> list[TaskId]:
        reply = await self.execute(SubmitTasks(tasks))
        assert isinstance(reply, Submitted)
        return [item.id for item in reply.items]

    async def register(self, worker_id: str = "w1", **options: Any) -> WorkerRecord:
        fields: dict[str, Any] = {"node_id": "n1", "max_concurrent_tasks": 10, **options}
        reply = await self.execute(RegisterWorker(worker_id=worker_id, **fields))
        assert isinstance(reply, Registered)
        return reply.worker

    async def lease(
        self, worker: WorkerRecord, most: int = 100, *, wait_ms: int = 0
    ) -> list[TaskRecord]:
        granted = await self.coordinator.execute(ask(worker, most, wait_ms=wait_ms))
        return granted.leases

    async def report(self, worker: WorkerRecord, *results: Result) -> list[str]:
        reply = await self.execute(
            ReportResults(
                worker_id=worker.id, incarnation=worker.incarnation, results=list(results)
            )
        )
        assert isinstance(reply, Outcomes)
        return [*reply.outcomes]

    async def beat(self, worker: WorkerRecord, running: list[TaskId] | None = None) -> Beat:
        reply = await self.execute(
            BeatWorker(
                worker_id=worker.id,
                incarnation=worker.incarnation,
                running=None if running is None else tuple(running),
            )
        )
        assert isinstance(reply, Beat)
        return reply

    async def task(self, task_id: TaskId) -> TaskRecord:
        found = await self.coordinator.queries.tasks.by_id(task_id)
        assert found is not None
        return found

    async def turn(self, by_ms: int) -> None:
        """Let time pass, and the duties see it."""
        self.clock.turn(by_ms)
        await self.coordinator.tick()

    async def parked(self, worker: WorkerRecord, most: int = 100) -> "asyncio.Future[Granted]":
        """A call for work that has found none, and waits."""
        call = asyncio.ensure_future(self.coordinator.execute(ask(worker, most, wait_ms=600_000)))
        await settle()
        assert not call.done()
        return call


def ask(worker: WorkerRecord, most: int = 100, *, wait_ms: int = 0) -> LeaseWork:
    return LeaseWork(
        worker_id=worker.id, incarnation=worker.incarnation, most=most, wait_ms=wait_ms
    )


def done(task: TaskRecord, **changes: Any) -> Result:
    """A success under the lease, unless changed."""
    return Result(task.id, task.fence, **changes)


async def settle() -> None:
    """Let everything that is ready run, so that a batch that was put is carried out."""
    for _ in range(20):
        await asyncio.sleep(0)


async def soon(awaited: "asyncio.Future[T]") -> T:
    """What should be there at once; a bound, so that a broken test ends."""
    return await asyncio.wait_for(awaited, TIMEOUT_S)


@contextmanager
def standing_still() -> Iterator[None]:
    """A coordinator that is started here does nothing by itself."""
    with (
        patch.object(DutyScheduler, "start", lambda _: None),
        patch.object(GaugeSampler, "start", lambda _: None),
        patch.object(WebhookDeliverer, "start", lambda _: None),
        patch.object(StuckWatch, "start", lambda _: None),
        patch.object(PushRunner, "start", lambda _: None),
        patch.object(ReplicaMembership, "start_beating", lambda _: None),
    ):
        yield


@asynccontextmanager
async def running(
    path: Path | str,
    clock: TurnedClock | None = None,
    *,
    inline: bool = True,
    duties: bool = False,
    dice: Callable[[], float] = lambda: 0.0,
    **settings: Any,
) -> AsyncIterator[Engine]:
    """Open the file and run a coordinator on it; both are closed at the end."""
    clock = clock or TurnedClock()
    database = WatchedDatabase(open_store(path), clock)
    coordinator = Coordinator(database, Settings(**settings), clock=clock, dice=dice, inline=inline)
    with capture_logs() as log:
        with nullcontext() if duties else standing_still():
            await coordinator.start()
        log.clear()
        database.tries = database.commits = 0
        try:
            yield Engine(coordinator, database, clock, log)
            database.read_problem = None
            check_working_set(coordinator)
        finally:
            await coordinator.stop()
            database.close()
