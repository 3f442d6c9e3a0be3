"""One schedule: a function runs to its end, while its worker and its coordinator die.

The processes die at the awaits and writes whose numbers a test gives, or at drawn ones. Then they
come back, and the run must end in one way.
"""

import asyncio
import random
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rota.core.workflow.commands import LookAtRun, PutCode, SignalRun, StartRun, SteerRun
from rota.core.workflow.functions.model import CodeDefinition
from rota.core.workflow.states import RUN_ENDED, RunState
from rota.errors import RotaError
from rota.store.workflow.runs import RunRecord
from tests.databases.empty import begin_empty
from tests.simulation import database
from tests.simulation.clock import SimulatedClock
from tests.simulation.database import Crash, Moment
from tests.simulation.functions.durable_scripts import (
    CHILD,
    Script,
    drawn,
    results_of,
)
from tests.simulation.functions.ledger import Ledger
from tests.simulation.functions.processes import (
    ABSENT_S,
    CoordinatorProcess,
    Disconnected,
    WorkerProcess,
    with_processes,
)
from tests.simulation.loop import VirtualLoop, end_all_tasks
from tests.simulation.trace import Violation

LONGEST_S = 300.0  # of virtual time; a run that takes longer never ends
LOOK_S = 0.2


@dataclass(frozen=True)
class CrashProfile:
    """How often what dies, and what is cancelled."""

    name: str
    worker_crashes: int = 2
    coordinator_crashes: int = 2
    cancels: float = 0.2


@dataclass(frozen=True)
class Faults:
    """The numbers of the awaits and writes at which workers and coordinators die."""

    awaits: frozenset[int] = frozenset()
    writes: Mapping[int, Moment] = field(default_factory=dict)
    cancel_after_s: float | None = None


@dataclass(frozen=True)
class Outcome:
    state: RunState
    awaits: int
    writes: int
    workers: int
    coordinators: int
    effects: list[str]


class World:
    def __init__(self, seed: int, script: Script, faults: Faults, path: Path) -> None:
        loop = asyncio.get_running_loop()
        self.violated: asyncio.Future[None] = loop.create_future()
        self.ledger = Ledger()
        self._script = script
        self._faults = faults
        self._dice = random.Random(f"{seed}/world")
        self._clock = SimulatedClock(loop.time)
        self.coordinator = CoordinatorProcess(path, self._clock, self.ledger, self.fail)
        self.coordinator.crashes = faults.writes
        self.awaits = 0
        self.workers = 0

    def fail(self, violation: Exception) -> None:
        if not self.violated.done():
            self.violated.set_exception(violation)

    def _count(self) -> bool:
        self.awaits += 1
        return self.awaits in self._faults.awaits

    async def run(self) -> RunRecord:
        asyncio.ensure_future(self.coordinator.stay_up())  # noqa: RUF006 - ended with the loop
        run_id = await self._start()
        asyncio.ensure_future(self._keep_working())  # noqa: RUF006 - as above
        asyncio.ensure_future(self._disturb(run_id))  # noqa: RUF006 - as above
        while True:
            shown = await self.coordinator.insist(LookAtRun(run_id))
            if shown.record.state in RUN_ENDED:
                return shown.record
            if asyncio.get_running_loop().time() > LONGEST_S:
                raise Violation(f"the run does not end: {self.ledger.of(run_id)}")
            await asyncio.sleep(LOOK_S)

    async def _start(self) -> int:
        for name in ("f", "child"):
            code = CodeDefinition(name=name, fingerprint="f" * 16, source="...", max_attempts=5)
            await self.coordinator.insist(PutCode(definition=code))
        started = StartRun(workflow="f", input={}, key="one")
        return (await self.coordinator.insist(started)).record.id

    async def _keep_working(self) -> None:
        while True:
            self.workers += 1
            worker = WorkerProcess(
                self.coordinator,
                self.ledger,
                {"f": self._script, "child": CHILD},
                clock=self._clock,
                dice=self._dice,
                count=self._count,
                fail=self.fail,
            )
            living = asyncio.ensure_future(worker.live())
            worker.tasks[living] = None
            await asyncio.wait([living])
            if not worker.is_dead and not living.cancelled() and living.exception():
                self.fail(living.exception())  # type: ignore[arg-type]  # there is one
            await asyncio.sleep(ABSENT_S)

    async def _disturb(self, run_id: int) -> None:
        """Send the signals, in any order, and cancel the run if that is asked for."""
        events = self._dice.sample(self._script.events, len(self._script.events))
        for name in events:
            await asyncio.sleep(self._dice.choice((0.0, 0.5, 2.0, 4.0)))
            signal = SignalRun(run_id=run_id, name=name, payload=f"signal {name}", key=name)
            await self._tell(signal)
        if self._faults.cancel_after_s is not None:
            await asyncio.sleep(self._faults.cancel_after_s)
            await self._tell(SteerRun(run_id=run_id, action="cancel"))

    async def _tell(self, command: Any) -> None:
        with suppress(RotaError):  # the run has ended by then
            await self.coordinator.insist(command)


