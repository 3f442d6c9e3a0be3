"""Keeps the worker's stream to the coordinator open, and polls where no stream is possible.

Theory of operation. Registering and leaving are calls; in between a stream carries everything. A
stream can be replaced at any time, because registration, leases and results do not depend on it.
When it breaks, the manager opens another one, at once and then with growing pauses. Running
attempts go on in the meantime, and results and heartbeats go out as calls. Where a proxy blocks
WebSockets, the worker polls, and tries a stream again from time to time.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from typing import Protocol

from rota.errors import (
    Forbidden,
    RotaError,
    StaleIncarnation,
    Unauthorized,
    Unavailable,
    WorkerNotFound,
)
from rota.messages import HeartbeatAnswer, HeartbeatRequest
from rota.sdk.timing import RetryBackoff, jittered, now_s
from rota.sdk.transport.http1 import CoordinatorEndpoint
from rota.sdk.transport.transport import NotSent
from rota.sdk.worker.contact import CoordinatorContact
from rota.sdk.worker.poller import LeasePoller, LeaseSink, LeaseTransport, OnRefused
from rota.sdk.worker.session import WorkerSession
from rota.sdk.worker.streaming.socket import StreamRefused, StreamSocket, open_socket
from rota.sdk.worker.streaming.stream import CoordinatorStream
from rota.telemetry import library_logger

log = library_logger("rota.worker")

OPEN_TIMEOUT_S = 10.0  # for the socket, and again for the stream on it
RETRY_MOST_S = 2.0  # between two tries while the coordinator is away
TRY_AGAIN_S = 60.0  # after streams proved impossible
SHORT_LIVED_S = 5.0  # a stream that breaks sooner counts as short-lived
MOST_SHORT_LIVED = 3  # in a row; then the worker polls
GATHER_S = 0.002  # how long a free slot waits for a result that reports it


class EndpointProvider(Protocol):
    """The coordinators at which a stream may be opened."""

    @property
    def endpoint(self) -> CoordinatorEndpoint: ...

    def leave(self, endpoint: CoordinatorEndpoint) -> None:
        """Use another coordinator next, if there is one."""


class StreamManager:
    """Keeps a stream open for the session it is given, on the event loop it is made on."""

    def __init__(
        self,
        endpoints: EndpointProvider,
        sink: LeaseSink,
        poller: LeasePoller,
        *,
        transport: LeaseTransport,
        contact: CoordinatorContact,
        held: Callable[[], Sequence[str]],
        has_unsent: Callable[[], bool],
        on_refused: OnRefused,
        on_cancelled: Callable[[list[str], list[str]], None],
    ) -> None:
        """`held` lists the worker's tasks; `has_unsent`: a report will carry credit."""
        self.stream: CoordinatorStream | None = None  # while one is open
        self._session: WorkerSession | None = None
        self._endpoints = endpoints
        self._sink = sink
        self._poller = poller
        self._transport = transport
        self._contact = contact
        self._held = held
        self._has_unsent = has_unsent
        self._on_refused = on_refused
        self._on_cancelled = on_cancelled
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()  # the session
        self._is_gathering = False
        self._short_lived = 0
        self._beat: Future[HeartbeatAnswer] | None = None

    def use_session(self, session: WorkerSession) -> None:
        self._session = session
        self.wake()

    def wake(self) -> None:
        """Notice that the session has changed or is over."""
        self._changed.set()

    def note_free_slot(self) -> None:
        """Send credit soon, unless a report carries it; called after every attempt."""
        if not self._is_gathering:
            self._is_gathering = True
            self._loop.call_later(GATHER_S, self._send_credit)

    def _send_credit(self) -> None:
        self._is_gathering = False
        if self.stream is not None and not self._has_unsent():
            self.stream.credit()

    # --- with a stream --------------------------------------------------------------------------

    async def run(self) -> None:
        backoff = RetryBackoff(most_s=RETRY_MOST_S)
        while True:
            session = await self._next_session()
            began_at = now_s()
            try:
                await self._stream(session)
                backoff.reset()
                reason = "it broke soon after opening, several times"
                if self._short_lived < MOST_SHORT_LIVED:
                    continue
            except (WorkerNotFound, StaleIncarnation) as error:
                self._on_refused(session, error)
                continue
            except (StreamRefused, Unauthorized, Forbidden) as error:
                reason = error.detail
            except RotaError as error:
                self._contact.note_failure("stream_unavailable", error, sent_at=began_at)
                self._short_lived += not isinstance(error, NotSent)
                reason = error.detail
                if self._short_lived < MOST_SHORT_LIVED:
                    await asyncio.sleep(backoff.wait_s())
                    continue
            self._short_lived = 0
            await self._poll_instead(reason, backoff)

    async def _next_session(self) -> WorkerSession:
        while self._session is None or self._session.is_over:
            self._changed.clear()
            await self._changed.wait()
        return self._session

    async def _stream(self, session: WorkerSession) -> None:
        """Work over one stream until it breaks or the session is over."""
        opened_at = now_s()
        socket = await self._open_socket()
        stream = CoordinatorStream(
            socket,
            session,
            self._sink,
            on_refused=self._on_refused,
            on_cancelled=lambda task_ids: self._on_cancelled(task_ids, []),
        )
        # Callers that wait for an answer get an error, even while the stream is being opened.
        socket.lost.add_done_callback(lambda lost: stream.close(_broke(lost.result())))
        try:
            await self._attach(stream)
            reason = await self._until_over(stream, socket.lost)
        finally:
            self.stream = None
            stream.close(_broke("it was closed"))
            await socket.end()
        is_short_lived = now_s() - opened_at < SHORT_LIVED_S and not session.is_over
        self._short_lived = self._short_lived + 1 if is_short_lived else 0
        if not session.is_over:
            self._contact.note_lost(f"the stream broke: {reason}", sent_at=opened_at)

    async def _open_socket(self) -> StreamSocket:
        endpoint = self._endpoints.endpoint
        try:
            return await open_socket(endpoint, timeout_s=OPEN_TIMEOUT_S)
        except Unavailable:
            self._endpoints.leave(endpoint)
            raise

    async def _attach(self, stream: CoordinatorStream) -> None:
        try:
            async with asyncio.timeout(OPEN_TIMEOUT_S):
                opened = await stream.resume(self._held())
        except TimeoutError:
            raise StreamRefused("the coordinator did not answer on the stream in time") from None
        stream.session.set_terms(opened.heartbeat_interval_ms, opened.lease_ms)
        if opened.cancel or opened.lost:
            self._on_cancelled(_task_ids(opened.cancel), _task_ids(opened.lost))
        self.stream = stream
        stream.credit()
        self._contact.note_answer()
        log.debug("streaming", worker_id=stream.session.worker_id)

    async def _until_over(self, stream: CoordinatorStream, lost: "asyncio.Future[str]") -> str:
        while not lost.done() and self._session is stream.session and not stream.session.is_over:
            self._changed.clear()
            changed = asyncio.ensure_future(self._changed.wait())
            try:
                await asyncio.wait((lost, changed), return_when=asyncio.FIRST_COMPLETED)
            finally:
                changed.cancel()
        return lost.result() if lost.done() else "the session is over"

    # --- without a stream -----------------------------------------------------------------------

    async def _poll_instead(self, reason: str, backoff: RetryBackoff) -> None:
        """Poll until a socket can be opened; wait where only a stream is allowed."""
        if self._transport is LeaseTransport.WEBSOCKET:
            log.warning("stream_unavailable", reason=reason)
            await asyncio.sleep(backoff.wait_s(at_least_s=1.0))
            return
        log.info("stream_unavailable", hint="polling instead", reason=reason)
        polling = asyncio.create_task(self._poller.run())
        try:
            while True:
                await asyncio.wait((polling,), timeout=jittered(TRY_AGAIN_S))
                if polling.done():
                    polling.result()  # ends only by an error, which ends the worker
                if await self._can_open():
                    return
        finally:
            polling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await polling

    async def _can_open(self) -> bool:
        try:
            socket = await self._open_socket()
        except RotaError:
            return False
        await socket.end()
        return True

    # --- for the heartbeat thread ---------------------------------------------------------------

    def beat(self, session: WorkerSession, request: HeartbeatRequest) -> HeartbeatAnswer | None:
        """Beat over the stream, from another thread; None when a call should carry the beat.

        There may be no stream, or a handler may block the loop, and the beat must not wait.
        """
        if self.stream is None or (self._beat is not None and not self._beat.done()):
            return None
        beat = self._abeat(session, request)
        try:
            self._beat = asyncio.run_coroutine_threadsafe(beat, self._loop)
            return self._beat.result(session.interval_s / 2)
        except RuntimeError:  # the loop has ended, and the worker with it
            beat.close()
            return None
        except (TimeoutError, CancelledError, Unavailable):
            return None

    async def _abeat(self, session: WorkerSession, request: HeartbeatRequest) -> HeartbeatAnswer:
        stream = self.stream
        if stream is None or stream.session is not session:
            raise _broke("it was replaced")
        return await stream.beat(request)


def _broke(reason: str) -> Unavailable:
    return Unavailable(f"the stream to the coordinator broke: {reason}")


def _task_ids(numbers: Sequence[int]) -> list[str]:
    return [f"{number:016x}" for number in numbers]
