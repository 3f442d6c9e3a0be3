"""How does a worker behave? As one built on the SDK would, unless it is told to misbehave.

It registers, beats with what it runs, leases with a wait, and repeats a report until it is
answered. It drops what it is told to drop, and stops acting when its own lease is over. A rash one
does not: it reports whatever it has begun, and comes back from a pause as if nothing had happened.
"""

import asyncio
import random
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from rota.core.commands import (
    BeatWorker,
    LeaseWork,
    LeaveWorker,
    Progress,
    RegisterWorker,
    ReportProgress,
    ReportResults,
    Result,
    TaskCommand,
)
from rota.core.ids import TaskId
from rota.core.replies import Beat, Granted, Outcomes, Registered, Reply
from rota.core.tasks.model import TaskError, TaskRecord
from rota.errors import RotaError, StaleIncarnation, WorkerNotFound
from tests.simulation.network import Unanswered
from tests.simulation.observer import Grant

if TYPE_CHECKING:
    from tests.simulation.world import World

IDLE_S = 0.2  # between calls for work that found none


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What kind of worker it is."""

    worker_id: str
    capacity: int = 2
    interval_ms: int = 1_000
    capabilities: tuple[str, ...] = ()
    tasks: tuple[str, ...] | None = None
    queues: tuple[str, ...] | None = None
    failures: float = 0.1  # share of attempts that fail
    is_rash: bool = False
    is_generalist: bool = False  # can run everything; there is always one


@dataclass(eq=False)
class Session:
    """One registration, and what came of it."""

    incarnation: int
    lease_s: float
    over_at_s: float  # when its leases are over, unless it is heard again
    running: dict[TaskId, int] = field(default_factory=dict)  # fence by task, until reported
    results: dict[TaskId, Result] = field(default_factory=dict)  # not yet reported
    changed: asyncio.Event = field(default_factory=asyncio.Event)  # of what it runs or reports
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, task: TaskRecord) -> None:
        self.results.pop(task.id, None)
        self.running[task.id] = task.fence

    def finish(self, result: Result) -> None:
        self.results[result.task_id] = result
        self.changed.set()

    def drop(self, task_id: TaskId) -> None:
        self.running.pop(task_id, None)
        self.results.pop(task_id, None)
        self.changed.set()

    def drop_everything(self) -> None:
        self.running.clear()
        self.results.clear()
        self.changed.set()


class SimulatedWorker:
    def __init__(self, world: "World", name: str, shape: Shape) -> None:
        self.name = name  # of the process; several may claim the same worker id
        self.shape = shape
        self.is_superseded = False  # another process runs under its id now
        self.is_dead = False
        self._world = world
        self._dice = random.Random(f"{world.seed}/{name}")
        self._awake = asyncio.Event()
        self._awake.set()
        self._woke_s = -1.0
        self._session: Session | None = None
        self._tasks: list[asyncio.Task[None]] = []

    # --- from outside -----------------------------------------------------------------------

    def start(self) -> None:
        self._spawn(self._live())

    def kill(self) -> None:
        self.is_dead = True
        for task in self._tasks:
            task.cancel()

    def pause(self) -> None:
        self._awake.clear()

    def wake(self) -> None:
        if not self._awake.is_set():
            self._woke_s = self._world.now_s()
            self._awake.set()

    def has(self, grant: Grant) -> bool:
        """Whether this process has that lease in its hands, and has been awake since it came."""
        session = self._session
        if self.is_dead or session is None or session.incarnation != grant.incarnation:
            return False
        is_running = session.running.get(TaskId(grant.task_id)) == grant.fence
        return is_running and self._awake.is_set() and self._woke_s < grant.given_s

    # --- its life ---------------------------------------------------------------------------

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = self._world.spawn(coroutine)
        self._tasks = [one for one in self._tasks if not one.done()]
        self._tasks.append(task)
        return task

    async def _live(self) -> None:
        while not self.is_superseded:
            session = await self._register()
            if session is None:
                await self._rest(0.3)
                continue
            self._session = session
            doings = (self._beat(session), self._lease(session), self._report(session))
            loops = [self._spawn(doing) for doing in doings]
            await session.over.wait()
            for loop in loops:
                loop.cancel()
            session.drop_everything()
        self.is_dead = True

    async def _register(self) -> Session | None:
        shape = self.shape
        event = RegisterWorker(
            worker_id=shape.worker_id,
            node_id=self.name,
            capabilities=shape.capabilities,
            max_concurrent_tasks=shape.capacity,
            tasks=shape.tasks,
            queues=shape.queues,
            heartbeat_interval_ms=shape.interval_ms,
        )
        sent_s = self._world.now_s()
        try:
            reply = await self._call(event)
        except (Unanswered, RotaError):
            return None
        assert isinstance(reply, Registered)
        lease_s = reply.lease_ms / 1000
        return Session(reply.worker.incarnation, lease_s, sent_s + lease_s)

    async def _beat(self, session: Session) -> None:
        while True:
            await self._rest(self.shape.interval_ms / 1000 * self._dice.uniform(0.7, 1.0))
            listed = dict(session.running)
            event = BeatWorker(
                worker_id=self.shape.worker_id,
                incarnation=session.incarnation,
                running=tuple(listed),
            )
            reply = await self._ask(session, event)
            if isinstance(reply, Beat):
                for task_id in (*reply.cancel, *reply.lost):
                    # By now it may be here once more, under a newer fence.
                    if session.running.get(task_id) == listed.get(task_id):
                        session.drop(task_id)

    async def _lease(self, session: Session) -> None:
        while True:
            free = self.shape.capacity - len(session.running)
            if free <= 0:
                await self._wait_for_change(session)
                continue
            event = LeaseWork(
                worker_id=self.shape.worker_id, incarnation=session.incarnation, most=free
            )
            wait_ms = self._dice.choice((0, 200, 2_000))
            reply = await self._ask(session, event, wait_ms=wait_ms)
            if isinstance(reply, Granted):
                for task in reply.leases:
                    session.take(task)
                    self._spawn(self._execute(session, task))
            if not isinstance(reply, Granted) or not reply.leases:
                await self._rest(IDLE_S)

    async def _report(self, session: Session) -> None:
        while True:
            if not session.results:
                await self._wait_for_change(session)
                continue
            results = list(session.results.values())[: self._dice.randint(1, 4)]
            event = ReportResults(
                worker_id=self.shape.worker_id, incarnation=session.incarnation, results=results
            )
            while any(session.results.get(one.task_id) is one for one in results):
                reply = await self._ask(session, event)
                if isinstance(reply, Outcomes):
                    for one in results:
                        if session.results.get(one.task_id) is one:
                            session.drop(one.task_id)

    async def leave(self) -> None:
        """Go in good order, and come back as a new one."""
        session = self._session
        if session is not None and not session.over.is_set():
            event = LeaveWorker(worker_id=self.shape.worker_id, incarnation=session.incarnation)
            await self._ask(session, event)
            session.over.set()

    # --- running tasks ----------------------------------------------------------------------

    async def _execute(self, session: Session, task: TaskRecord) -> None:
        if self.shape.is_rash or task.options.concurrency is None:
            await self._handle(session, task)
            return
        slots = self._world.slots
        handler = slots.enter(task, lambda: self._is_in(session, task))
        try:
            await self._handle(session, task)
        finally:
            slots.leave(handler)

    def _is_in(self, session: Session, task: TaskRecord) -> bool:
        """Whether a handler still runs, as far as this process knows and does."""
        if self.is_dead or session.over.is_set() or not self._awake.is_set():
            return False
        is_own = session.running.get(task.id) == task.fence
        return is_own and self._world.now_s() <= session.over_at_s

    async def _handle(self, session: Session, task: TaskRecord) -> None:
        await self._rest(self._duration_s() / 2)
        if self._dice.random() < 0.1:
            item = Progress(task.id, task.fence, Raw(b"0.5"))
            event = ReportProgress(
                worker_id=self.shape.worker_id, incarnation=session.incarnation, items=[item]
            )
            await self._ask(session, event)
        await self._rest(self._duration_s() / 2)
        if session.running.get(task.id) == task.fence or self.shape.is_rash:
            session.finish(self._result(task))

    def _duration_s(self) -> float:
        if self._world.is_healing or self._dice.random() > self._world.profile.slow_handlers:
            return self._dice.uniform(0.005, 0.3)
        return self._dice.uniform(0.3, 8.0)

    def _result(self, task: TaskRecord) -> Result:
        luck = 1.0 if self._world.is_healing else self._dice.random()
        if luck < self.shape.failures:
            error = TaskError(message=f"by {self.name}", retryable=luck > 0.02)
            retry_in_ms = self._dice.choice((None, 0, 500))
            return Result(task.id, task.fence, ok=False, error=error, retry_in_ms=retry_in_ms)
        if luck < self.shape.failures + 0.05:
            return Result(task.id, task.fence, ok=False, snooze_ms=self._dice.randint(0, 1_000))
        return Result(task.id, task.fence, result=Raw(b'"%s"' % self.name.encode()))

    # --- speaking ---------------------------------------------------------------------------

    async def _wait_for_change(self, session: Session) -> None:
        session.changed.clear()
        await session.changed.wait()
        await self._awake.wait()

    async def _rest(self, duration_s: float) -> None:
        await asyncio.sleep(duration_s)
        await self._awake.wait()

    async def _call(self, event: TaskCommand, *, wait_ms: int = 0) -> Reply:
        await self._awake.wait()
        reply = await self._world.network.call(self.name, event, wait_ms=wait_ms)
        await self._awake.wait()
        return reply

    async def _ask(self, session: Session, event: TaskCommand, *, wait_ms: int = 0) -> Reply | None:
        """Call for a session; None when there was no answer to use."""
        self._mind_the_lease(session)
        sent_s = self._world.now_s()
        try:
            reply = await self._call(event, wait_ms=wait_ms)
        except (WorkerNotFound, StaleIncarnation):
            session.over.set()
            return None
        except (Unanswered, RotaError):
            await self._rest(0.1)
            return None
        session.over_at_s = max(session.over_at_s, sent_s + session.lease_s)
        self._mind_the_lease(session)
        return reply

    def _mind_the_lease(self, session: Session) -> None:
        if self._world.now_s() > session.over_at_s and not self.shape.is_rash:
            session.drop_everything()
