"""One coordinator, some workers, some clients, a network between them: does it all hold?

A schedule is a function of its seed and profile. Faults go on for a while; then they heal, and
everything that was accepted must come to its end within a bounded time.
"""

import asyncio
import random
import tempfile
from collections.abc import Coroutine
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from rota.core.ids import TaskId
from rota.engine import scheduler
from rota.engine.commit import counters, pipeline
from rota.errors import RotaError
from rota.settings import Settings
from tests.databases.empty import begin_empty
from tests.simulation import database
from tests.simulation.book import Book
from tests.simulation.chaos import CALM_WEATHER, Chaos
from tests.simulation.clients import (
    CAPABILITIES,
    Client,
    JobCaller,
    LimitedSubmitter,
    Operator,
    Reader,
    Submitter,
    UniqueSubmitter,
)
from tests.simulation.clock import SimulatedClock
from tests.simulation.database import Crash
from tests.simulation.invariants import demand
from tests.simulation.loop import VirtualLoop, end_all_tasks
from tests.simulation.network import SLOW_S, Network, Unanswered
from tests.simulation.observer import Grant, Observer
from tests.simulation.profiles import Profile
from tests.simulation.promises import Promises
from tests.simulation.server import Server
from tests.simulation.slots import Slots
from tests.simulation.trace import Trace, Violation
from tests.simulation.workers import Shape, SimulatedWorker

DRAIN_S = 90.0  # after the faults, and after as much time as the clock was set back by
UNCLAIMED_LEASE_MS = 4_000
JOB_LEASE_MS = 5_000
MAX_WAITING = 20  # small, so that a pause of the coordinator soon means overload


@dataclass(frozen=True)
class Outcome:
    """How a schedule went that held."""

    commits: int
    starts: int
    tasks: int
    completed: int
    virtual_s: float
    trace: Trace


