"""The coordinator's process: started, frozen, stalled, stopped, killed, and started again.

The coordinator is the real one, with its duties; only its database and clock are the simulation's,
and its writer runs on the loop. Every call is entered in the book as it arrives and as its answer
leaves.
"""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import msgspec

from rota.core.commands import LeaseWork, TaskCommand
from rota.core.ids import TaskId
from rota.core.replies import Reply
from rota.core.tasks.model import TaskRecord
from rota.engine.commit.pipeline import OUR_MISTAKES
from rota.engine.commit.writer import InlineWriter
from rota.engine.coordinator import Coordinator
from rota.errors import RotaError, Unavailable
from rota.settings import Settings
from tests.engine.holding import check_working_set
from tests.simulation import answers, picture
from tests.simulation.book import Arrival, Book
from tests.simulation.clock import SimulatedClock
from tests.simulation.database import Crash, Moment, SimulatedDatabase
from tests.simulation.invariants import demand
from tests.simulation.promises import Promises
from tests.simulation.trace import Trace, Violation


class Disconnected(Exception):  # noqa: N818 - read at the raise site
    """There is no process to talk to, or it died before it answered."""


Report = Callable[[Exception], None]


class Server:
    def __init__(
        self,
        path: Path,
        settings: Settings,
        *,
        clock: SimulatedClock,
        dice: random.Random,
        book: Book,
        promises: Promises,
        trace: Trace,
        fail: Report,
    ) -> None:
        self._path = path
        self._settings = settings
        self._clock = clock
        self._dice = dice
        self._book = book
        self._promises = promises
        self._trace = trace
        self._fail = fail
        self._coordinator: Coordinator | None = None
        self._database: SimulatedDatabase | None = None
        # In the order they came: a set of tasks has another order in each run.
        self._connections: dict[asyncio.Task[Any], None] = {}
        self._awake = asyncio.Event()
        self._awake.set()
        self._is_held = False
        self._trouble_until_s = -1.0
        self.starts = 0
        self.went_on_s = -1.0  # when it last came back from a pause
        self.gone = asyncio.Event()  # set while there is no process at all

    @property
    def is_up(self) -> bool:
        return self._coordinator is not None

    # --- life and death ---------------------------------------------------------------------

    async def start(self) -> None:
        assert self._coordinator is None
        self._trace.note("coordinator", "starts")
        self.starts += 1
        self.gone.clear()
        self._promises.started_s = self._book.now_s()
        self._database = SimulatedDatabase(self._path, on_commit=self._look, on_crash=self._bury)
        self._coordinator = Coordinator(
            self._database,
            self._settings,
            clock=self._clock,
            dice=self._dice.random,
            inline=True,
        )
        coordinator = self._coordinator
        await coordinator.start()
        if coordinator is self._coordinator:  # it has not died at once
            self._hold_writer_when_asked(coordinator)

    async def stop(self) -> None:
        """In good order: everything accepted is answered first."""
        coordinator, self._coordinator = self._coordinator, None
        if coordinator is not None:
            assert self._database is not None
            self._trace.note("coordinator", "stops")
            self._check(lambda: check_working_set(coordinator))
            try:
                coordinator.release_waiting()
                await coordinator.stop()
            except Crash:
                pass  # killed while it was at it
            finally:
                self._database.close()
                self.gone.set()

    def kill(self) -> None:
        if self._database is not None:
            self._database.die()

    def close(self) -> None:
        """The schedule is over."""
        if self._database is not None:
            self._database.close()

    def crash_at(self, moment: Moment) -> None:
        """Die in the middle of the next write."""
        if self._database is not None:
            self._database.crash_at = moment

    def _bury(self) -> None:
        """The process is gone, and all that was in its memory: calls, answers, waits, duties."""
        coordinator, self._coordinator = self._coordinator, None
        self._trace.note("coordinator", "is dead")
        if coordinator is not None:
            for duty in coordinator.leading.duties._tasks:
                duty.cancel()
        for connection in self._connections:
            connection.cancel()
        if coordinator is not None:
            self.gone.set()

    # --- pauses and trouble -----------------------------------------------------------------

    def _hold_writer_when_asked(self, coordinator: Coordinator) -> None:
        writer = coordinator.leading.writer
        assert isinstance(writer, InlineWriter)
        work = writer._work

        def work_unless_held() -> None:
            if not self._is_held:
                work()

        writer._work = work_unless_held  # type: ignore[method-assign]  # the pause is here

    async def pause(self, duration_s: float, *, is_frozen: bool) -> None:
        """Nothing is written for a while.

        Stalled, calls still arrive and gather before the writer, as when a disk hangs. Frozen,
        they wait at the door, as when the machine sleeps: on waking, timers come first.
        """
        if self._is_held:
            return
        self._trace.note("coordinator", f"{'freezes' if is_frozen else 'stalls'} {duration_s:.3f}")
        self._is_held = True
        if is_frozen:
            self._awake.clear()
        await asyncio.sleep(duration_s)
        self._trace.note("coordinator", "goes on")
        self.went_on_s = self._book.now_s()
        self._is_held = False
        if self._coordinator is not None:
            # On its own: what gathered before the writer goes first, and may end in a crash.
            asyncio.get_running_loop().call_soon(self._coordinator.leading.writer._work)  # type: ignore[attr-defined]
        asyncio.get_running_loop().call_soon(self._awake.set)

    async def fill_disk(self, duration_s: float) -> None:
        database = self._database
        if database is not None:
            self._trace.note("coordinator", f"disk is full for {duration_s:.3f}")
            self._trouble_until_s = self._book.now_s() + duration_s
            database.is_full = True
            await asyncio.sleep(duration_s)
            database.is_full = False

    # --- serving ----------------------------------------------------------------------------

    async def serve(self, peer: str, event: TaskCommand, *, wait_ms: int = 0) -> Reply:
        """Carry out a call, and enter in the book what was asked and answered."""
        if self._coordinator is None:
            raise Disconnected
        connection = asyncio.current_task()
        assert connection is not None
        arrival = self._book.arrive(event)
        self._trace.note(peer, event)
        self._connections[connection] = None
        is_served = False
        try:
            reply = await self._carry_out(event, wait_ms)
            is_served = True
        except RotaError as error:
            self._refuse(peer, arrival, error)
            raise
        except OUR_MISTAKES as error:
            self._fail(Violation(f"a mistake of the coordinator: {error!r}"))
            raise Disconnected from error
        finally:
            self._connections.pop(connection)
            self._book.depart(arrival, is_served=is_served)
        self._trace.note(peer, reply)
        self._check(lambda: answers.check_answer(self._book, arrival, reply))
        return reply

    def _refuse(self, peer: str, arrival: Arrival, error: RotaError) -> None:
        self._trace.note(peer, error)
        if isinstance(error, Unavailable):
            self._check(lambda: demand(self._is_troubled(), "the store is well and not available"))
        else:
            self._check(lambda: answers.check_refusal(self._book, arrival, error))

    async def _carry_out(self, event: TaskCommand, wait_ms: int) -> Reply:
        await self._awake.wait()
        if self._coordinator is None:
            raise Disconnected
        if isinstance(event, LeaseWork):
            event = msgspec.structs.replace(event, wait_ms=wait_ms)
        return await self._coordinator.execute(event)

    async def find(self, task_id: TaskId) -> TaskRecord | None:
        """Read a task as a gateway does."""
        await self._awake.wait()
        if self._coordinator is None:
            raise Disconnected
        return await self._coordinator.queries.tasks.by_id(task_id)

    async def wait_finished(self, task_id: TaskId, *, wait_ms: int) -> bool:
        """Wait for a task's end as a gateway does; False when the coordinator went away."""
        await self._awake.wait()
        coordinator = self._coordinator
        if coordinator is None:
            raise Disconnected
        await coordinator.wait_for_end(task_id, wait_ms=wait_ms)
        return coordinator is self._coordinator

    def _is_troubled(self) -> bool:
        return self._book.now_s() <= self._trouble_until_s or self._coordinator is None

    # --- looking ----------------------------------------------------------------------------

    def check_working_set(self) -> None:
        """What the coordinator holds in memory is what its store has."""
        if self._coordinator is not None:
            check_working_set(self._coordinator)

    def _look(self, connection: apsw.Connection) -> None:
        def look() -> None:
            self._promises.check(self._book.observer.observe(picture.take(connection)))

        self._check(look)

    def _check(self, check: Callable[[], None]) -> None:
        try:
            check()
        except Exception as violation:  # noqa: BLE001 - the engine must not see it
            self._fail(violation)
