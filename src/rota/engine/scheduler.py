"""Runs each duty at its interval, or earlier at a hinted due time."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import structlog

from rota.core.commands import KeepMinutes
from rota.core.replies import CommandBase, Done, Taken
from rota.engine.clock import Clock
from rota.engine.duties import DUTIES, SWEEPS, Duty
from rota.engine.metrics.metrics import Metrics
from rota.engine.metrics.time_series import HOUR_MS, MINUTE_MS, SLOT_MS, Gauges
from rota.engine.queries.queries import Queries
from rota.errors import RotaError
from rota.settings import Settings

log = structlog.get_logger("rota.duties")

LISTENING_PAUSE_MS = 20  # between two runs that peers have hinted at
LEAST_PAUSE_MS = 1  # a due time that is always just ahead must not spin the loop
LAST_MINUTE_S = 1.0  # how long a stop waits at most for the last minute of the charts


class Alarm:
    """Wakes a duty at the end of its interval, or at an earlier hinted time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._moment_ms: int | None = None
        self._was_told = asyncio.Event()

    def tell(self, moment_ms: int) -> None:
        """Set the wake-up time, unless an earlier one is set."""
        if self._moment_ms is None or moment_ms < self._moment_ms:
            self._moment_ms = moment_ms
            self._was_told.set()

    def clear(self) -> None:
        self._moment_ms = None

    async def wait(self, interval_ms: int) -> None:
        """Wait until the end of the interval, or the hinted time if that is earlier."""
        until_ms = self._clock.now_ms() + interval_ms
        while True:
            moment_ms = until_ms if self._moment_ms is None else min(until_ms, self._moment_ms)
            # At most the interval, even if the clock is set back meanwhile.
            wait_ms = min(interval_ms, max(LEAST_PAUSE_MS, moment_ms - self._clock.now_ms()))
            self._was_told.clear()
            try:
                # Not `wait_for`: on Python 3.11 it loses a cancellation that comes with a hint.
                async with asyncio.timeout(wait_ms / 1000):
                    await self._was_told.wait()
            except TimeoutError:
                return


class DutyScheduler:
    def __init__(
        self,
        execute: Callable[[CommandBase[Done | Taken]], Awaitable[Done | Taken]],
        queries: Queries,
        metrics: Metrics,
        settings: Settings,
        *,
        clock: Clock,
        steady_clock: Clock,
        more: tuple[Duty, ...] = (),
    ) -> None:
        self._execute = execute
        self._queries = queries
        self._metrics = metrics
        self._settings = settings
        self._clock = clock
        self.duties = (*DUTIES, *more)
        self._tasks: list[asyncio.Task[None]] = []
        self._moments = Alarm(clock)
        self._sweeps = Alarm(steady_clock)
        self._hinted = asyncio.Event()  # set by a hint from a peer on the store
        self._unlisten: Callable[[], None] = lambda: None
        self._minute_ms = clock.now_ms() // MINUTE_MS * MINUTE_MS  # the minute not yet stored

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

        self._unlisten = self._queries.reader.listen(on_hint)

    async def stop(self) -> None:
        self._unlisten()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            async with asyncio.timeout(LAST_MINUTE_S):
                await self._keep_minute(self._minute_ms)
        except TimeoutError:
            log.warning("chart_minute_dropped")

    def hint(self, moment_ms: int) -> None:
        """Take in that a task or run is due at this time."""
        self._moments.tell(moment_ms)

    def hint_sweep(self, moment_ms: int) -> None:
        """Take in that a sweep of services and locks is due at this time."""
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
        """Wait for a hint from a peer, or until the interval is over."""
        # Under load hints arrive all the time, so this pause limits the rate.
        await asyncio.sleep(LISTENING_PAUSE_MS / 1000)
        try:
            async with asyncio.timeout(duty.interval_ms / 1000):
                await self._hinted.wait()
        except TimeoutError:
            return
        self._hinted.clear()

    async def _keep_moments(self) -> None:
        """Run the duties that follow hints; they share one alarm for the next due time."""
        duties = [duty for duty in DUTIES if duty.follows_hints]
        interval_ms = min(duty.interval_ms for duty in duties)
        while True:
            # Cleared first, so that a hint during the steps below is not lost.
            self._moments.clear()
            if all([await self._try(duty) for duty in duties]):
                await self._look_ahead()
            # After a failure the work stays due. The next interval tries it again.
            await self._moments.wait(interval_ms)

    async def _keep_sweeping(self) -> None:
        """Run the sweeps of leases by the steady clock; each sweep hints at the next one."""
        interval_ms = min(duty.interval_ms for duty in SWEEPS)
        while True:
            self._sweeps.clear()
            for duty in SWEEPS:
                await self._try(duty)
            await self._sweeps.wait(interval_ms)

    async def _keep_looking(self) -> None:
        """Sample the gauges of all queues once for each slot of the charts."""
        while True:
            await self._look()
            await asyncio.sleep(SLOT_MS / 1000)

    async def _look(self) -> None:
        try:
            queues = await self._queries.queues.all()
        except Exception as error:
            log.warning("queue_gauges_failed", exc_info=error)
            return
        seen = [
            (one.name, Gauges(one.depth, one.running, one.oldest_age_ms or 0)) for one in queues
        ]
        now_ms = self._clock.now_ms()
        self._metrics.series.look(seen, now_ms)
        if now_ms // MINUTE_MS * MINUTE_MS != self._minute_ms:
            await self._keep_minute(self._minute_ms)
            self._minute_ms = now_ms // MINUTE_MS * MINUTE_MS

    async def _keep_minute(self, started_at_ms: int) -> None:
        """Store one minute of the charts; a failure loses only chart data."""
        minutes = self._metrics.series.minute(started_at_ms)
        if not minutes:
            return
        event = KeepMinutes(minutes=minutes, forget_before_ms=started_at_ms - HOUR_MS)
        try:
            await self._execute(event)
        except RotaError as error:
            log.warning("chart_minute_dropped", code=error.code)

    async def _look_ahead(self) -> None:
        try:
            next_ms = await self._queries.tasks.next_moment_ms()
        except Exception as error:
            log.warning("next_due_time_unknown", exc_info=error)
            return
        if next_ms is not None:
            self.hint(next_ms)

    async def _try(self, duty: Duty) -> bool:
        """Run a duty and return whether it succeeded; a failed duty stays due."""
        try:
            await self._run(duty)
        except Exception as error:
            expected = isinstance(error, RotaError)
            log.warning("duty_failed", duty=duty.name, exc_info=None if expected else error)
            return False
        return True

    async def _run(self, duty: Duty) -> None:
        while await self._step(duty):
            pass

    async def _step(self, duty: Duty) -> bool:
        """Execute one bounded step of a duty; return whether another step is due at once."""
        now_ms = self._clock.now_ms()
        is_due = duty.is_due is None or await duty.is_due(self._queries)
        reply = None
        if is_due:
            reply = await self._execute(duty.command(now_ms, self._settings))
        self._metrics.duty_runs_ms[duty.name] = now_ms
        return duty.full_step is not None and reply is not None and reply.count >= duty.full_step
