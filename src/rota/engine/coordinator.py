"""The engine: takes all events that wait, decides and writes them in one transaction, answers.

Theory of operation. Callers hand in events on the event loop and wait. A writer (a thread of its
own, or in tests the loop itself) takes everything that waits at that moment into one batch and one
transaction; while it is at it, the next batch gathers. An answer leaves only after the commit that
it speaks of. A call for work that finds none stays parked with the writer, and is served by the
very transaction that brings work for it.

What may be lost here is a wake-up, never a fact: everything that matters is in the store, and
each second the duties look at it anew. Where several coordinators share a store, their batches come
one after the other, and what others did is caught up with (`refreshing`, `catching_up`).
"""

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence
from typing import Any

from rota.core.events import Event, LeaseWork, SubmitTasks
from rota.core.ids import TaskId
from rota.core.locks import AcquireLock, LockAnswer, LockEvent
from rota.core.memory import DeleteMemory, MemoryEntry, PutMemory
from rota.core.notices import NoticeFilter
from rota.core.replies import Granted, Reply
from rota.core.shards.events import ShardEvent
from rota.core.shards.members import Assignment, ShardPolicy
from rota.core.workflow.commands import RunCommand
from rota.engine.answering import answer_all, returned_by
from rota.engine.assignments import Callback
from rota.engine.audience import (
    Audience,
    CancellationsCallback,
    IsPresent,
    PresentSessions,
    SessionsCallback,
)
from rota.engine.batch import Anything
from rota.engine.catching_up import CatchingUp
from rota.engine.clock import Clock, SystemClock, clock_of, steady
from rota.engine.contents import Contents
from rota.engine.duties.runner import DutyRunner
from rota.engine.entries import Delivery, Entry
from rota.engine.figures import Figures
from rota.engine.following import Follower, NoticeHub, NoticesCallback
from rota.engine.keeping import KeepingReply, Kept
from rota.engine.notice_log import Sight
from rota.engine.pipeline import Pipeline
from rota.engine.presence import Presence
from rota.engine.queries import Queries
from rota.engine.rules import rules_of
from rota.engine.run_commands import RunReply
from rota.engine.shards import ShardReply
from rota.engine.sharing import CatchUp
from rota.engine.standing import StandingCall
from rota.engine.writer import InlineWriter, ThreadWriter, Writer
from rota.errors import Overloaded, RotaError, Unavailable
from rota.settings import Settings
from rota.store.blobs import Blobs
from rota.store.database import Database
from rota.store.lanes import Lanes


