"""Samples the gauges of all queues for the charts, and stores each full minute of them."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from rota.core.commands import KeepMinutes
from rota.engine.clock import Clock
from rota.engine.metrics.disk_watch import DiskWatch
from rota.engine.metrics.metrics import Metrics
from rota.engine.metrics.time_series import HOUR_MS, MINUTE_MS, SLOT_MS, Gauges
from rota.engine.queries.queues import QueueQueries
from rota.errors import RotaError

log = structlog.get_logger("rota.metrics")

LAST_MINUTE_S = 1.0  # how long a stop waits at most for the last minute of the charts


class GaugeSampler:
    """Every coordinator samples, since each serves charts. Only the leader stores them."""

    def __init__(
        self,
        queues: QueueQueries,
        metrics: Metrics,
        clock: Clock,
        *,
        keep: Callable[[KeepMinutes], Awaitable[object]],
        is_keeper: Callable[[], bool],
        disk: DiskWatch,
    ) -> None:
        self._queues = queues
        self._metrics = metrics
        self._clock = clock
        self._keep = keep
        self._is_keeper = is_keeper
        self._disk = disk
        self._minute_ms = clock.now_ms() // MINUTE_MS * MINUTE_MS  # the minute not yet stored
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        try:
            async with asyncio.timeout(LAST_MINUTE_S):
                await self._keep_minute(self._minute_ms)
        except TimeoutError:
            log.warning("chart_minute_dropped")

    async def sample(self) -> None:
        """Sample the disk and all queues now, and store the last minute if it is full."""
        self._disk.look()
        try:
            queues = await self._queues.all()
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

    async def _run(self) -> None:
        while True:
            await self.sample()
            await asyncio.sleep(SLOT_MS / 1000)

    async def _keep_minute(self, started_at_ms: int) -> None:
        """Store one minute of the charts; a failure loses only chart data."""
        minutes = self._metrics.series.minute(started_at_ms) if self._is_keeper() else ()
        if not minutes:
            return
        command = KeepMinutes(minutes=minutes, forget_before_ms=started_at_ms - HOUR_MS)
        try:
            await self._keep(command)
        except RotaError as error:
            log.warning("chart_minute_dropped", code=error.code)
