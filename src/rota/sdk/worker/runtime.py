"""The runtime of a worker, from its first registration to its leaving.

Theory of operation. Services run side by side on the event loop: `StreamManager` or `LeasePoller`
gets work, the `Executor` runs it, `Reporter`, `ProgressReporter` and `LogReporter` report it. The
heartbeat has a thread. All act for the current `WorkerSession`, one registration of this worker.
When the coordinator no longer knows the session, or it cannot be renewed in time, everything that
runs under it is stopped and the worker registers again, without end.

Stopping is draining: the worker takes no new work, running attempts may finish within a limit,
results are delivered, and the worker leaves, which hands back its remaining leases.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec

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
from rota.sdk.client import calls
from rota.sdk.client.client import Client
from rota.sdk.functions.execution.host import FUNCTION_HOST, FunctionHost
from rota.sdk.task import Task
from rota.sdk.timing import RetryBackoff, now_s
from rota.sdk.worker.contact import CoordinatorContact
from rota.sdk.worker.executor import Executor
from rota.sdk.worker.heartbeat import CutOff, HeartbeatResult, HeartbeatThread, LoopLag
from rota.sdk.worker.log_reporting import LogReporter
from rota.sdk.worker.operations import OperationsReporter
from rota.sdk.worker.poller import LeasePoller, LeaseTransport
from rota.sdk.worker.reporting import ProgressReporter, Reporter
from rota.sdk.worker.runners.in_process import CANCELLED, LOST, STOPPING
from rota.sdk.worker.session import WorkerSession
from rota.sdk.worker.stopping import StopReason
from rota.telemetry import library_logger

if TYPE_CHECKING:
    from rota.sdk.worker.streaming.manager import EndpointProvider, StreamManager

log = library_logger("rota.worker")

CLEAN_UP_S = 2.0  # how long stopped handlers may clean up
LEAVE_TIMEOUT_S = 5.0
HURRIED_LEAVE_TIMEOUT_S = 1.0
REPLACED_AT_MOST = 1  # by another process under the same id; once may be this worker's restart
SETTLED_AFTER_LEASES = 10  # a session that lasted so long resets the count of replacements


class WorkerRuntime:
    """One run of a worker, on the event loop it is made on."""

    def __init__(
        self,
        client: Client,
        registration: WorkerRegistration,
        tasks: Mapping[str, Task[..., Any]],
        *,
        drain_s: float,
        max_tasks: int | None,
        on_session: Callable[[WorkerSession], None],
        deploy_functions: Callable[[], Awaitable[list[str]]],
        transport: LeaseTransport = LeaseTransport.AUTO,
        log_level: int = logging.INFO,
        captured: Sequence[str] = (),
    ) -> None:
        """`deploy_functions` returns the capabilities that a worker has by its functions."""
        self._deploy_functions = deploy_functions
        self._client = client.without_repeats()
        self._registration = registration
        self._drain_s = drain_s
        self._max_tasks = max_tasks
        self._on_session = on_session
        self._loop = asyncio.get_running_loop()
        self._session: WorkerSession | None = None
        self._abandoned: WorkerSession | None = None
        self._replaced = 0
        self._reason: StopReason | None = None
        self._drain_until: float | None = None
        self._is_hurried = False
        self._session_over = asyncio.Event()
        self._stop_requested = asyncio.Event()
        self._changed = asyncio.Event()  # wakes the drain
        self._broken: asyncio.Future[None] = self._loop.create_future()  # by the heartbeat
        self._lag = LoopLag(self._loop)
        self._contact = CoordinatorContact(client.transport.address)

        concurrency = registration.max_concurrent_tasks
        self._logs = LogReporter(self._client, level=log_level, captured=captured)
        self._reporter = Reporter(
            self._client,
            concurrency=concurrency,
            count_running=lambda: len(self._executor.running),
            logs=self._logs,
            on_refused=self._end_session,
            on_delivered=self._changed.set,
        )
        self._progress = ProgressReporter(self._client)
        self._operations = OperationsReporter(self._client, on_refused=self._end_session)
        self._functions = FunctionHost(self._operations.commit)
        FUNCTION_HOST.set(self._functions)  # handlers run in copies of this context
        self._executor = Executor(
            tasks,
            concurrency=concurrency,
            report=self._reporter.add,
            on_progress=self._progress.note,
            log_sink=self._logs,
            on_free_slot=self._note_free_slot,
        )
        self._poller = LeasePoller(
            self._client,
            self,
            concurrency=concurrency,
            contact=self._contact,
            on_refused=self._end_session,
        )
        self._streaming = self._make_streaming(transport)
        self._heartbeat = HeartbeatThread(
            self._client,
            contact=self._contact,
            beat_by_stream=lambda *_: None if self._streaming is None else self._streaming.beat(*_),
            describe=self._describe,
            on_beat=lambda beat: self._on_loop(self._take_beat, beat),
            on_over=self._be_cut_off,
            on_broken=lambda error: self._on_loop(self._broken.set_exception, error),
        )

    def _make_streaming(self, transport: LeaseTransport) -> "StreamManager | None":
        """The manager of the stream; None where a stream is impossible or not wanted."""
        endpoints = self._client.transport
        if endpoints.is_embedded or transport is LeaseTransport.HTTP:
            return None
        from rota.sdk.worker.streaming.manager import StreamManager  # noqa: PLC0415 - embedded workers need no sockets

        streaming = StreamManager(
            cast("EndpointProvider", endpoints),
            self,
            self._poller,
            transport=transport,
            contact=self._contact,
            held=self._held,
            has_unsent=lambda: self._reporter.has_unsent,
            on_refused=self._end_session,
            on_cancelled=self._take_cancelled,
        )
        self._reporter.find_stream = self._progress.find_stream = lambda: streaming.stream
        self._operations.find_stream = self._logs.find_stream = self._reporter.find_stream
        return streaming

    # --- from start to stop ---------------------------------------------------------------------

    async def run(self) -> StopReason:
        """Work until a stop is requested, then drain and leave."""
        leasing = asyncio.create_task((self._streaming or self._poller).run())
        services = [
            leasing,
            asyncio.create_task(self._stay_registered()),
            asyncio.create_task(self._reporter.run()),
            asyncio.create_task(self._progress.run()),
            asyncio.create_task(self._logs.run()),
        ]
        stop_requested = asyncio.create_task(self._stop_requested.wait())
        self._heartbeat.start()
        try:
            waiting: list[asyncio.Future[Any]] = [stop_requested, self._broken, *services]
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                one.result()  # a service ends only by an error, which ends the worker
            stream = None if self._streaming is None else self._streaming.stream
            if stream is not None:
                stream.stop_leasing(self._held())  # it still carries results
            else:
                await _cancel([leasing])
            await self._drain()
        finally:
            self._executor.stop_all(STOPPING)
            await _cancel([stop_requested, self._broken, *services])
            await self._leave()
        assert self._reason is not None
        return self._reason

    def stop(self, reason: StopReason = StopReason.STOPPED) -> None:
        """Drain and leave. A recycled worker gives its handlers all the time they need."""
        self._reason = self._reason or reason
        if reason is not StopReason.RECYCLED and self._drain_until is None:
            self._drain_until = time.monotonic() + self._drain_s
        self._stop_requested.set()
        self._changed.set()

    def hurry(self) -> None:
        """Leave now and hand back what runs."""
        self.stop()
        self._is_hurried = True
        self._changed.set()

    async def _drain(self) -> None:
        await self._wait_until(lambda: not self._executor.running and not self._reporter.pending)
        if self._executor.running:
            log.warning("leases_handed_back", count=len(self._executor.running))
        self._executor.stop_all(STOPPING)
        if not self._is_hurried:
            self._drain_until = time.monotonic() + CLEAN_UP_S
            await self._wait_until(lambda: self._executor.is_idle)

    async def _wait_until(self, is_quiet: Callable[[], bool]) -> None:
        """Wait for a condition within the time limit of the drain, unless in a hurry."""
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
            await self._logs.close()
            session.is_over = True
            timeout_s = HURRIED_LEAVE_TIMEOUT_S if self._is_hurried else LEAVE_TIMEOUT_S
            call = calls.leave_worker(session.worker_id, incarnation=session.incarnation)
            with contextlib.suppress(RotaError):  # then the lease expires
                await self._client.arun(msgspec.structs.replace(call, timeout_s=timeout_s))
        self._functions.close()
        await self._executor.close(is_hurried=self._is_hurried)
        self._heartbeat.join()

    # --- sessions -------------------------------------------------------------------------------

    async def _stay_registered(self) -> None:
        while True:
            self._session_over.clear()
            self._take_session(await self._register())
            await self._session_over.wait()

    async def _register(self) -> WorkerSession:
        backoff = RetryBackoff()
        while True:
            sent_at = now_s()
            try:
                await self._leave_abandoned()
                registration = await self._with_functions()
                sent_at = now_s()
                view = await self._client.arun(calls.register_worker(registration))
            except (Unauthorized, Forbidden, Invalid):
                raise  # another try would not help
            except RotaError as error:
                self._contact.note_failure("registration_failed", error, sent_at=sent_at)
                await asyncio.sleep(backoff.wait_s())
            else:
                self._contact.note_answer()
                return WorkerSession(view, sent_at=sent_at)

    async def _with_functions(self) -> WorkerRegistration:
        """Deploy the worker's functions; their versions are capabilities of the worker."""
        versions = await self._deploy_functions()
        given = self._registration.capabilities
        added = [one for one in versions if one not in given]
        return msgspec.structs.replace(self._registration, capabilities=[*given, *added])

    async def _leave_abandoned(self) -> None:
        """Leave a session that was cut off, so that its tasks do not lose the attempt."""
        session = self._abandoned
        if session is not None:
            call = calls.leave_worker(session.worker_id, incarnation=session.incarnation)
            with contextlib.suppress(NotFound, Conflict):
                await self._client.arun(call)
            self._abandoned = None

    def _take_session(self, session: WorkerSession) -> None:
        # The worker keeps the id that it was given: under it, it recovers its old leases.
        self._registration = msgspec.structs.replace(
            self._registration, worker_id=session.worker_id
        )
        self._session = session
        self._reporter.session = session
        self._progress.session = session
        self._logs.session = session
        self._operations.session = session
        self._poller.session = session
        self._poller.wake()
        if self._streaming is not None:
            self._streaming.use_session(session)
        self._heartbeat.beat_for(session)
        log.info("worker_registered", worker_id=session.worker_id, incarnation=session.incarnation)
        self._on_session(session)

    def _end_session(self, session: WorkerSession, error: RotaError) -> None:
        """Stop everything that runs under a session; the worker registers again."""
        if session.is_over:
            return
        session.is_over = True
        log.warning("registration_lost", reason=error.detail)
        self._abandoned = session if isinstance(error, CutOff) else None
        self._heartbeat.beat_for(None)
        if self._streaming is not None:
            self._streaming.wake()
        self._reporter.clear()
        self._logs.clear()
        self._operations.clear()
        self._executor.stop_all(LOST)
        if isinstance(error, StaleIncarnation) and self._is_replaced_for_good(session):
            log.error(
                "worker_id_taken",
                hint="give each process its own worker id",
                worker_id=session.worker_id,
            )
            self.stop(StopReason.REPLACED)
        else:
            self._session_over.set()
        self._changed.set()

    def _is_replaced_for_good(self, session: WorkerSession) -> bool:
        if now_s() - session.started_at > SETTLED_AFTER_LEASES * session.lease_s:
            self._replaced = 0
        self._replaced += 1
        return self._replaced > REPLACED_AT_MOST

    # --- callbacks of the services --------------------------------------------------------------

    @property
    def free_slots(self) -> int:
        if self._reason is not None:
            return 0  # it stops
        if self._max_tasks is None:
            return self._executor.free_slots
        return min(self._executor.free_slots, self._max_tasks - self._executor.begun)

    def begin(self, leases: list[LeaseView]) -> None:
        self._executor.begin(leases)
        if self._max_tasks is not None and self._executor.begun >= self._max_tasks:
            self.stop(StopReason.RECYCLED)

    def _note_free_slot(self) -> None:
        if self._streaming is None or self._streaming.stream is None:
            self._poller.wake()
        else:
            self._streaming.note_free_slot()
        if not self._changed.is_set():
            self._changed.set()

    def _take_cancelled(self, cancelled: list[str], lost: list[str]) -> None:
        """Stop attempts by a message of the stream, which follows the leases it is about."""
        self._stop_attempts(CANCELLED, cancelled)
        self._stop_attempts(LOST, lost)

    def _stop_attempts(
        self, reason: str, task_ids: Iterable[str], leased_before: float = float("inf")
    ) -> None:
        for task_id in task_ids:
            attempt = self._executor.running.get(task_id)
            if attempt is not None and attempt.leased_at < leased_before:
                log.info("stopping", task_id=task_id, task=attempt.lease.name, reason=reason)
                self._executor.stop(attempt, reason)

    # --- callbacks of the heartbeat thread ------------------------------------------------------

    def _on_loop(self, action: Callable[..., None], *args: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended, and the worker with it
            self._loop.call_soon_threadsafe(action, *args)

    def _describe(self) -> tuple[list[str], dict[str, float]]:
        running = float(len(self._executor.running))
        return self._held(), {"running": running, "loop_lag_ms": self._lag.measure_ms()}

    def _held(self) -> list[str]:
        """The ids of tasks that are running, or finished and not known to be accepted."""
        # Running before pending: a task that moves over in between is listed twice, not lost.
        running = self._executor.running.copy()
        return list(running | self._reporter.pending.copy())

    def _be_cut_off(self, session: WorkerSession, error: RotaError) -> None:
        # Handlers in threads see this at once, even if another one blocks the loop.
        for attempt in self._executor.running.copy().values():
            attempt.stop_reason = LOST
        self._on_loop(self._end_session, session, error)

    def _take_beat(self, beat: HeartbeatResult) -> None:
        if not beat.session.is_over:
            # The answer does not know of leases that began after the beat was sent.
            self._stop_attempts(CANCELLED, beat.answer.cancel, leased_before=beat.sent_at)
            self._stop_attempts(LOST, beat.answer.lost, leased_before=beat.sent_at)


async def _cancel(tasks: Iterable[asyncio.Future[Any]]) -> None:
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