class World:
    def __init__(self, seed: int, profile: Profile, path: Path, loop: VirtualLoop) -> None:
        self.seed = seed
        self.profile = profile
        self.known: list[TaskId] = []  # tasks that clients know of
        self.workers: list[SimulatedWorker] = []
        self.slots = Slots()
        self.is_healing = False
        self.ended: asyncio.Future[None] = loop.create_future()
        self.now_s = loop.time
        self.trace = Trace(loop.time)
        self.clock = SimulatedClock(loop.time)
        self.book = Book(Observer(loop.time), loop.time)
        promises = Promises(
            self.book,
            self.clock.now_ms,
            profile.history_keep_ms,
            self.clock.forward_ms,
            self._is_held,
            lambda: max(self.clock.last_forward_s, self.server.went_on_s),
        )
        settings = Settings(
            history_keep_ms=profile.history_keep_ms,
            unclaimed_lease_ms=UNCLAIMED_LEASE_MS,
            job_lease_ms=JOB_LEASE_MS,
            max_waiting=MAX_WAITING,
        )
        self.server = Server(
            path,
            settings,
            clock=self.clock,
            dice=self._dice("engine"),
            book=self.book,
            promises=promises,
            trace=self.trace,
            fail=self.fail,
        )
        self.network = Network(self.server, self._dice("network"), self.spawn, profile.weather)
        self._spawned: dict[asyncio.Task[None], None] = {}
        self._worker_dice = self._dice("workers")
        self._operator = Operator(self, "operator")

    def _dice(self, name: str) -> random.Random:
        return random.Random(f"{self.seed}/{name}")

    # --- what everybody uses ----------------------------------------------------------------

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(coroutine)
        self._spawned[task] = None
        task.add_done_callback(self._note_end)
        return task

    def _note_end(self, task: "asyncio.Task[None]") -> None:
        del self._spawned[task]
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self.fail(error)

    def finish(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    def fail(self, violation: Exception) -> None:
        """The first violation ends the schedule."""
        if not self.ended.done():
            self.ended.set_exception(violation)

    def add_worker(self, shape: Shape) -> None:
        worker = SimulatedWorker(self, f"{shape.worker_id}.{len(self.workers)}", shape)
        self.workers.append(worker)
        self.trace.note(worker.name, shape)
        worker.start()

    def replace(self, worker: SimulatedWorker, *, is_same: bool) -> None:
        """Another process in the place of this one, under its id or a new one."""
        worker.is_superseded = True
        shape = worker.shape
        worker_id = shape.worker_id if is_same else f"w{len(self.workers)}"
        self.add_worker(self._some_shape(worker_id, is_generalist=shape.is_generalist))

    # --- the schedule -----------------------------------------------------------------------

    async def run(self) -> None:
        await self.server.start()
        self.spawn(self._keep_server_up())
        for number in range(self.profile.workers):
            self.add_worker(self._some_shape(f"w{number}", is_generalist=number == 0))
        submitters: list[Client] = [
            Submitter(self, f"s{number}") for number in range(self.profile.submitters)
        ]
        submitters += [
            UniqueSubmitter(self, f"u{number}") for number in range(self.profile.unique_submitters)
        ]
        limited = [
            LimitedSubmitter(self, f"l{number}")
            for number in range(self.profile.limited_submitters)
        ]
        submitters += limited
        callers = [JobCaller(self, f"jobs{number}") for number in range(2)]
        clients = [*submitters, *callers, self._operator, Reader(self, "reader")]
        busy = [self.spawn(client.run()) for client in clients]
        Chaos(self).start()
        await asyncio.sleep(self.profile.duration_s)

        await self._heal()
        for client in busy:
            await client
        await asyncio.sleep(SLOW_S)  # a slow message from before may still arrive
        await self._operator.make_everything_flow()
        for one in limited[:1]:
            await one.open()
        await self._drain()
        self._check_the_end()

    async def _heal(self) -> None:
        self.trace.note("world", "heals")
        self.is_healing = True
        self.network.weather = CALM_WEATHER
        self.network.cut_off.clear()
        for worker in list(self.workers):
            worker.wake()
            if worker.is_dead and not worker.is_superseded:
                self.replace(worker, is_same=True)

    async def _drain(self) -> None:
        limit_s = self.now_s() + DRAIN_S + self.clock.backward_ms / 1000
        while self.book.observer.now.live or not self.server.is_up:
            live = sorted(self.book.observer.now.live)
            demand(self.now_s() < limit_s, f"still unfinished long after the faults: {live}")
            await asyncio.sleep(1.0)

    def _check_the_end(self) -> None:
        """Every success that a worker was told of is the one that stands."""
        history = self.book.observer.now.history
        for task_id in self.book.completed - self.book.forgotten:
            demand(history[task_id].state == "succeeded", f"task {task_id:x} lost its success")
        self.server.check_working_set()

    # --- its parts --------------------------------------------------------------------------

    def _some_shape(self, worker_id: str, *, is_generalist: bool) -> Shape:
        dice = self._worker_dice
        return Shape(
            worker_id=worker_id,
            capacity=dice.choice((1, 2, 4)),
            interval_ms=dice.choice(self.profile.intervals_ms),
            capabilities=CAPABILITIES if is_generalist else dice.choice(((), ("gpu",))),
            tasks=None if is_generalist else dice.choice((None, ("resize",))),
            queues=None if is_generalist else dice.choice((None, ("default",))),
            failures=self.profile.failures,
            is_rash=dice.random() < 0.5,
            is_generalist=is_generalist,
        )

    def _is_held(self, grant: Grant) -> bool:
        return any(worker.has(grant) for worker in self.workers)

    async def _keep_server_up(self) -> None:
        while True:
            await self.server.gone.wait()
            away_s = self._worker_dice.choice((0.1, 0.5, 2.0, 6.0))
            await asyncio.sleep(0.1 if self.is_healing else away_s)
            await self.server.start()


class Listener:
    """Hears what the engine logs. Faults on purpose are no news; its own mistakes are."""

    def __init__(self, world: World) -> None:
        self._world = world

    def info(self, _text: str, **_facts: object) -> None: ...

    def warning(self, text: str, *, exc_info: object = None, **_facts: object) -> None:
        if exc_info is not None:
            self._world.fail(Violation(f"{text}: {exc_info!r}"))

    error = warning

    def exception(self, text: str, **_facts: object) -> None:
        self._world.fail(Violation(text))


def simulate(seed: int, profile: Profile) -> Outcome:
    """Run one schedule; raises what it broke, with the seed and the last that happened."""
    loop = VirtualLoop(random.Random(f"{seed}/loop"))
    loop.set_exception_handler(_survive_crashes)
    with tempfile.TemporaryDirectory(dir=database.folder()) as place:
        path = Path(place) / "simulated.db"
        begin_empty(path)
        world = World(seed, profile, path, loop)
        listener = Listener(world)
        try:
            with ExitStack() as patches:
                for module in (pipeline, counters, scheduler):
                    patches.enter_context(patch.object(module, "log", listener))
                loop.run_until_complete(_run(world))
        except Exception as error:
            raise Violation(
                f"{error!r} in seed {seed}, profile {profile.name!r}; the last of "
                f"{len(world.trace)} lines:\n{world.trace.tail()}"
            ) from error
        finally:
            end_all_tasks(loop)
            loop.close()
            world.server.close()
    return Outcome(
        commits=world.book.observer.commit,
        starts=world.server.starts,
        tasks=len(world.book.acknowledged),
        completed=len(world.book.completed),
        virtual_s=loop.time(),
        trace=world.trace,
    )


async def _run(world: World) -> None:
    async def run() -> None:
        try:
            await world.run()
        except Exception as error:  # noqa: BLE001 - raised again in the waiting caller
            world.fail(error)
        else:
            world.finish()

    world.spawn(run())
    await world.ended


def _survive_crashes(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """A crash of the coordinator ends its callbacks and tasks, not the world."""
    error = context.get("exception")
    if not isinstance(error, Crash | Unanswered | RotaError | None):
        loop.default_exception_handler(context)
