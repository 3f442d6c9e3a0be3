"""Runs the duties: each at its interval, or earlier when something comes up before that."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from rota.core.charts import KeepMinutes
from rota.core.replies import Done, Taken
from rota.engine.clock import Clock
from rota.engine.duties.deadlines import DEADLINES
from rota.engine.duties.due import DUE_TASKS
from rota.engine.duties.duty import Duty
from rota.engine.duties.health import HEALTH
from rota.engine.duties.inbox import INBOX
from rota.engine.duties.keeping import LOCKS, MEMORY
from rota.engine.duties.pruning import NOTICE_PRUNING, PRUNING, RUN_PRUNING
from rota.engine.duties.shards import SHARDS
from rota.engine.duties.timers import RUN_TIMERS
from rota.engine.series import HOUR_MS, MINUTE_MS, SLOT_MS, Gauges
from rota.errors import RotaError

if TYPE_CHECKING:
    from rota.engine.coordinator import Coordinator

log = structlog.get_logger("rota.duties")

DUTIES = (
    DUE_TASKS,
    DEADLINES,
    INBOX,
    RUN_TIMERS,
    HEALTH,
    SHARDS,
    LOCKS,
    MEMORY,
    PRUNING,
    RUN_PRUNING,
    NOTICE_PRUNING,
)
SWEEPS = (SHARDS, LOCKS)  # of leases, which must not end early
LISTENING_PAUSE_MS = 20  # between two looks that others have hinted at
LEAST_PAUSE_MS = 1  # a moment that is always just ahead must not spin the loop
LAST_MINUTE_S = 1.0  # charts are not worth more of a wait when everything is to end


class Alarm:
    """Wakes a duty when its interval is over, or at an earlier moment that it was told of."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._moment_ms: int | None = None
        self._was_told = asyncio.Event()

    def tell(self, moment_ms: int) -> None:
        """Something comes up at this moment; a later one than known changes nothing."""
        if self._moment_ms is None or moment_ms < self._moment_ms:
            self._moment_ms = moment_ms
            self._was_told.set()

    def clear(self) -> None:
        self._moment_ms = None

    async def wait(self, interval_ms: int) -> None:
        """Until the interval is over, or the nearest moment has come."""
        until_ms = self._clock.now_ms() + interval_ms
        while True:
            moment_ms = until_ms if self._moment_ms is None else min(until_ms, self._moment_ms)
            # No longer than the interval, even if the clock is set back meanwhile.
            wait_ms = min(interval_ms, max(LEAST_PAUSE_MS, moment_ms - self._clock.now_ms()))
            self._was_told.clear()
            try:
                # Not `wait_for`: on Python 3.11 it loses a cancellation that comes with a hint.
                async with asyncio.timeout(wait_ms / 1000):
                    await self._was_told.wait()
            except TimeoutError:
                return


