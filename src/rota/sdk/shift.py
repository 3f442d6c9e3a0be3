"""How does a worker work, from its first registration to its leaving?

Theory of operation. On the event loop services run side by side: `Streaming` or `Leasing` gets
work, the `Executor` runs it, the `Reporter` and the `ProgressReporter` tell what became of it. A
thread beats (`Heartbeat`). All act for the current `Session`, one registration of this worker. When
the coordinator no longer knows the session, or it cannot be renewed in time, everything that runs
under it is stopped and another is begun, for ever.

Stopping is draining: no new work, what runs may finish within a limit, results are delivered, and
the worker leaves, which hands back whatever is left.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, cast

import msgspec
import structlog

from rota.errors import (
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    RotaError,
    StaleIncarnation,
    Unauthorized,
)
from rota.messages import LeaseView, WorkerRegistration
from rota.sdk import calls
from rota.sdk.attempts import CANCELLED, LOST, STOPPING
from rota.sdk.backoff import Backoff
from rota.sdk.client import Client
from rota.sdk.executor import Executor
from rota.sdk.heartbeat import Beat, CutOff, Heartbeat
from rota.sdk.lag import LoopLag
from rota.sdk.leasing import Leasing, Line
from rota.sdk.progress import ProgressReporter
from rota.sdk.reporting import Reporter
from rota.sdk.sessions import Session, now_s
from rota.sdk.tasks import Task

if TYPE_CHECKING:
    from rota.sdk.streaming import Doors, Streaming

log = structlog.get_logger("rota.worker")

CLEAN_UP_S = 2.0  # what stopped handlers get for their last words
LEAVE_TIMEOUT_S = 5.0
HURRIED_LEAVE_TIMEOUT_S = 1.0
REPLACED_AT_MOST = 1  # by another process under the same id; once may be our own restart
SETTLED_AFTER_LEASES = 10  # a session that lasted so long forgives an earlier replacement


class StopReason(StrEnum):
    STOPPED = "stopped"  # it was asked to
    RECYCLED = "recycled"  # it has run as many tasks as it was to; start it anew
    REPLACED = "replaced"  # another process works under its id


class Shift:
    """One run of a worker, on the event loop it is made on."""

    def __init__(
        self,
        client: Client,
        registration: WorkerRegistration,
        tasks: Mapping[str, Task[..., Any]],
        *,
        drain_s: float,
        max_tasks: int | None,
        on_session: Callable[[Session], None],
        line: Line = Line.AUTO,
    ) -> None:
        self._client = client.without_repeats()
        self._registration = registration
        self._drain_s = drain_s
        self._max_tasks = max_tasks
        self._on_session = on_session
        self._loop = asyncio.get_running_loop()
        self._session: Session | None = None
        self._abandoned: Session | None = None
        self._replaced = 0
        self._reason: StopReason | None = None
        self._drain_until: float | None = None
        self._is_hurried = False
        self._session_over = asyncio.Event()
        self._stop_asked = asyncio.Event()
        self._changed = asyncio.Event()  # something to look at for whoever waits for quiet
        self._broken: asyncio.Future[None] = self._loop.create_future()  # by the heartbeat
        self._lag = LoopLag(self._loop)

        concurrency = registration.max_concurrent_tasks
        self._reporter = Reporter(
            self._client,
            concurrency=concurrency,
            count_running=lambda: len(self._executor.running),
            on_refused=self._end_session,
            on_delivered=self._changed.set,
        )
        self._progress = ProgressReporter(self._client)
        self._executor = Executor(
            tasks,
            concurrency=concurrency,
            report=self._reporter.add,
            on_progress=self._progress.note,
            on_room=self._note_room,
        )
        self._leasing = Leasing(
            self._client, self, concurrency=concurrency, on_refused=self._end_session
        )
        self._streaming = self._make_streaming(line)
        self._heartbeat = Heartbeat(
            self._client,
            by_stream=lambda *_: None if self._streaming is None else self._streaming.beat(*_),
            describe=self._describe,
            on_beat=lambda beat: self._on_loop(self._take_beat, beat),
            on_over=self._be_cut_off,
            on_broken=lambda error: self._on_loop(self._broken.set_exception, error),
        )

    def _make_streaming(self, line: Line) -> "Streaming | None":
        """What keeps a stream open; None where that cannot be, or is not wanted."""
        transport = self._client.transport
        if transport.is_embedded or line is Line.HTTP:
            return None
        from rota.sdk.streaming import Streaming  # noqa: PLC0415 - of no use in the same program

        streaming = Streaming(
            cast("Doors", transport),
            self,
            self._leasing,
            line=line,
            held=self._held,
            has_unsent=lambda: self._reporter.has_unsent,
            on_refused=self._end_session,
            on_cancelled=self._take_cancelled,
        )
        self._reporter.find_stream = self._progress.find_stream = lambda: streaming.stream
        return streaming

    # --- from beginning to end ------------------------------------------------------------------

    async def run(self) -> StopReason:
        """Work until a stop is asked for, then drain and leave."""
        line = asyncio.create_task((self._streaming or self._leasing).run())
        services = [
            line,
            asyncio.create_task(self._stay_registered()),
            asyncio.create_task(self._reporter.run()),
            asyncio.create_task(self._progress.run()),
        ]
        stop_asked = asyncio.create_task(self._stop_asked.wait())
        self._heartbeat.start()
        try:
            waiting: list[asyncio.Future[Any]] = [stop_asked, self._broken, *services]
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                one.result()  # a service ends only by an error, and that ends the worker
            stream = None if self._streaming is None else self._streaming.stream
            if stream is not None:
                stream.stop_leasing(self._held())  # and goes on for results
            else:
                await _cancelled([line])
            await self._drain()
        finally:
            self._executor.stop_all(STOPPING)
            await _cancelled([stop_asked, self._broken, *services])
            await self._leave()
        assert self._reason is not None
        return self._reason

    def stop(self, reason: StopReason = StopReason.STOPPED) -> None:
        """Drain and leave. A worker that is recycled takes the time its handlers need."""
        self._reason = self._reason or reason
        if reason is not StopReason.RECYCLED and self._drain_until is None:
            self._drain_until = time.monotonic() + self._drain_s
        self._stop_asked.set()
        self._changed.set()

    def hurry(self) -> None:
        """Leave now; what runs is handed back."""
        self.stop()
        self._is_hurried = True
        self._changed.set()

    async def _drain(self) -> None:
        await self._until(lambda: not self._executor.running and not self._reporter.pending)
        if self._executor.running:
            count = len(self._executor.running)
            log.warning("handing back what did not finish in time", count=count)
        self._executor.stop_all(STOPPING)
        if not self._is_hurried:
            self._drain_until = time.monotonic() + CLEAN_UP_S
            await self._until(lambda: self._executor.is_idle)

    async def _until(self, is_quiet: Callable[[], bool]) -> None:
        """Wait for quiet, as long as there is time and no hurry."""
        while not is_quiet() and not self._is_hurried:
            self._changed.clear()
            left_s = None
            if self._drain_until is not None:
                left_s = max(0.0, self._drain_until - time.monotonic())
            try:
                await asyncio.wait_for(self._changed.wait(), left_s)
            except TimeoutError:
                return

    async def _leave(self) -> None:
        session, self._session = self._session, None
        self._heartbeat.stop()
        if session is not None and not session.is_over:
            session.is_over = True
            timeout_s = HURRIED_LEAVE_TIMEOUT_S if self._is_hurried else LEAVE_TIMEOUT_S
            await self._leave_quietly(session, timeout_s)
        await self._executor.close(is_hurried=self._is_hurried)
        self._heartbeat.join()

    async def _leave_quietly(self, session: Session, timeout_s: float) -> None:
        """Leave if that is possible; if not, the lease runs out and that is as good."""
        call = calls.leave_worker(session.worker_id, incarnation=session.incarnation)
        with contextlib.suppress(RotaError):
            await self._client.arun(msgspec.structs.replace(call, timeout_s=timeout_s))

    # --- sessions -------------------------------------------------------------------------------

    async def _stay_registered(self) -> None:
        while True:
            self._session_over.clear()
            self._take_session(await self._register())
            await self._session_over.wait()

    async def _register(self) -> Session:
        backoff = Backoff()
        while True:
            try:
                await self._give_back_abandoned()
                sent_at = now_s()
                view = await self._client.arun(calls.register_worker(self._registration))
            except (Unauthorized, Forbidden, Invalid):
                raise  # trying again would not help
            except RotaError as error:
                log.warning("cannot register; trying again", reason=error.detail)
                await asyncio.sleep(backoff.wait_s())
            else:
                return Session(view, sent_at=sent_at)

    async def _give_back_abandoned(self) -> None:
        """Leave a session we were cut off from: by that its tasks keep the attempt they had."""
        session = self._abandoned
        if session is not None:
            call = calls.leave_worker(session.worker_id, incarnation=session.incarnation)
            with contextlib.suppress(NotFound, Conflict):
                await self._client.arun(call)
            self._abandoned = None

    def _take_session(self, session: Session) -> None:
        # An id that was given is kept: coming back under it is how our old leases are recovered.
        self._registration = msgspec.structs.replace(
            self._registration, worker_id=session.worker_id
        )
        self._session = session
        self._reporter.session = session
        self._progress.session = session
        self._leasing.session = session
        self._leasing.look_again()
        if self._streaming is not None:
            self._streaming.session = session
        self._heartbeat.beat_for(session)
        log.debug("registered", worker_id=session.worker_id, incarnation=session.incarnation)
        self._on_session(session)

    def _end_session(self, session: Session, error: RotaError) -> None:
        """Stop everything that ran under a session; another one follows."""
        if session.is_over:
            return
        session.is_over = True
        log.warning("session over; registering again", reason=error.detail)
        self._abandoned = session if isinstance(error, CutOff) else None
        self._heartbeat.beat_for(None)
        if self._streaming is not None:
            self._streaming.look_for_session()
        self._reporter.forget()
        self._executor.stop_all(LOST)
        if isinstance(error, StaleIncarnation) and self._is_replaced_for_good(session):
            log.error(
                "another worker process uses this id; stopping. Give each its own worker id",
                worker_id=session.worker_id,
            )
            self.stop(StopReason.REPLACED)
        else:
            self._session_over.set()
        self._changed.set()

    def _is_replaced_for_good(self, session: Session) -> bool:
        if now_s() - session.started_at > SETTLED_AFTER_LEASES * session.lease_s:
            self._replaced = 0
        self._replaced += 1
        return self._replaced > REPLACED_AT_MOST

    # --- what the services ask and tell ---------------------------------------------------------

    @property
    def room(self) -> int:
        if self._reason is not None:
            return 0  # it stops
        if self._max_tasks is None:
            return self._executor.free
        return min(self._executor.free, self._max_tasks - self._executor.begun)

    def begin(self, leases: list[LeaseView]) -> None:
        self._executor.begin(leases)
        if self._max_tasks is not None and self._executor.begun >= self._max_tasks:
            self.stop(StopReason.RECYCLED)

    def _note_room(self) -> None:
        self._leasing.look_again()
        if self._streaming is not None:
            self._streaming.look_again()
        if not self._changed.is_set():
            self._changed.set()

    # --- what the heartbeat thread asks and tells -----------------------------------------------

    def _on_loop(self, action: Callable[..., None], *args: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended, and the worker with it
            self._loop.call_soon_threadsafe(action, *args)

    def _describe(self) -> tuple[list[str], dict[str, float]]:
        running = float(len(self._executor.running))
        return self._held(), {"running": running, "loop_lag_ms": self._lag.measure_ms()}

    def _held(self) -> list[str]:
        """The tasks we have: begun, or finished and not known to be accepted."""
        # Running before pending: what moves from one to the other in between is listed twice.
        running = self._executor.running.copy()
        return list(running | self._reporter.pending.copy())

    def _be_cut_off(self, session: Session, error: RotaError) -> None:
        # Handlers in threads can see this at once, even if one on the loop blocks it.
        for attempt in self._executor.running.copy().values():
            attempt.stop_reason = LOST
        self._on_loop(self._end_session, session, error)

    def _take_cancelled(self, cancelled: list[str], lost: list[str]) -> None:
        """Told over the stream, so after all leases that this may speak of."""
        for reason, task_ids in ((CANCELLED, cancelled), (LOST, lost)):
            for task_id in task_ids:
                attempt = self._executor.running.get(task_id)
                if attempt is not None:
                    log.info("stopping", task_id=task_id, task=attempt.lease.name, reason=reason)
                    self._executor.stop(attempt, reason)

    def _take_beat(self, beat: Beat) -> None:
        if beat.session.is_over:
            return
        for reason, task_ids in ((CANCELLED, beat.answer.cancel), (LOST, beat.answer.lost)):
            for task_id in task_ids:
                attempt = self._executor.running.get(task_id)
                # A lease that came after the beat was sent is not what it speaks of.
                if attempt is not None and attempt.leased_at < beat.sent_at:
                    log.info("stopping", task_id=task_id, task=attempt.lease.name, reason=reason)
                    self._executor.stop(attempt, reason)


async def _cancelled(tasks: Sequence[asyncio.Future[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
