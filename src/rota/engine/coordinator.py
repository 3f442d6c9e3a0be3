"""The engine: takes all events that wait, decides and writes them in one transaction, answers.

Theory of operation. Callers hand in events on the event loop and wait. A writer (a thread of its
own, or in tests the loop itself) takes everything that waits at that moment into one batch and one
transaction; while it is at it, the next batch gathers. An answer leaves only after the commit that
it speaks of. A call for work that finds none stays parked with the writer, and is served by the
very transaction that brings work for it.

What may be lost here is a wake-up, never a fact: everything that matters is in the store, and
each second the duties look at it anew.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet

from rota.core.choosing import Strategy
from rota.core.decisions import TellCancelled
from rota.core.events import Event, LeaseWork, ReturnLeases, SubmitTasks
from rota.core.ids import TaskId
from rota.core.locks import AcquireLock, LockAnswer, LockEvent
from rota.core.memory import DeleteMemory, MemoryEntry, PutMemory
from rota.core.notices import NoticeFilter
from rota.core.replies import Granted, Reply
from rota.core.scoring import ScoringPolicy
from rota.core.shards.events import ShardEvent
from rota.core.shards.members import Assignment, ShardPolicy
from rota.core.snapshot import Rules
from rota.core.workers import HealthPolicy
from rota.core.workflow.commands import RunCommand
from rota.engine.assignments import Assignments, Callback
from rota.engine.batch import Anything
from rota.engine.clock import Clock, SystemClock, steady
from rota.engine.contents import Contents
from rota.engine.duties.runner import DutyRunner
from rota.engine.figures import Figures
from rota.engine.following import Follower, NoticeHub, NoticesCallback
from rota.engine.keeping import KeepingReply, Kept
from rota.engine.lines import Lines
from rota.engine.notice_log import Sight
from rota.engine.pipeline import Delivery, Entry, Pipeline
from rota.engine.queries import Queries
from rota.engine.run_commands import RunReply
from rota.engine.shards import ShardReply
from rota.engine.standing import StandingCall
from rota.engine.wake import Waiters
from rota.engine.writer import InlineWriter, ThreadWriter, Writer
from rota.errors import Overloaded, RotaError, Unavailable
from rota.settings import Settings
from rota.store.blobs import Blobs
from rota.store.database import Database
from rota.store.lanes import Lanes

SessionsCallback = Callable[[AbstractSet[str]], None]
CancellationsCallback = Callable[[Sequence[TellCancelled]], None]


def rules_of(settings: Settings) -> Rules:
    return Rules(
        health=HealthPolicy(
            degraded_after=settings.degraded_after, unhealthy_after=settings.unhealthy_after
        ),
        scoring=ScoringPolicy(lifetime=settings.scoring == "lifetime"),
        strategy=Strategy(settings.strategy),
        job_lease_ms=settings.job_lease_ms,
        unclaimed_lease_ms=settings.unclaimed_lease_ms,
    )


class Coordinator:
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
        self.clock = clock or SystemClock()
        self.steady_clock = steady(self.clock)
        self.settings = settings
        self.rules = rules_of(settings)
        self.shard_policy = shard_policy or ShardPolicy(health=self.rules.health)
        self.is_ready = False
        self.started_at_ms = self.clock.now_ms()
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
        )
        self.contents = Contents(blobs)
        make_writer = InlineWriter if inline else ThreadWriter
        self._writer: Writer = make_writer(self._pipeline.run, self._deliver)
        self._waiters = Waiters()
        self._assignments = Assignments()
        self._notices = NoticeHub()
        self._lines = Lines()
        self._session_callbacks: list[SessionsCallback] = []
        self._cancellation_callbacks: list[CancellationsCallback] = []
        self._staying: dict[Entry, None] = {}  # in the order they came
        self.queries = Queries(
            database,
            lanes,
            self._figures,
            clock=self.clock,
            steady_clock=self.steady_clock,
            inline=inline,
            shard_policy=self.shard_policy,
        )
        self._duties = DutyRunner(self)

    @property
    def store_problem(self) -> str | None:
        """Why the store could not be written last time; None when it could."""
        return self._pipeline.store_problem

    async def start(self) -> None:
        self._pipeline.recover()
        self._notices.last_seq = self._pipeline.last_seq
        self._writer.start(asyncio.get_running_loop())
        self._duties.start()
        self.is_ready = True

    async def stop(self) -> None:
        """Answer what was accepted, then let go of the store."""
        self.is_ready = False
        await self._duties.stop()
        await self._writer.stop()
        # Only now: the last batches may still have had work for the calls that wait for some.
        self.release_parked()
        self.queries.close()

    async def handle(self, event: Event) -> Reply:
        """Carry out one event; returns when it is committed."""
        reply: Reply = await self._enter(event).future
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
            ),
            take_back=self._take_back,
            on_granted=on_granted,
            on_ended=on_ended,
        )

    def watch_cancellations(self, callback: CancellationsCallback) -> None:
        """Call back on the loop with the leases whose tasks a commit has cancelled."""
        self._cancellation_callbacks.append(callback)

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

    def watch_assignments(self, callback: Callback) -> Callable[[], None]:
        """Call back on the loop with all pushes of each commit; the answer ends it.

        A push and the answer to an earlier call may pass each other on their way to a member:
        whoever sends them must not send one of a lower generation than it has sent before.
        """
        return self._assignments.watch(callback)

    def watch_sessions(self, callback: SessionsCallback) -> None:
        """Call back on the loop with the sessions that a commit has news for."""
        self._session_callbacks.append(callback)

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
        self._waiters.close()
        self._assignments.close()
        self._notices.close()
        self._lines.close()

    async def tick(self) -> None:
        """Run all duties once, now. Tests that turn the clock call this."""
        await self._duties.run_all()

    def figures(self) -> Figures:
        self._figures.waiting = self._writer.weight
        self._figures.watchers = self._notices.watchers
        return self._figures

    def _enter(self, event: Anything, *, stays: bool = False) -> Entry:
        if not self._writer.is_running:
            raise Unavailable("the coordinator is not running")
        entry = Entry(event, asyncio.get_running_loop().create_future(), stays=stays)
        if isinstance(event, SubmitTasks):
            self._refuse_when_full(entry.weight)
        self._writer.put(entry)
        return entry

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
        for entry, outcome in delivery.answers:
            if entry.future.done():
                self._take_back(entry, outcome)
            elif isinstance(outcome, Exception):
                entry.future.set_exception(outcome)
            else:
                entry.future.set_result(outcome)
        self._waiters.wake(delivery.finished)
        self._assignments.push(delivery.pushes)
        self._notices.tell(delivery.told)
        self._lines.call(delivery.granted_locks)
        if delivery.sessions:
            for callback in self._session_callbacks:
                callback(delivery.sessions)
        if delivery.cancelled:
            for tell in self._cancellation_callbacks:
                tell(delivery.cancelled)
        if delivery.next_moment_ms is not None:
            self._duties.hint(delivery.next_moment_ms)
        if delivery.next_sweep_ms is not None:
            self._duties.hint_sweep(delivery.next_sweep_ms)

    def _take_back(self, entry: Entry, outcome: object) -> None:
        """The caller went away while its leases were granted: they go back at once."""
        if not isinstance(entry.event, LeaseWork) or not isinstance(outcome, Granted):
            return
        if outcome.leases and self._writer.is_running:
            returned = self._enter(
                ReturnLeases(
                    worker_id=entry.event.worker_id,
                    incarnation=entry.event.incarnation,
                    leases=tuple((task.id, task.fence) for task in outcome.leases),
                )
            )
            # Nobody waits for this one; a failure is only late, the lease runs out by itself.
            returned.future.add_done_callback(lambda future: future.exception())


def _give_up(entry: Entry) -> None:
    if entry.stays and not entry.future.done():
        entry.future.set_result(Granted([]))
