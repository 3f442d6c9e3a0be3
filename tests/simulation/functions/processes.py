"""The processes around a function: a coordinator and a worker, which die where a test wants it.

Both run on one loop in virtual time. The coordinator is the real one on a real store, and the
worker's host is the real one of the SDK. Between them there are calls that get no answer when the
coordinator dies.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

import apsw
import msgspec
from msgspec import Raw

from rota.core.commands import BeatWorker, LeaseWork, RegisterWorker, ReportResults, Result
from rota.core.ids import TaskId, from_text
from rota.core.replies import CommandBase, Registered
from rota.core.tasks.model import TaskRecord
from rota.core.workflow.commands import LookAtOperations, ReportedOperations, ReportOperations
from rota.core.workflow.functions.model import Operation
from rota.engine.coordinator import Coordinator
from rota.errors import RotaError, StaleIncarnation, WorkerNotFound
from rota.gateways.http.views.tasks import lease_view
from rota.messages import LeaseView
from rota.sdk.client.function_calls import LoggedOperationPage
from rota.sdk.functions.errors import LeaseLost
from rota.sdk.functions.execution.host import FunctionHost
from rota.sdk.functions.execution.log import LoggedOperation
from rota.settings import Settings
from rota.store.database import Transaction
from tests.simulation.clock import SimulatedClock
from tests.simulation.database import Crash, Moment, SimulatedDatabase
from tests.simulation.functions.durable_scripts import Script, ScriptedFunction, turns
from tests.simulation.functions.ledger import Ledger, Play
from tests.simulation.trace import Violation

T = TypeVar("T")
R = TypeVar("R")
ABSENT_S = 0.2  # until a dead process is replaced
PAUSE_S = 0.1  # before a call is repeated
BEAT_S = 0.4
KEPT = frozenset({"accepted", "duplicate"})
_entry = msgspec.json.Decoder(LoggedOperation).decode

PROCESS: ContextVar["WorkerProcess | None"] = ContextVar("process", default=None)


class Disconnected(Exception):  # noqa: N818 - read at the raise site
    """The coordinator is away, or died before it answered."""


class CountedDatabase(SimulatedDatabase):
    """A store whose process dies before or after a write that is known by its number."""

    def __init__(self, *args: Any, numbers: Callable[[], Moment | None], **options: Any) -> None:
        super().__init__(*args, **options)
        self._next_moment = numbers

    def write(self, body: Callable[[Transaction], T]) -> T:
        if not self.is_dead and self.crash_at is None:
            self.crash_at = self._next_moment()
        return super().write(body)


class CoordinatorProcess:
    """Is started again whenever it has died."""

    def __init__(
        self, path: Path, clock: SimulatedClock, ledger: Ledger, fail: Callable[[Exception], None]
    ) -> None:
        self.crashes: Mapping[int, Moment] = {}  # by the number of the write
        self.writes = 0
        self.starts = 0
        self._path = path
        self._clock = clock
        self._ledger = ledger
        self._fail = fail
        self._coordinator: Coordinator | None = None
        self._database: CountedDatabase | None = None
        self._gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def stay_up(self) -> None:
        while True:
            await self._start()
            await asyncio.wait([self._gone])
            await asyncio.sleep(ABSENT_S)

    async def _start(self) -> None:
        self.starts += 1
        self._gone = asyncio.get_running_loop().create_future()
        self._database = CountedDatabase(
            self._path, on_commit=self._look, on_crash=self._bury, numbers=self._moment
        )
        settings = Settings(unclaimed_lease_ms=1_000)
        coordinator = Coordinator(
            self._database, settings, clock=self._clock, dice=random.Random(0).random, inline=True
        )
        self._coordinator = coordinator
        try:
            await coordinator.start()
        except Crash:
            self._bury()

    def _moment(self) -> Moment | None:
        self.writes += 1
        return self.crashes.get(self.writes)

    def _look(self, connection: apsw.Connection) -> None:
        try:
            self._ledger.read(connection)
        except Exception as violation:  # noqa: BLE001 - the engine must not see it
            self._fail(violation)

    def _bury(self) -> None:
        coordinator, self._coordinator = self._coordinator, None
        if coordinator is None:
            return
        if coordinator._leading is not None:
            for duty in coordinator._leading.duties._tasks:
                duty.cancel()
        self._gone.set_result(None)

    async def execute(self, command: CommandBase[R]) -> R:
        """Carry out a command, unless the coordinator dies first."""
        coordinator, gone = self._coordinator, self._gone
        if coordinator is None or coordinator._leading is None:
            raise Disconnected
        answer = asyncio.ensure_future(coordinator.execute(command))
        try:
            either: list[asyncio.Future[Any]] = [answer, gone]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not answer.done():
                answer.cancel()
        if not answer.done() or answer.cancelled() or isinstance(answer.exception(), Crash):
            raise Disconnected
        return answer.result()

    async def insist(self, command: CommandBase[R]) -> R:
        """Carry out a command, however often the coordinator dies."""
        while True:
            try:
                return await self.execute(command)
            except Disconnected:
                await asyncio.sleep(PAUSE_S)

    def close(self) -> None:
        if self._database is not None:
            self._database.close()


class WorkerProcess:
    """A worker that runs functions and tasks; killed, nothing of it goes on."""

    def __init__(
        self,
        coordinator: CoordinatorProcess,
        ledger: Ledger,
        scripts: Mapping[str, Script],
        *,
        clock: SimulatedClock,
        dice: random.Random,
        count: Callable[[], bool],
        fail: Callable[[Exception], None],
    ) -> None:
        """`count` counts the awaits of workers, and says whether this one dies here."""
        self.is_dead = False
        self.tasks: dict[asyncio.Task[Any], None] = {}  # in their order, which a set has not
        self._coordinator = coordinator
        self._ledger = ledger
        self._dice = dice
        self._count = count
        self._fail = fail
        self._incarnation = 0
        # One that keeps none in memory ends its functions at each wait.
        kept = dice.choice((0, 1, 1_000))
        self._host = FunctionHost(self._commit, clock=clock.now_ms, most_suspended=kept)
        self._running: dict[TaskId, int] = {}
        self._attempts: dict[asyncio.Future[None], None] = {}
        functions = [ScriptedFunction(name, script, self) for name, script in scripts.items()]
        self._functions = {one.task: one for one in functions}

    # --- death --------------------------------------------------------------------------------

    async def point(self) -> None:
        """A place at which the process may die."""
        if self.is_dead or self._count():
            self.kill()
            await asyncio.get_running_loop().create_future()

    def kill(self) -> None:
        self.is_dead = True
        for task in [*self.tasks]:
            task.cancel()

    # --- life -----------------------------------------------------------------------------------

    async def live(self) -> None:
        PROCESS.set(self)
        while not self.is_dead:
            try:
                await self._register()
                await self._work()
            except Disconnected:
                await asyncio.sleep(PAUSE_S)
            except (WorkerNotFound, StaleIncarnation):
                for attempt in [*self._attempts]:
                    attempt.cancel()

    async def _register(self) -> None:
        await self.point()
        registration = RegisterWorker(
            worker_id="w", node_id="n", max_concurrent_tasks=8, heartbeat_interval_ms=1_000
        )
        reply = await self._coordinator.execute(registration)
        assert isinstance(reply, Registered)
        self._incarnation = reply.worker.incarnation
        self._running.clear()

    async def _work(self) -> None:
        beating = asyncio.ensure_future(self._beat())
        try:
            while True:
                await self.point()
                lease = LeaseWork(
                    worker_id="w", incarnation=self._incarnation, most=8, wait_ms=1_000
                )
                try:
                    granted = await self._coordinator.execute(lease)
                except Disconnected:
                    await asyncio.sleep(PAUSE_S)
                    continue
                for task in granted.leases:
                    self._running[task.id] = task.fence
                    self._spawn(self._run(task))
        finally:
            beating.cancel()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            beat = BeatWorker(
                worker_id="w", incarnation=self._incarnation, running=tuple(self._running)
            )
            try:
                await self._coordinator.execute(beat)
            except Disconnected:
                continue
            except RotaError:
                return  # the next call for work says so, too

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(coroutine)
        self._attempts[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Future[None]") -> None:
        self._attempts.pop(task, None)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception) and not self.is_dead:
            self._fail(error)

    async def _run(self, task: TaskRecord) -> None:
        await self.point()
        function = self._functions.get(task.lane.name)
        if function is None:
            result = bytes(task.payload)
        else:
            try:
                report = await self._host.run(function, Attempt(lease_view(task), self))
            except LeaseLost:
                self._running.pop(task.id, None)
                return
            result = msgspec.json.encode(report)
        await self.point()
        await self._report(task, result)
        await self.point()

    async def _report(self, task: TaskRecord, result: bytes) -> None:
        incarnation = self._incarnation
        results = [Result(task.id, task.fence, result=result)]
        while not self.is_dead and incarnation == self._incarnation:
            try:
                await self._coordinator.execute(
                    ReportResults(worker_id="w", incarnation=incarnation, results=results)
                )
            except Disconnected:
                await asyncio.sleep(PAUSE_S)
            except RotaError:
                return
            else:
                break
        if self._running.get(task.id) == task.fence:
            del self._running[task.id]

    # --- functions ------------------------------------------------------------------------------

    async def _commit(
        self, lease: LeaseView, after: int, operations: Sequence[Operation]
    ) -> str | None:
        task_id, incarnation = TaskId(from_text(lease.task_id) or 0), self._incarnation
        sent = msgspec.json.decode(msgspec.json.encode(operations), type=list[Operation])
        item = ReportedOperations(task_id, lease.fence, after, sent)
        await self.point()
        report = ReportOperations(worker_id="w", incarnation=incarnation, items=[item])
        try:
            noted = await self._coordinator.insist(report)
        except RotaError as error:
            raise LeaseLost(error.detail) from error
        await self.point()
        if noted.outcomes[0] not in KEPT:
            raise LeaseLost(noted.outcomes[0])
        return noted.cancelled.get(0)

    async def whole_log(self, run_id: str) -> tuple[list[LoggedOperation], LoggedOperationPage]:
        entries: list[LoggedOperation] = []
        while True:
            look = LookAtOperations(run_id=from_text(run_id) or 0, after=len(entries), limit=1_000)
            shown = await self._coordinator.insist(look)
            entries += [_entry(one) for one in shown.entries]
            if shown.next_after is None:
                page = LoggedOperationPage(
                    items=[], reported=shown.reported, restarts=shown.restarts
                )
                return entries, page

    async def effect(self, play: Play, key: str) -> None:
        await self.point()
        try:
            self._ledger.note_effect(play, key)
        except Exception as violation:
            self._fail(violation)
            raise
        await turns(self._dice)
        await self.point()

    def saw(self, play: Play, key: str, *, is_step: bool) -> None:
        if self.is_dead:
            return
        try:
            self._ledger.note_seen(play, key, is_step=is_step)
        except Exception as violation:
            self._fail(violation)
            raise

    def caught(self, error: Exception) -> None:
        """No operation of a script fails: this one was swallowed, and is the function's own end."""
        self._fail(Violation(f"the function has caught {error!r}"))

    def begin_play(self, run_id: str) -> Play:
        return self._ledger.begin_play(from_text(run_id) or 0)


class Attempt:
    """A leased task with the client that reads logs."""

    stop_reason = None
    log_level = 0

    def __init__(self, lease: LeaseView, process: WorkerProcess) -> None:
        self.lease = lease
        self.run_id = str(msgspec.json.decode(lease.payload)["run_id"])
        self._process = process

    @property
    def client(self) -> Any:
        return self

    async def arun(self, exchange: Any) -> Any:
        """Answer the one call that the host makes: for the whole log of the run."""
        exchange.close()
        return await self._process.whole_log(self.run_id)

    def note_progress(self, progress: Raw | None, partial: Raw | None) -> None:
        raise NotImplementedError

    def keep_line(self, line: Any) -> None:
        raise NotImplementedError

    def note_trace(self, traceparent: str) -> None:
        raise NotImplementedError


def with_processes(
    loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any
) -> "asyncio.Task[Any]":
    """Make a task that belongs to the process of the one that makes it: a task factory."""
    task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **options)
    process = PROCESS.get()
    if process is not None:
        process.tasks[task] = None
        task.add_done_callback(lambda ended: process.tasks.pop(ended, None))
        if process.is_dead:
            task.cancel()
    return task
