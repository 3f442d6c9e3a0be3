"""The coordinator: executes commands, and notifies its subscribers of each commit.

Theory of operation. Callers submit commands on the event loop and wait. A writer (a thread, or in
tests the loop itself) takes all waiting commands into one batch and one transaction. Meanwhile the
next batch gathers. The coordinator sends a reply only after the commit of its command. A lease call
that finds no work joins the waitlist. The transaction that brings work for it serves it.

The coordinator can lose a wake-up, but never a fact: all durable state is in the store, and the
duties read it every second. Where several coordinators share a store, their batches run one after
the other, and each catches up with the changes of its peers (`replicas`).
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, assert_never, cast, overload

from rota.core.commands import Command, LeaseWork, SubmitTasks
from rota.core.ids import TaskId
from rota.core.locks import AcquireLock
from rota.core.replicas import CatchUp
from rota.core.replies import CommandBase, Granted
from rota.core.shards.members import Assignment
from rota.engine.clock import Clock, SystemClock, clock_of, steady
from rota.engine.commit.notifier import Notifier, resolve_all
from rota.engine.commit.pipeline import Pipeline
from rota.engine.commit.request import Delivery, QueuedCommand, returned_by
from rota.engine.commit.writer import InlineWriter, ThreadWriter, Writer
from rota.engine.dispatch.subscription import LeaseSubscription
from rota.engine.events.stream import EventStream, EventSubscription
from rota.engine.metrics.metrics import Metrics
from rota.engine.policies import policies_of
from rota.engine.queries.queries import Queries
from rota.engine.replicas.change_poller import ChangePoller
from rota.engine.replicas.presence import Presence
from rota.engine.runs.artifact_io import ArtifactIo
from rota.engine.scheduler import DutyScheduler
from rota.engine.topics import (
    Assignments,
    Cancellations,
    CommittedEvents,
    EndOfTask,
    EventsAfter,
    Leases,
    NextAssignment,
    SessionNews,
    Topic,
    TopicBase,
)
from rota.errors import Overloaded, RotaError, Unavailable
from rota.settings import Settings
from rota.store.database import Database
from rota.store.tasks.lanes import Lanes
from rota.store.workflow.blobs import Blobs

R = TypeVar("R")
S = TypeVar("S")


class Coordinator:
    _nobody: asyncio.Future[Any]  # a placeholder for commands with `on_reply`; made in `start`

    def __init__(
        self,
        database: Database,
        settings: Settings,
        *,
        clock: Clock | None = None,
        dice: Callable[[], float] = random.random,
        inline: bool = False,
        blobs: Blobs | None = None,
    ) -> None:
        """`blobs`: where large artifacts are stored; None: in rows, like small ones."""
        self.is_shared = database.is_shared
        self.clock = clock_of(clock or SystemClock(), is_shared=self.is_shared)
        self.steady_clock = steady(self.clock)
        self.settings = settings
        self.presence = Presence(settings, self.clock)
        self.rules = policies_of(settings)
        self.is_ready = False
        if self.is_shared:
            blobs = None  # peers cannot reach the files beside this coordinator
        lanes = Lanes()
        self._metrics = Metrics()
        self._pipeline = Pipeline(
            database,
            lanes,
            self._metrics,
            clock=self.clock,
            steady_clock=self.steady_clock,
            rules=self.rules,
            dice=dice,
            blobs=blobs,
            replica=self.presence.name,
        )
        self.artifact_io = ArtifactIo(blobs, settings, is_shared=self.is_shared)
        self._writer: Writer = (
            InlineWriter(self._pipeline.run, self._deliver)
            if inline
            else ThreadWriter(self._pipeline.run, self._deliver, is_shared=self.is_shared)
        )
        self._waiting_leases: dict[QueuedCommand, None] = {}  # in the order they came
        self.queries = Queries(
            database,
            # The writer's lanes may include uncommitted ones. On a shared store the readers keep
            # their own lanes up to date, because peers add lanes, too.
            Lanes() if self.is_shared else lanes,
            self._metrics,
            clock=self.clock,
            steady_clock=self.steady_clock,
            inline=inline,
            shard_policy=self.rules.shards,
        )
        self._events = EventStream(self.queries.events if self.is_shared else None)
        self._notifier = Notifier(self._events, is_shared=self.is_shared)
        self._lock_waiters = self._notifier.lock_waiters
        self._others: ChangePoller | None = None
        if self.is_shared:
            self._others = ChangePoller(
                self.queries.reader,
                self._notifier,
                interval_ms=settings.poll_interval_ms,
                has_waiting_leases=lambda: self._metrics.waiting_leases > 0,
                run_batch=lambda: self._enqueue(CatchUp()).future,
            )
        self._duties = DutyScheduler(
            self.execute,
            self.queries,
            self._metrics,
            settings,
            clock=self.clock,
            steady_clock=self.steady_clock,
            more=(self.presence.duty,) if self.is_shared else (),
        )

    @property
    def store_problem(self) -> str | None:
        """Why the last write to the store failed; None: it succeeded."""
        return self._pipeline.store_problem

    async def start(self) -> None:
        self._pipeline.recover()
        if self.is_shared:
            self.presence.started_at_ms = self.clock.now_ms()
            self.queries.services.reset_start()
        self._events.last_seq = self._pipeline.last_seq
        self._nobody = asyncio.get_running_loop().create_future()
        self._writer.start(asyncio.get_running_loop())
        self._duties.start()
        if self._others is not None:
            self._others.start()
        self.is_ready = True

    async def stop(self) -> None:
        """Execute all accepted commands, then stop using the store."""
        self.is_ready = False
        await self._duties.stop()
        if self._others is not None:
            await self._others.stop()
            with contextlib.suppress(RotaError):
                await self.execute(self.presence.goodbye)
        await self._writer.stop()
        # Only now, because the last batches may bring work for the waiting lease calls.
        self.release_waiting()
        self.queries.close()

    @property
    def started_at_ms(self) -> int:
        return self.presence.started_at_ms

    async def catch_up(self) -> bool:
        """Catch up with peers on the store now; False: the store is unchanged. For tests."""
        return False if self._others is None else await self._others.look()

    # --- the contract -----------------------------------------------------------------------------

    @overload
    def execute(
        self, command: CommandBase[R], *, is_alone: bool = False, on_reply: None = None
    ) -> Awaitable[R]: ...

    @overload
    def execute(
        self, command: CommandBase[R], *, on_reply: Callable[[R | Exception], None]
    ) -> None: ...

    def execute(
        self,
        command: CommandBase[R],
        *,
        is_alone: bool = False,
        on_reply: Callable[[R | Exception], None] | None = None,
    ) -> Awaitable[R] | None:
        """Execute a command; the awaitable returns its reply after the commit.

        A command that may wait (`LeaseWork`, and `AcquireLock` with `wait_ms`) is queued when its
        awaitable is first awaited. All other commands are queued at once. When a caller is
        cancelled while it waits, the coordinator takes back the leases and locks it never saw.

        `is_alone`: the caller sends no other command in this turn of the loop. `on_reply`: the
        coordinator calls it with the reply or the exception, and returns no awaitable. All replies
        of a commit are delivered in one turn of the loop, in the order in which futures would be
        resolved.
        """
        if on_reply is not None:
            self._refuse_when_stopped()
            self._writer.put(
                QueuedCommand(
                    cast("Command", command), self._nobody, can_wait=False, on_reply=on_reply
                )
            )
            return None
        if type(command) is LeaseWork:
            return cast("Awaitable[R]", self._lease(command))
        if type(command) is AcquireLock and command.wait_ms > 0:
            return cast("Awaitable[R]", self._lock_waiters.acquire(command, self._enqueue_future))
        return self._enqueue(cast("Command", command), is_alone=is_alone).future

    def subscribe(self, topic: TopicBase[S]) -> S:
        """Subscribe to a topic; the topic's type names the type of the subscription."""
        return cast("S", self._subscribe(cast("Topic", topic)))

    def _subscribe(self, topic: Topic) -> object:  # noqa: PLR0911 - a table
        match topic:
            case Leases():
                return self._subscribe_to_leases(topic)
            case EventsAfter():
                return EventSubscription(
                    self._events,
                    self.queries.events,
                    topic.wanted,
                    after=topic.after,
                    sight=topic.sight,
                )
            case CommittedEvents():
                return self._events.watch(topic.on_events, topic.on_end)
            case Assignments():
                return self._notifier.assignments.watch(topic.on_assignments, topic.is_wanted)
            case Cancellations():
                return self._notifier.watch_cancellations(topic.on_cancelled, topic.is_wanted)
            case SessionNews():
                return self._notifier.watch_sessions(topic.on_sessions, topic.connected)
            case EndOfTask():
                return self._notifier.ends.waiting_for(topic.task_id)
            case NextAssignment():
                return self._notifier.assignments.waiting_for(
                    topic.service, topic.worker_id, after_generation=topic.after_generation
                )
            case _:
                assert_never(topic)

    async def wait_for_end(self, task_id: int, *, wait_ms: int) -> None:
        """Wait until a task or a run has ended, or `wait_ms` has passed."""
        with self.subscribe(EndOfTask(TaskId(task_id))) as end:
            if await self.queries.tasks.is_live(task_id) and self.is_ready:
                await end.wait(wait_ms)

    async def wait_for_assignment(
        self, service: str, worker_id: str, *, after_generation: int, wait_ms: int
    ) -> Assignment | None:
        """Wait until a member has a newer assignment; None: `wait_ms` has passed."""
        if not self.is_ready:
            return None
        topic = NextAssignment(service, worker_id, after_generation)
        with self.subscribe(topic) as newer:
            return await newer.wait(wait_ms)

    @property
    def last_seq(self) -> int:
        """The number of the last event that subscribers received."""
        return self._events.last_seq

    async def _lease(self, command: LeaseWork) -> Granted:
        """Lease work; if there is none, wait for it until `wait_ms` has passed."""
        # A call that arrives during a stop must not delay it.
        entry = self._enqueue(command, can_wait=command.wait_ms > 0 and self.is_ready)
        timer = asyncio.get_running_loop().call_later(command.wait_ms / 1000, _give_up, entry)
        self._waiting_leases[entry] = None
        try:
            granted: Granted = await entry.future
        except asyncio.CancelledError:
            if entry.future.done() and not entry.future.cancelled():
                # The caller was cancelled after its reply was ready.
                self._take_back(entry, entry.future.exception() or entry.future.result())
            raise
        finally:
            entry.is_abandoned = True
            del self._waiting_leases[entry]
            timer.cancel()
        return granted

    def _subscribe_to_leases(self, topic: Leases) -> LeaseSubscription:
        return LeaseSubscription(
            lambda most: self._enqueue(
                LeaseWork(worker_id=topic.worker_id, incarnation=topic.incarnation, most=most),
                can_wait=self.is_ready,
                is_subscription=True,
            ),
            take_back=self._take_back,
            on_granted=topic.on_granted,
            on_ended=topic.on_ended,
        )

    # --- stopping and tests -----------------------------------------------------------------------

    def release_waiting(self) -> None:
        """Reply to all waiting calls without a result, because the coordinator is about to stop."""
        for entry in list(self._waiting_leases):
            _give_up(entry)
        self._notifier.close()

    async def tick(self) -> None:
        """Run all duties once, now. Tests that turn the clock call this."""
        await self._duties.run_all()

    def metrics(self) -> Metrics:
        self._metrics.waiting = self._writer.weight
        self._metrics.watchers = self._events.watchers
        return self._metrics

    def _enqueue_future(self, command: Command) -> "asyncio.Future[Any]":
        return self._enqueue(command).future

    def _enqueue(
        self,
        command: Command,
        *,
        can_wait: bool = False,
        is_subscription: bool = False,
        is_alone: bool = False,
    ) -> QueuedCommand:
        self._refuse_when_stopped()
        future = asyncio.get_running_loop().create_future()
        entry = QueuedCommand(command, future, can_wait=can_wait, is_subscription=is_subscription)
        if isinstance(command, SubmitTasks):
            self._refuse_when_full(entry.weight)
        elif isinstance(command, LeaseWork) and self._pipeline.lease_calls.has_little_for(
            command.worker_id
        ):
            entry.is_cheap = True
        (self._writer.put_alone if is_alone else self._writer.put)(entry)
        return entry

    def _refuse_when_stopped(self) -> None:
        if not self._writer.is_running:
            raise Unavailable("the coordinator is not running")

    def _refuse_when_full(self, more: int) -> None:
        most, waiting = self.settings.max_waiting, self._writer.weight
        if waiting and waiting + more > most:
            self._metrics.overloads += 1
            raise Overloaded(
                f"{waiting} changes wait for their commit, and at most {most} may",
                limit="max_waiting",
            )

    def _deliver(self, delivery: Delivery) -> None:
        """Resolve all callers and notify all subscribers. Runs on the loop, after the commit."""
        resolve_all(delivery.answers, take_back=self._take_back)
        self._notifier.notify(delivery)
        if delivery.next_moment_ms is not None:
            self._duties.hint(delivery.next_moment_ms)
        if delivery.next_sweep_ms is not None:
            self._duties.hint_sweep(delivery.next_sweep_ms)

    def _take_back(self, entry: QueuedCommand, outcome: object) -> None:
        """Return the leases that were granted to a caller that has gone away."""
        for command in returned_by(entry, outcome):
            if self._writer.is_running:
                # No caller waits for this command. If it fails, the lease expires by itself.
                self._enqueue(command).future.add_done_callback(lambda future: future.exception())


def _give_up(entry: QueuedCommand) -> None:
    if entry.can_wait and not entry.future.done():
        entry.future.set_result(Granted([]))