def simulate_faults(seed: int, script: Script, faults: Faults) -> Outcome:
    """Run a schedule; raises `Violation` when a promise is broken."""
    loop = VirtualLoop(random.Random(f"{seed}/loop"))
    loop.set_task_factory(with_processes)
    loop.set_exception_handler(_survive)
    with tempfile.TemporaryDirectory(dir=database.folder()) as place:
        path = Path(place) / "simulated.db"
        begin_empty(path)
        try:
            return loop.run_until_complete(_schedule(seed, script, faults, path))
        except Exception as error:
            raise Violation(f"seed {seed}, {faults}, {script}: {error!r}") from error
        finally:
            end_all_tasks(loop)
            loop.close()


async def _schedule(seed: int, script: Script, faults: Faults, path: Path) -> Outcome:
    world = World(seed, script, faults, path)
    try:
        ran = asyncio.ensure_future(world.run())
        either: list[asyncio.Future[Any]] = [ran, world.violated]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if world.violated.done():
            world.violated.result()
        record = ran.result()
        _check_end(script, faults, record, world.ledger)
    finally:
        world.coordinator.close()
    return Outcome(
        state=record.state,
        awaits=world.awaits,
        writes=world.coordinator.writes,
        workers=world.workers,
        coordinators=world.coordinator.starts,
        effects=world.ledger.effects,
    )


def _check_end(script: Script, faults: Faults, record: RunRecord, ledger: Ledger) -> None:
    run = ledger.of(record.id)
    undoable = [leaf.name for leaf in script.leaves if leaf.kind == "undoable"]
    undone = [one.removeprefix("undo ") for one in run.seen if one.startswith("undo ")]
    done = [one for one in run.seen if one in undoable]
    allowed = {RunState.FAILED if script.fails else RunState.COMPLETED}
    if faults.cancel_after_s is not None:
        allowed.add(RunState.CANCELLED)
    if record.state not in allowed:
        raise Violation(f"the run is {record.state}: {record.error}")
    if record.state is RunState.COMPLETED:
        if record.output != results_of(script, record.output):
            raise Violation(f"another output: {record.output}")
        if undone:
            raise Violation(f"a run that has completed has undone {undone}")
    elif undone != done[::-1]:
        raise Violation(f"{done} were done, and {undone} undone")


def simulate(seed: int, profile: CrashProfile) -> Outcome:
    """Run a drawn function, with processes that die at drawn awaits and writes."""
    dice = random.Random(seed)
    script = drawn(dice)
    writes = {
        dice.randint(4, 40): dice.choice([*Moment]) for _ in range(profile.coordinator_crashes)
    }
    faults = Faults(
        awaits=frozenset(dice.randint(1, 50) for _ in range(profile.worker_crashes)),
        writes=writes,
        cancel_after_s=dice.uniform(0, 5) if dice.random() < profile.cancels else None,
    )
    return simulate_faults(seed, script, faults)


def _survive(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """A crash of the coordinator ends its callbacks and tasks, not the world."""
    error = context.get("exception")
    if not isinstance(error, Crash | Disconnected | RotaError | None):
        loop.default_exception_handler(context)
