"""Everything that runs only while this coordinator leads its store: pipeline, writer, duties."""

import asyncio
from collections.abc import Awaitable, Callable

from msgspec import Struct

from rota.core import limits
from rota.core.context import Rules
from rota.core.replies import CommandBase, Done, Taken
from rota.engine.clock import Clock
from rota.engine.commit.pipeline import Pipeline
from rota.engine.commit.request import Delivery, QueuedCommand
from rota.engine.commit.writer import InlineWriter, ThreadWriter, Writer
from rota.engine.dispatch.stuck_watch import StuckWatch
from rota.engine.duties import INBOX
from rota.engine.metrics.metrics import Metrics
from rota.engine.outbound.client import OutboundClient
from rota.engine.outbound.pusher import PushParts, PushRunner
from rota.engine.queries.queries import Queries
from rota.engine.scheduler import DutyScheduler
from rota.engine.webhooks.deliverer import WebhookDeliverer
from rota.settings import Settings
from rota.store.database import Database
from rota.store.tasks.lanes import Lanes
from rota.store.workflow.blobs import Blobs

Execute = Callable[[CommandBase[Done | Taken]], Awaitable[Done | Taken]]


class EngineParts(Struct, frozen=True, kw_only=True):
    """What a coordinator has for good, and its time as the leader uses."""

    database: Database
    settings: Settings
    metrics: Metrics
    queries: Queries
    clock: Clock
    steady_clock: Clock
    rules: Rules
    dice: Callable[[], float]
    blobs: Blobs | None
    outbound: OutboundClient  # for notifications
    pushing: OutboundClient  # for tasks
    replica: str  # the name of this coordinator
    is_inline: bool  # no threads, for tests


class Leading:
    """One time as the leader. It ends with `stop`, and another begins with an empty memory."""

    def __init__(
        self,
        parts: EngineParts,
        lanes: Lanes,
        deliver: Callable[[Delivery], None],
        execute: Execute,
    ) -> None:
        self.pipeline = pipeline = Pipeline(
            parts.database,
            lanes,
            parts.metrics,
            clock=parts.clock,
            steady_clock=parts.steady_clock,
            rules=parts.rules,
            dice=parts.dice,
            blobs=parts.blobs,
            replica=parts.replica,
        )
        self.writer: Writer = (
            InlineWriter(pipeline.run, deliver)
            if parts.is_inline
            else ThreadWriter(
                pipeline.run, deliver, begin=pipeline.begin if parts.database.is_shared else None
            )
        )
        self.duties = DutyScheduler(
            execute,
            parts.queries,
            parts.metrics,
            parts.settings,
            clock=parts.clock,
            steady_clock=parts.steady_clock,
            # Applications commit to the inbox of a shared store beside the coordinators.
            intervals=(
                {INBOX.name: parts.settings.inbox_interval_ms} if parts.database.is_shared else {}
            ),
        )

        self.webhooks = WebhookDeliverer(
            execute,
            parts.queries.webhooks,
            parts.queries.events,
            parts.outbound,
            clock=parts.clock,
            metrics=parts.metrics.outbound,
            last_seq=lambda: pipeline.last_seq,
        )
        self.push = PushRunner(
            PushParts(
                execute=execute,
                client=parts.pushing,
                clock=parts.clock,
                metrics=parts.metrics.outbound,
                node_id=parts.replica,
                slots=asyncio.Semaphore(limits.MAX_PUSHES_AT_ONCE),
            ),
            parts.queries.queues,
            last_seq=lambda: pipeline.last_seq,
        )
        self.stuck_watch = StuckWatch(
            execute,
            parts.queries.dashboard,
            parts.queries.queues,
            stuck_after_ms=parts.settings.stuck_after_ms,
            clock=parts.clock,
        )

    def recover(self, *, is_start: bool) -> None:
        """Load the state of the store. Blocks on the store. `is_start`: no caller waits yet."""
        self.pipeline.recover(is_start=is_start)

    def start(self) -> None:
        self.writer.start(asyncio.get_running_loop())
        self.duties.start()
        self.push.start()
        self.webhooks.start()
        self.stuck_watch.start()

    async def tick(self) -> None:
        """Do once, now, what is done as time passes. For tests that turn the clock."""
        await self.duties.run_all()
        await self.stuck_watch.look()
        await self.webhooks.run_once()

    async def stop(self) -> None:
        """Execute all accepted commands, then end."""
        await self.push.stop()
        await self.stuck_watch.stop()
        await self.webhooks.stop()
        await self.duties.stop()
        await self.writer.stop()
        self.pipeline.close()

    def waiting_calls(self) -> list[QueuedCommand]:
        """The lease calls that wait for work; another leader has to serve them now."""
        return self.pipeline.lease_calls.waitlist.calls()