class Coordinator:
    _nobody: asyncio.Future[Any]  # who waits for what is answered by a call; made at the start

    def __init__(
        self,
        database: Database,
        settings: Settings,
        *,
        clock: Clock | None = None,
        dice: Callable[[], float] = random.random,
        inline: bool = False,
        blobs: Blobs | None = None,
        shard_policy: ShardPolicy | None = None,
    ) -> None:
        """Blobs: where large artifacts lie; without, they are kept in rows like small ones."""
        self.is_shared = database.is_shared
        self.clock = clock_of(clock or SystemClock(), is_shared=self.is_shared)
        self.steady_clock = steady(self.clock)
        self.settings = settings
        self.presence = Presence(settings, self.clock)
        self.rules = rules_of(settings)
        self.shard_policy = shard_policy or ShardPolicy(health=self.rules.health)
        self.is_ready = False
        if self.is_shared:
            blobs = None  # files beside one of several coordinators are out of the others' reach
        lanes = Lanes()
        self._figures = Figures()
        self._pipeline = Pipeline(
            database,
            lanes,
            self._figures,
            clock=self.clock,
            steady_clock=self.steady_clock,
            rules=self.rules,
            dice=dice,
            blobs=blobs,
            shard_policy=self.shard_policy,
            replica=self.presence.name,
        )
        self.contents = Contents(blobs, settings, is_shared=self.is_shared)
        self._writer: Writer = (
            InlineWriter(self._pipeline.run, self._deliver)
            if inline
            else ThreadWriter(self._pipeline.run, self._deliver, is_shared=self.is_shared)
        )
        self._staying: dict[Entry, None] = {}  # in the order they came
        self.queries = Queries(
            database,
            # The writer's book may have lanes that are not committed yet; where others write, too,
            # readers keep one of their own up to date.
            Lanes() if self.is_shared else lanes,
            self._figures,
            clock=self.clock,
            steady_clock=self.steady_clock,
            inline=inline,
            shard_policy=self.shard_policy,
        )
        self._notices = NoticeHub(self.queries.notices if self.is_shared else None)
        self._audience = Audience(self._notices, is_shared=self.is_shared)
        self._waiters = self._audience.waiters
        self._assignments = self._audience.assignments
        self._lines = self._audience.lines
        self._others: CatchingUp | None = None
        if self.is_shared:
            self._others = CatchingUp(
                database,
                self.queries,
                self._audience,
                interval_ms=settings.poll_interval_ms,
                has_parked=lambda: self._figures.parked > 0,
                run_batch=lambda: self._enter(CatchUp()).future,
            )
        self._duties = DutyRunner(self, *([self.presence.duty] if self.is_shared else ()))

    @property
    def store_problem(self) -> str | None:
        """Why the store could not be written last time; None when it could."""
        return self._pipeline.store_problem

    async def start(self) -> None:
        self._pipeline.recover()
        if self.is_shared:
            self.presence.started_at_ms = self.clock.now_ms()
            self.queries.begin()
        self._notices.last_seq = self._pipeline.last_seq
        self._nobody = asyncio.get_running_loop().create_future()
        self._writer.start(asyncio.get_running_loop())
        self._duties.start()
        if self._others is not None:
            self._others.start()
        self.is_ready = True

    async def stop(self) -> None:
        """Answer what was accepted, then let go of the store."""
        self.is_ready = False
        await self._duties.stop()
        if self._others is not None:
            await self._others.stop()
            with contextlib.suppress(RotaError):
                await self.carry_out(self.presence.goodbye)
        await self._writer.stop()
        # Only now: the last batches may still have had work for the calls that wait for some.
        self.release_parked()
        self.queries.close()

    @property
    def started_at_ms(self) -> int:
        return self.presence.started_at_ms

    async def catch_up(self) -> bool:
        """See what others on the store have done, now; False: nothing. Tests call this."""
        return False if self._others is None else await self._others.look()

    async def handle(self, event: Event, *, is_alone: bool = False) -> Reply:
        """Carry out one event; returns when it is committed.

        Is alone: the caller has nothing else to ask in this moment.
        """
        reply: Reply = await self._enter(event, is_alone=is_alone).future
        return reply

    async def handle_together(self, events: Sequence[Event]) -> list[Reply | BaseException]:
        """Carry out events that come at the same moment; what became of each, in order."""
        entered = [self._enter(event).future for event in events]
        return await asyncio.gather(*entered, return_exceptions=True)

    def submit(self, event: Event) -> "asyncio.Future[Reply]":
        """As `handle`, without a coroutine: for those who have many under way."""
        return self._enter(event).future

    def stand(
        self,
        worker_id: str,
        incarnation: int,
        *,
        on_granted: Callable[[Granted], int],
        on_ended: Callable[[RotaError], None],
    ) -> StandingCall:
        """A call for work that stays, and is granted again and again."""
        return StandingCall(
            lambda most: self._enter(
                LeaseWork(worker_id=worker_id, incarnation=incarnation, most=most),
                stays=self.is_ready,
                stands=True,
            ),
            take_back=self._take_back,
            on_granted=on_granted,
            on_ended=on_ended,
        )

    def watch_cancellations(
        self, callback: CancellationsCallback, is_wanted: IsPresent = lambda: True
    ) -> None:
        """Call back on the loop with the leases whose tasks a commit has cancelled."""
        self._audience.watch_cancellations(callback, is_wanted)

    async def command(self, command: RunCommand) -> RunReply:
        """Carry out what is asked of workflows and runs; returns when it is committed."""
        reply: RunReply = await self._enter(command).future
        return reply

    async def shard(self, event: ShardEvent) -> Assignment | None:
        """Carry out what happens to a service; returns when it is committed.

        An assignment that is pending is no answer yet: the member is pushed one when there is.
        """
        reply = await self.submit_shard(event)
        return reply if isinstance(reply, Assignment) else None

    def submit_shard(self, event: ShardEvent) -> asyncio.Future[ShardReply]:
        """As `shard`, without a coroutine: members beat by the thousand."""
        return self._enter(event).future

    def hear(self, event: Event | ShardEvent, answer: Callable[[Any], None]) -> None:
        """As `submit`, without even a future: all answers of a commit are given in one go.

        They are given in the order in which futures of their commits would be resolved.
        """
        self._refuse_when_stopped()
        self._writer.put(Entry(event, self._nobody, stays=False, answer=answer))

    def watch_assignments(
        self, callback: Callback, is_wanted: IsPresent = lambda: True
    ) -> Callable[[], None]:
        """Call back on the loop with all pushes of each commit; the answer ends it.

        A push and the answer to an earlier call may pass each other on their way to a member:
        whoever sends them must not send one of a lower generation than it has sent before.
        """
        return self._assignments.watch(callback, is_wanted)

    def watch_sessions(
        self, callback: SessionsCallback, present: PresentSessions = lambda: ()
    ) -> None:
        """Call back on the loop with the sessions that a commit has news for, if they are here."""
        self._audience.watch_sessions(callback, present)

    def watch_notices(
        self, callback: NoticesCallback, on_end: Callable[[], None] = lambda: None
    ) -> Callable[[], None]:
        """Call back on the loop with all notices of each commit; the answer ends it.

        Before the coordinator stops, `on_end` is called once instead.
        """
        return self._notices.watch(callback, on_end)

    def follow(self, wanted: NoticeFilter, *, after: int, sight: Sight | None = None) -> Follower:
        """All notices after a number, those to come included; whoever takes them closes this."""
        return Follower(self._notices, self.queries.notices, wanted, after=after, sight=sight)

    @property
    def last_seq(self) -> int:
        """The number of the last notice that was handed out."""
        return self._notices.last_seq

    async def wait_assignment(
        self, service: str, worker_id: str, *, after_generation: int, wait_ms: int
    ) -> Assignment | None:
        """Wait until a member is to be told something new; None: the time is over."""
        if not self.is_ready:
            return None
        return await self._assignments.wait(
            service, worker_id, after_generation=after_generation, wait_ms=wait_ms
        )

    async def keep(self, event: PutMemory | DeleteMemory) -> MemoryEntry:
        """Change what is kept under a key; the answer is what is kept now, or was."""
        reply: Kept = await self._enter(event).future
        return reply.entry

    async def lock(self, event: LockEvent) -> LockAnswer:
        """Acquire, renew or release a lock, without waiting for it."""
        reply: LockAnswer = await self._enter(event).future
        return reply

    async def acquire(self, event: AcquireLock) -> LockAnswer:
        """Acquire a lock; stand in line for it until the time is over, or the caller goes away."""
        return await self._lines.acquire(event, lambda event: self._enter(event).future)

    async def carry_out(self, anything: Anything) -> Reply | RunReply | ShardReply | KeepingReply:
        reply: Reply | RunReply | ShardReply | KeepingReply = await self._enter(anything).future
        return reply

    async def wait_run(self, run_id: int, *, wait_ms: int) -> None:
        """Wait until a run has ended, or the time is over."""
        with self._waiters.waiting_for(TaskId(run_id)) as ended:
            if await self.queries.is_run_live(run_id) and self.is_ready:
                await asyncio.wait([ended], timeout=wait_ms / 1000)

    async def lease(self, event: LeaseWork, *, wait_ms: int) -> Granted:
        """Lease work; without any, wait for some until the time is over."""
        # A call that comes once a stop was asked for must not hold it up.
        entry = self._enter(event, stays=wait_ms > 0 and self.is_ready)
        timer = asyncio.get_running_loop().call_later(wait_ms / 1000, _give_up, entry)
        self._staying[entry] = None
        try:
            granted: Granted = await entry.future
        except asyncio.CancelledError:
            if entry.future.done() and not entry.future.cancelled():
                # The answer was there, but nobody to take it.
                self._take_back(entry, entry.future.exception() or entry.future.result())
            raise
        finally:
            entry.is_gone = True
            del self._staying[entry]
            timer.cancel()
        return granted

    async def wait_finished(self, task_id: TaskId, *, wait_ms: int) -> None:
        """Wait until a task has finished, or the time is over."""
        with self._waiters.waiting_for(task_id) as finished:
            if await self.queries.is_live(task_id) and self.is_ready:
                await asyncio.wait([finished], timeout=wait_ms / 1000)

    def release_parked(self) -> None:
        """Answer all calls that wait, with nothing: the coordinator is about to stop."""
        for entry in list(self._staying):
            _give_up(entry)
        self._audience.close()

    async def tick(self) -> None:
        """Run all duties once, now. Tests that turn the clock call this."""
        await self._duties.run_all()

    def figures(self) -> Figures:
        self._figures.waiting = self._writer.weight
        self._figures.watchers = self._notices.watchers
        return self._figures

    def _enter(
        self, event: Anything, *, stays: bool = False, stands: bool = False, is_alone: bool = False
    ) -> Entry:
        self._refuse_when_stopped()
        future = asyncio.get_running_loop().create_future()
        entry = Entry(event, future, stays=stays, stands=stands)
        if isinstance(event, SubmitTasks):
            self._refuse_when_full(entry.weight)
        elif isinstance(event, LeaseWork) and self._pipeline.has_little_for(event.worker_id):
            entry.is_light = True
        (self._writer.put_alone if is_alone else self._writer.put)(entry)
        return entry

    def _refuse_when_stopped(self) -> None:
        if not self._writer.is_running:
            raise Unavailable("the coordinator is not running")

    def _refuse_when_full(self, more: int) -> None:
        most, waiting = self.settings.max_waiting, self._writer.weight
        if waiting and waiting + more > most:
            self._figures.overloads += 1
            raise Overloaded(
                f"{waiting} changes wait for their commit, and at most {most} may",
                limit="max_waiting",
            )

    def _deliver(self, delivery: Delivery) -> None:
        """Back on the loop, after the commit: answer all callers, wake whoever waits."""
        answer_all(delivery.answers, take_back=self._take_back)
        self._audience.tell(delivery)
        if delivery.next_moment_ms is not None:
            self._duties.hint(delivery.next_moment_ms)
        if delivery.next_sweep_ms is not None:
            self._duties.hint_sweep(delivery.next_sweep_ms)

    def _take_back(self, entry: Entry, outcome: object) -> None:
        """The caller went away while its leases were granted: they go back at once."""
        for event in returned_by(entry, outcome):
            if self._writer.is_running:
                # Nobody waits for this one; a failure is only late, the lease runs out by itself.
                self._enter(event).future.add_done_callback(lambda future: future.exception())


def _give_up(entry: Entry) -> None:
    if entry.stays and not entry.future.done():
        entry.future.set_result(Granted([]))