class DutyRunner:
    def __init__(self, coordinator: "Coordinator", *more: Duty) -> None:
        self._coordinator = coordinator
        self.duties = (*DUTIES, *more)
        self._tasks: list[asyncio.Task[None]] = []
        self._moments = Alarm(coordinator.clock)
        self._sweeps = Alarm(coordinator.steady_clock)
        self._hinted = asyncio.Event()  # by others who share the store: there is something new
        self._unlisten: Callable[[], None] = lambda: None
        self._minute_ms = coordinator.clock.now_ms() // MINUTE_MS * MINUTE_MS  # not kept yet

    def start(self) -> None:
        by_interval = [one for one in self.duties if not one.follows_hints and one not in SWEEPS]
        self._tasks = [asyncio.create_task(self._keep(duty)) for duty in by_interval]
        self._tasks.append(asyncio.create_task(self._keep_moments()))
        self._tasks.append(asyncio.create_task(self._keep_sweeping()))
        self._tasks.append(asyncio.create_task(self._keep_looking()))
        loop = asyncio.get_running_loop()

        def on_hint() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._hinted.set)

        self._unlisten = self._coordinator.queries.listen(on_hint)

    async def stop(self) -> None:
        self._unlisten()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            async with asyncio.timeout(LAST_MINUTE_S):
                await self._keep_minute(self._minute_ms)
        except TimeoutError:
            log.warning("the last minute of the charts is not kept")

    def hint(self, moment_ms: int) -> None:
        """Some task or run comes up at this moment."""
        self._moments.tell(moment_ms)

    def hint_sweep(self, moment_ms: int) -> None:
        """Some service or lock comes up at this moment."""
        self._sweeps.tell(moment_ms)

    async def run_all(self) -> None:
        for duty in self.duties:
            await self._run(duty)
        await self._look()

    async def _keep(self, duty: Duty) -> None:
        while True:
            await self._try(duty)
            if duty.listens:
                await self._wait_hinted(duty)
            else:
                await asyncio.sleep(duty.interval_ms / 1000)

    async def _wait_hinted(self, duty: Duty) -> None:
        """Until others hint at something new, or the interval is over."""
        # Under load hints come all the time: there is no hurry then.
        await asyncio.sleep(LISTENING_PAUSE_MS / 1000)
        try:
            async with asyncio.timeout(duty.interval_ms / 1000):
                await self._hinted.wait()
        except TimeoutError:
            return
        self._hinted.clear()

    async def _keep_moments(self) -> None:
        """The duties that wait for moments share one watch over the next one."""
        duties = [duty for duty in DUTIES if duty.follows_hints]
        interval_ms = min(duty.interval_ms for duty in duties)
        while True:
            # Cleared first: a moment hinted from here on counts against what is read below.
            self._moments.clear()
            if all([await self._try(duty) for duty in duties]):
                await self._look_ahead()
            # After a failure what is due stays due; it is tried again when the interval is over.
            await self._moments.wait(interval_ms)

    async def _keep_sweeping(self) -> None:
        """Leases go by a clock of their own; a sweep itself gives the next one with its answer."""
        interval_ms = min(duty.interval_ms for duty in SWEEPS)
        while True:
            self._sweeps.clear()
            for duty in SWEEPS:
                await self._try(duty)
            await self._sweeps.wait(interval_ms)

    async def _keep_looking(self) -> None:
        """Charts need to know how the queues stand in each of their slots."""
        while True:
            await self._look()
            await asyncio.sleep(SLOT_MS / 1000)

    async def _look(self) -> None:
        coordinator = self._coordinator
        try:
            queues = await coordinator.queries.queues()
        except Exception as error:
            log.warning("the queues cannot be looked at", exc_info=error)
            return
        seen = [
            (one.name, Gauges(one.depth, one.running, one.oldest_age_ms or 0)) for one in queues
        ]
        now_ms = coordinator.clock.now_ms()
        coordinator.figures().series.look(seen, now_ms)
        if now_ms // MINUTE_MS * MINUTE_MS != self._minute_ms:
            await self._keep_minute(self._minute_ms)
            self._minute_ms = now_ms // MINUTE_MS * MINUTE_MS

    async def _keep_minute(self, started_at_ms: int) -> None:
        """Write a minute of the charts down; when it cannot be, only charts have lost something."""
        minutes = self._coordinator.figures().series.minute(started_at_ms)
        if not minutes:
            return
        event = KeepMinutes(minutes=minutes, forget_before_ms=started_at_ms - HOUR_MS)
        try:
            await self._coordinator.carry_out(event)
        except RotaError as error:
            log.warning("a minute of the charts is not kept", code=error.code)

    async def _look_ahead(self) -> None:
        try:
            next_ms = await self._coordinator.queries.next_moment_ms()
        except Exception as error:
            log.warning("the next moment cannot be read", exc_info=error)
            return
        if next_ms is not None:
            self.hint(next_ms)

    async def _try(self, duty: Duty) -> bool:
        """Whether a duty could be done; one that could not is due again."""
        try:
            await self._run(duty)
        except Exception as error:
            expected = isinstance(error, RotaError)
            log.warning("duty failed", duty=duty.name, exc_info=None if expected else error)
            return False
        return True

    async def _run(self, duty: Duty) -> None:
        while await self._step(duty):
            pass

    async def _step(self, duty: Duty) -> bool:
        """Do a bounded part of a duty; whether there is more of it to do at once."""
        coordinator = self._coordinator
        now_ms = coordinator.clock.now_ms()
        is_due = duty.is_due is None or await duty.is_due(coordinator.queries)
        reply = None
        if is_due:
            reply = await coordinator.carry_out(duty.event(now_ms, coordinator.settings))
        coordinator.figures().duty_runs_ms[duty.name] = now_ms
        return (
            duty.full_step is not None
            and isinstance(reply, Done | Taken)
            and reply.count >= duty.full_step
        )
