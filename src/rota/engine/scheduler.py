"""Runs each duty at its interval, or earlier at a hinted due time.

A duty that mostly finds nothing to do reads beside the writer whether it is due. In the writer it
would hold up the commands of callers, for several round trips to a store that is far away.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType

import structlog

from rota.core.replies import CommandBase, Done, Taken
from rota.engine.clock import Clock
from rota.engine.duties import DUTIES, LOCKS, SCHEDULES, SWEEPS, Duty
from rota.engine.metrics.metrics import Metrics
from rota.engine.queries.queries import Queries
from rota.errors import RotaError
from rota.settings import Settings

log = structlog.get_logger("rota.duties")

ALARMED = (*SWEEPS, SCHEDULES)  # duties with an alarm of their own
LEAST_PAUSE_MS = 1  # a due time that is always just ahead must not spin the loop


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

    async def wait(self, interval_ms: int) -> bool:
        """Wait until the end of the interval, or the hinted time if that is earlier.

        Returns whether the hinted time has come.
        """
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
                return self._moment_ms is not None and self._moment_ms <= self._clock.now_ms()


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
        intervals: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """`intervals`: of duties by name, where they differ from the usual ones."""
        self._intervals = intervals
        self._execute = execute
        self._queries = queries
        self._metrics = metrics
        self._settings = settings
        self._clock = clock
        self.duties = DUTIES
        self._tasks: list[asyncio.Task[None]] = []
        self._moments = Alarm(clock)
        self._firings = Alarm(clock)
        self._sweeps = {duty.name: Alarm(steady_clock) for duty in SWEEPS}

    def start(self) -> None:
        by_interval = [one for one in self.duties if not one.follows_hints and one not in ALARMED]
        self._tasks = [asyncio.create_task(self._keep(duty)) for duty in by_interval]
        self._tasks.append(asyncio.create_task(self._keep_moments()))
        self._tasks.append(asyncio.create_task(self._keep_firing()))
        self._tasks += [asyncio.create_task(self._keep_sweeping(duty)) for duty in SWEEPS]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def hint(self, moment_ms: int) -> None:
        """Take in that a task or run is due at this time."""
        self._moments.tell(moment_ms)

    def hint_firing(self, moment_ms: int) -> None:
        """Take in that a schedule is due at this time."""
        self._firings.tell(moment_ms)

    def hint_sweep(self, moment_ms: int) -> None:
        """Take in that a sweep of services and locks is due at this time."""
        for alarm in self._sweeps.values():
            alarm.tell(moment_ms)

    async def run_all(self) -> None:
        for duty in self.duties:
            await self._run(duty)

    async def _keep(self, duty: Duty) -> None:
        while True:
            await self._try(duty)
            interval_ms = self._intervals.get(duty.name, duty.interval_ms)
            await asyncio.sleep(interval_ms / 1000)

    async def _keep_moments(self) -> None:
        """Run the duties that follow hints; they share one alarm for the next due time."""
        duties = [duty for duty in DUTIES if duty.follows_hints]
        interval_ms = min(duty.interval_ms for duty in duties)
        is_due = True
        while True:
            if is_due:
                # Cleared first, so that a hint during the steps below is not lost. Until the duties
                # run, hints stay: when a rate opens cannot be read from the store.
                self._moments.clear()
                if not all([await self._try(duty) for duty in duties]):
                    # The work stays due. The next interval tries it again.
                    await self._moments.wait(interval_ms)
                    continue
            is_left = await self._look_ahead(duties)
            is_due = await self._moments.wait(interval_ms) or is_left

    async def _keep_firing(self) -> None:
        """Fire schedules at their times. While none is due, nothing is executed."""
        while True:
            self._firings.clear()
            if await self._try(SCHEDULES):
                next_ms = self._queries.schedules.next_firing_ms
                if next_ms is not None:
                    self.hint_firing(next_ms)
            await self._firings.wait(SCHEDULES.interval_ms)

    async def _keep_sweeping(self, duty: Duty) -> None:
        """Run a sweep of leases by the steady clock; each sweep hints at the next one.

        Each has an alarm of its own, so that services do not wait for the read about locks.
        """
        alarm = self._sweeps[duty.name]
        while True:
            alarm.clear()
            # After a failure the expiry is that of an earlier look, and may be long past.
            if await self._try(duty) and duty is LOCKS:
                next_ms = self._queries.locks.next_expiry_ms
                if next_ms is not None:
                    alarm.tell(next_ms)
            await alarm.wait(duty.interval_ms)

    async def _look_ahead(self, duties: Iterable[Duty]) -> bool:
        """Set the alarm to the next due time; returns whether something may be due already."""
        now_ms = self._clock.now_ms()
        try:
            next_ms = await self._queries.tasks.next_moment_ms()
        except Exception as error:
            log.warning("next_due_time_unknown", exc_info=error)
            return True
        if next_ms is not None:
            self.hint(next_ms)
        is_left = next_ms is not None and next_ms <= now_ms
        if not is_left:
            for duty in duties:
                self._note(duty, now_ms)
        return is_left

    def _note(self, duty: Duty, now_ms: int) -> None:
        """Note that nothing was left to do for the duty at this time."""
        self._metrics.duty_runs_ms[duty.name] = now_ms

    async def _try(self, duty: Duty) -> bool:
        """Run a duty and return whether it succeeded; a failed duty stays due."""
        try:
            if duty.takes_turns:
                await self._step(duty)  # the rest is due, and follows in the next round
            else:
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
        self._note(duty, now_ms)
        return duty.full_step is not None and reply is not None and reply.count >= duty.full_step
