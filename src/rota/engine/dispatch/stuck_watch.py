"""Watches for queues whose tasks cannot start, while this coordinator leads.

Why tasks wait is read beside the writer, as the dashboard reads it. Only what changes is executed
as a command, which records the events and remembers them for the next leader.
"""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from rota.core.dispatch.stuck_queues import NoteStuckQueues, stuck_queues
from rota.core.replies import CommandBase, Done, Taken
from rota.engine.clock import Clock
from rota.engine.polling import Poller
from rota.engine.queries.dashboard import DashboardQueries
from rota.engine.queries.queues import QueueQueries

log = structlog.get_logger("rota.dispatch")

INTERVAL_S = 5.0
NOTED_AT_ONCE = 1_000  # queues in one command


class StuckWatch:
    def __init__(
        self,
        execute: Callable[[CommandBase[Done | Taken]], Awaitable[Done | Taken]],
        dashboard: DashboardQueries,
        queues: QueueQueries,
        *,
        stuck_after_ms: int,
        clock: Clock,
    ) -> None:
        self._execute = execute
        self._dashboard = dashboard
        self._queues = queues
        self._stuck_after_ms = stuck_after_ms
        self._clock = clock
        self._since_ms: dict[str, int] = {}  # when each queue was first found unable to start tasks
        self._poller = Poller(self.look, _pause, log=log, failure="stuck_queues_unknown")

    def start(self) -> None:
        self._poller.start()

    async def stop(self) -> None:
        await self._poller.stop()

    async def look(self) -> None:
        """Look once, and report the queues that have become stuck, or are stuck no more."""
        lanes = await self._dashboard.lanes_now()
        stuck = stuck_queues((one.lane, one.figures.queued, one.why) for one in lanes)
        now_ms, known = self._clock.now_ms(), await self._queues.stuck()
        self._since_ms = {queue: self._since_ms.get(queue, now_ms) for queue in stuck}
        found = [
            one
            for queue, one in stuck.items()
            if queue not in known and now_ms - self._since_ms[queue] >= self._stuck_after_ms
        ]
        freed = [queue for queue in known if queue not in stuck]
        if found or freed:
            command = NoteStuckQueues(
                stuck=tuple(found[:NOTED_AT_ONCE]), freed=tuple(freed[:NOTED_AT_ONCE])
            )
            await self._execute(command)


async def _pause() -> None:
    await asyncio.sleep(INTERVAL_S)
