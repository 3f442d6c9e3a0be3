"""The coordinator: executes commands, and notifies its subscribers of each commit.

Theory of operation. Callers submit commands on the event loop and wait. A writer (a thread, or in
tests the loop itself) takes all waiting commands into one batch and one transaction. Meanwhile the
next batch gathers. The coordinator sends a reply only after the commit of its command. A lease call
that finds no work joins the waitlist. The transaction that brings work for it serves it.

Where several coordinators share a store, one of them leads and executes all commands. To every
other coordinator the writer is a link to the leader: replies and notifications come back over it
after the leader's commit. When the leader is gone, commands wait for a moment for the next one
(`replicas`).
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, assert_never, cast, overload

from msgspec.structs import replace

from rota.core import limits
from rota.core.commands import Command, LeaseWork, SubmitTasks
from rota.core.ids import TaskId
from rota.core.locks import AcquireLock
from rota.core.outbound.targets import policy_of
from rota.core.replies import CommandBase, Granted
from rota.core.shards.members import Assignment
from rota.core.workflow.commands import StartRun
from rota.engine.clock import Clock, SystemClock, clock_of, steady
from rota.engine.commit.notifier import Notifier, reply_soon, resolve_all
from rota.engine.commit.request import Delivery, QueuedCommand, ReplyCallback, returned_by
from rota.engine.commit.writer import Writer
from rota.engine.dispatch.subscription import LeaseSubscription
from rota.engine.events.stream import EventStream, EventSubscription
from rota.engine.leading import EngineParts, Leading
from rota.engine.metrics.disk_watch import DiskWatch
from rota.engine.metrics.metrics import Metrics
from rota.engine.metrics.sampler import GaugeSampler
from rota.engine.metrics.time_series import HOUR_MS
from rota.engine.outbound.client import OutboundClient
from rota.engine.policies import policies_of
from rota.engine.queries.queries import Queries
from rota.engine.replicas.held import NO_LEADER
from rota.engine.replicas.membership import ReplicaMembership
from rota.engine.runs.artifact_io import ArtifactIo
from rota.engine.runs.started_run import StartedRun
from rota.engine.topics import (
    Assignments,
    Cancellations,
    CommittedEvents,
    EndOfTask,
    EventsAfter,
    Leases,
    NewLines,
    NextAssignment,
    SessionNews,
    Topic,
    TopicBase,
)
from rota.errors import Overloaded, Unavailable
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
        self.rules = policies_of(settings)
        if self.is_shared:
            blobs = None  # other coordinators cannot reach the files beside this one
        self._metrics = Metrics()
        self._lanes = Lanes()
        self.artifact_io = ArtifactIo(blobs, settings, is_shared=self.is_shared)
        self._waiting_leases: dict[QueuedCommand, None] = {}  # in the order they came
        self.queries = Queries(
            database,
            self._lanes,
            self._metrics,
            clock=self.clock,
            steady_clock=self.steady_clock,
            inline=inline,
            shard_policy=self.rules.shards,
        )
        self._events = EventStream(self.queries.events if self.is_shared else None)
        self._notifier = Notifier(self._events)
        self._lock_waiters = self._notifier.lock_waiters
        self.is_stopping = True  # until it is started
        self._writer: Writer | None = None  # None: no coordinator leads the store
        self._leading: Leading | None = None
        self._has_served = False  # it has led or followed, so callers may wait here
        self.membership = ReplicaMembership(
            database, settings, self, clock=self.clock, inline=inline
        )
        self._sampler = GaugeSampler(
            self.queries.queues,
            self._metrics,
            self.clock,
            keep=self.execute,
            is_keeper=lambda: self._leading is not None,
            disk=DiskWatch(database, self._metrics, low_bytes=settings.store_disk_low_bytes),
        )
        policy = policy_of(settings.outbound_allow, is_closed=settings.outbound_only_allowed)
        self.outbound = OutboundClient(policy, ca_file=settings.outbound_ca)
        # Tasks have their own room, so that they hold up no notification.
        most = limits.MAX_PUSHES_AT_ONCE
        self._pushing = OutboundClient(
            policy, ca_file=settings.outbound_ca, most=most, most_of_host=most
        )
        self._parts = EngineParts(
            database=database,
            settings=settings,
            metrics=self._metrics,
            queries=self.queries,
            clock=self.clock,
            steady_clock=self.steady_clock,
            rules=self.rules,
            dice=dice,
            blobs=blobs,
            outbound=self.outbound,
            pushing=self._pushing,
            replica=self.membership.name,
            is_inline=inline,
        )

    @property
    def is_ready(self) -> bool:
        """Whether commands are executed: it is started, not about to stop, and has a leader."""
        return not self.is_stopping and self.has_leader

    @property
    def has_leader(self) -> bool:
        """Whether this coordinator leads the store, or is connected to the leader."""
        return self._writer is not None

    @property
    def leading(self) -> Leading:
        """What runs only while this coordinator leads the store, as it does now."""
        assert self._leading is not None, "another coordinator leads"
        return self._leading

    @property
    def store_problem(self) -> str | None:
        """Why the store could not be used lately; None: it could."""
        if self._leading is not None:
            return self._leading.pipeline.store_problem
        leadership = self.membership.leadership
        return None if leadership is None else leadership.store_problem

    @property
    def is_store_full(self) -> bool:
        """Whether the last change was refused because the disk of the store is full."""
        return self._leading is not None and self._leading.pipeline.is_store_full

    async def start(self) -> None:
        self._nobody = asyncio.get_running_loop().create_future()
        minutes = await self.queries.dashboard.minutes(self.clock.now_ms() - HOUR_MS)
        self._metrics.series.fill(minutes)
        self.is_stopping = False
        await self.membership.start()
        self._sampler.start()

    async def stop(self) -> None:
        """Execute all accepted commands, then stop using the store."""
        self.is_stopping = True
        await self._sampler.stop()
        await self.membership.stop()
        # Only now, because the last batches may bring work for the waiting lease calls.
        self.release_waiting()
        self.queries.close()
        self.outbound.close()
        self._pushing.close()

    def begin_stop(self) -> None:
        """Accept no more work, and end all waits, because the coordinator is about to stop."""
        self.is_stopping = True
        self.release_waiting()

    @property
    def started_at_ms(self) -> int:
        return self.membership.started_at_ms

    # --- the writer -------------------------------------------------------------------------------

    async def lead(self) -> None:
        """Load the state of the store, and execute commands from now on."""
        lanes = Lanes() if self.is_shared else self._lanes
        leading = Leading(self._parts, lanes, self._deliver, self.execute)
        if self._parts.is_inline or not self.is_shared:
            leading.recover(is_start=not self._has_served)
        else:
            await asyncio.to_thread(leading.recover, is_start=not self._has_served)
        self._leading = leading
        self._events.advance(leading.pipeline.last_seq)
        leading.start()
        self.use_writer(leading.writer)

    async def stop_leading(self) -> list[QueuedCommand]:
        """Execute what was accepted, then stop; return the lease calls that still wait."""
        leading = self._leading
        if leading is None:
            return []
        await leading.stop()
        self._leading = None
        self._metrics.forget_leading()
        return leading.waiting_calls()

    def use_writer(self, writer: Writer | None) -> None:
        """Send commands to this writer from now on, also those that were held."""
        self._writer = writer
        if writer is not None:
            self._has_served = True
            for entry in self.membership.held.release():
                entry.is_forwarded = False
                writer.put(entry)

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
            self.enqueue(cast("Command", command), on_reply=on_reply)
            return None
        if type(command) is LeaseWork:
            return cast("Awaitable[R]", self._lease(command))
        if type(command) is AcquireLock and command.wait_ms > 0:
            waiting = replace(command, waits_at=self.membership.name) if self.is_shared else command
            return cast("Awaitable[R]", self._lock_waiters.acquire(waiting, self._enqueue_future))
        return self.enqueue(cast("Command", command), is_alone=is_alone).future

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
                return self._notifier.assignments.watch(topic.on_assignments)
            case Cancellations():
                return self._notifier.watch_cancellations(topic.on_cancelled)
            case SessionNews():
                return self._notifier.watch_sessions(topic.on_sessions, topic.connected)
            case EndOfTask():
                return self._notifier.ends.waiting_for(topic.task_id)
            case NewLines():
                return self._notifier.lines.waiting_for(topic.task_id)
            case NextAssignment():
                return self._notifier.assignments.waiting_for(
                    topic.service, topic.worker_id, after_generation=topic.after_generation
                )
            case _:
                assert_never(topic)

    async def wait_for_end(self, task_id: int, *, wait_ms: int) -> None:
        """Wait until a task or a run has ended, or `wait_ms` has passed."""
        with self.subscribe(EndOfTask(TaskId(task_id))) as end:
            if await self.queries.tasks.is_live(task_id) and not self.is_stopping:
                await end.wait(wait_ms)

    def start_run(self, command: StartRun) -> StartedRun:
        """Start a run whose end the caller waits for, inside a `with` block."""
        return StartedRun(self.enqueue(command, is_alone=True), self._notifier.ends)

    async def wait_for_assignment(
        self, service: str, worker_id: str, *, after_generation: int, wait_ms: int
    ) -> Assignment | None:
        """Wait until a member has a newer assignment; None: `wait_ms` has passed."""
        if self.is_stopping:
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
        entry = self.enqueue(command, can_wait=command.wait_ms > 0 and not self.is_stopping)
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
            lambda most: self.enqueue(
                LeaseWork(worker_id=topic.worker_id, incarnation=topic.incarnation, most=most),
                can_wait=not self.is_stopping,
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
        await self.membership.tick()
        if self._leading is not None:
            await self._leading.tick()
        await self._sampler.sample()

    def metrics(self) -> Metrics:
        self._metrics.waiting = self._weight
        self._metrics.watchers = self._events.watchers
        return self._metrics

    @property
    def _weight(self) -> int:
        """The changes that wait for their commit, here or at the leader."""
        return self.membership.held.weight + (0 if self._writer is None else self._writer.weight)

    def _enqueue_future(self, command: Command) -> "asyncio.Future[Any]":
        return self.enqueue(command).future

    def enqueue(
        self,
        command: Command,
        *,
        can_wait: bool = False,
        is_subscription: bool = False,
        is_alone: bool = False,
        on_reply: ReplyCallback | None = None,
    ) -> QueuedCommand:
        """Queue a command for the writer, or hold it while the store has no leader."""
        entry = QueuedCommand(
            command,
            self._nobody if on_reply else asyncio.get_running_loop().create_future(),
            can_wait=can_wait,
            is_subscription=is_subscription,
            on_reply=on_reply,
        )
        if isinstance(command, SubmitTasks):
            self._refuse_when_full(entry.weight)
        elif isinstance(command, LeaseWork) and self._is_little_left_for(command.worker_id):
            entry.is_cheap = True
        writer = self._writer
        if writer is not None and writer.is_running:
            (writer.put_alone if is_alone else writer.put)(entry)
        elif self.membership.held.is_holding:
            self.membership.held.add(entry)
        else:
            raise Unavailable("the coordinator is not running" if self.is_stopping else NO_LEADER)
        return entry

    def _is_little_left_for(self, worker_id: str) -> bool:
        leading = self._leading
        return leading is not None and leading.pipeline.lease_calls.has_little_for(worker_id)

    def _refuse_when_full(self, more: int) -> None:
        most, waiting = self.settings.max_waiting, self._weight
        if waiting and waiting + more > most:
            self._metrics.overloads += 1
            raise Overloaded(
                f"{waiting} changes wait for their commit, and the limit is {most}",
                limit="max_waiting",
            )

    def _deliver(self, delivery: Delivery) -> None:
        """Deliver a batch of this leader. Runs on the loop, after the commit."""
        if self.is_shared:
            delivery = self.membership.delivered(delivery)
        self.deliver(delivery)
        leading = self._leading
        if leading is not None and delivery.next_moment_ms is not None:
            leading.duties.hint(delivery.next_moment_ms)
        if leading is not None and delivery.next_firing_ms is not None:
            leading.duties.hint_firing(delivery.next_firing_ms)
        if leading is not None and delivery.next_sweep_ms is not None:
            leading.duties.hint_sweep(delivery.next_sweep_ms)

    def deliver(self, delivery: Delivery) -> None:
        """Resolve all callers and notify all subscribers of a commit, also of the leader's."""
        replies = resolve_all(delivery.answers, take_back=self._take_back)
        self._notifier.notify(delivery)
        # Last: a caller that waits for the end of a task hears of it before the worker's report is
        # acknowledged. The caller may be waiting for nothing else, the worker goes on anyway.
        reply_soon(replies)

    def resolve(self, entry: QueuedCommand, outcome: object) -> None:
        """Resolve one caller with the leader's reply; the notifications of the commit follow."""
        reply_soon(resolve_all([(entry, outcome)], take_back=self._take_back))

    def awaits_ends(self) -> bool:
        """Whether a caller waits for the end of a task or a run, or for its log lines."""
        return self._notifier.awaits_ends

    def deliver_of_leader(self, delivery: Delivery) -> None:
        """Deliver what came from the leader: its events are in the log already."""
        self.deliver(delivery)
        if delivery.last_seq:
            self._events.advance(delivery.last_seq)
        for counts in delivery.counts:
            self._metrics.note_rates(counts, self.clock.now_ms())

    async def catch_up(self) -> None:
        """Notify the waiting callers of what happened while there was no leader to tell them."""
        found = await self.queries.dashboard.missed(
            self._notifier.ends.keys, self._notifier.lock_waiters.names
        )
        self._notifier.wake(found.ended)
        self._notifier.wake_all_readers()
        self._lock_waiters.look(found.locks)
        self._notifier.tell_sessions(set(self._notifier.sessions))
        self._events.advance(found.last_seq)

    def _take_back(self, entry: QueuedCommand, outcome: object) -> None:
        """Return the leases that were granted to a caller that has gone away."""
        for command in returned_by(entry, outcome):
            with contextlib.suppress(Unavailable):
                # No caller waits for this command. If it fails, the lease expires by itself.
                self.enqueue(command).future.add_done_callback(lambda future: future.exception())


def _give_up(entry: QueuedCommand) -> None:
    if entry.can_wait and not entry.future.done():
        entry.future.set_result(Granted([]))
