"""Over which line does a worker get its work? A stream where there can be one, polling where not.

Theory of operation. Registering and leaving are calls; in between a stream carries everything, and
it can be changed for another at any time: registration, leases and results do not hang on it. When
it breaks, another is opened, at once and then ever more seldom, and what runs goes on meanwhile;
results and beats go out as calls until it is there. Where no WebSocket is let through, work is
polled for, and now and then a stream is tried again.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from typing import Protocol

import structlog

from rota.errors import (
    Forbidden,
    RotaError,
    StaleIncarnation,
    Unauthorized,
    Unavailable,
    WorkerNotFound,
)
from rota.messages import HeartbeatAnswer, HeartbeatRequest
from rota.sdk.backoff import Backoff
from rota.sdk.endpoint import Endpoint
from rota.sdk.leasing import Leasing, Line, Work
from rota.sdk.sessions import Session, now_s
from rota.sdk.streaming_socket import StreamRefused, StreamSocket, open_socket
from rota.sdk.streaming_worker import Stream
from rota.sdk.transport import NotSent

log = structlog.get_logger("rota.worker")

OPEN_TIMEOUT_S = 10.0  # for the socket, and again for the stream on it
RETRY_MOST_S = 2.0  # between two tries while nobody listens
TRY_AGAIN_S = 60.0  # after streams were found not to be had; shortened by up to a half
SHORT_LIVED_S = 5.0  # a stream that breaks so soon is no good
MOST_SHORT_LIVED = 3  # so many of them in a row, and work is polled for
GATHER_S = 0.002  # how long new room waits for results to go along with


class Doors(Protocol):
    """Where a stream may be opened: at one coordinator, or at one of several."""

    @property
    def endpoint(self) -> Endpoint: ...

    def leave(self, endpoint: Endpoint) -> None:
        """None was to be had there; another may be tried next."""


class Streaming:
    """Keeps a stream open for the session it is given. Made on the event loop it runs on."""

    def __init__(
        self,
        doors: Doors,
        work: Work,
        leasing: Leasing,
        *,
        line: Line,
        held: Callable[[], Sequence[str]],
        has_unsent: Callable[[], bool],
        on_refused: Callable[[Session, RotaError], None],
        on_cancelled: Callable[[list[str], list[str]], None],
    ) -> None:
        """`held` names the tasks it has; `has_unsent`: results wait, that will tell the room."""
        self.stream: Stream | None = None  # while one is open
        self._session: Session | None = None
        self._doors = doors
        self._work = work
        self._leasing = leasing
        self._line = line
        self._held = held
        self._has_unsent = has_unsent
        self._on_refused = on_refused
        self._on_cancelled = on_cancelled
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()  # another session
        self._is_gathering = False
        self._short_lived = 0
        self._beat: Future[HeartbeatAnswer] | None = None

    @property
    def session(self) -> Session | None:
        return self._session

    @session.setter
    def session(self, session: Session) -> None:
        self._session = session
        self._changed.set()

    def look_for_session(self) -> None:
        """The session is over; another one follows."""
        self._changed.set()

    def look_again(self) -> None:
        """There may be room now. Asked after every attempt, so most times in vain."""
        if self.stream is not None and not self._is_gathering:
            self._is_gathering = True
            self._loop.call_later(GATHER_S, self._tell_room)

    def _tell_room(self) -> None:
        self._is_gathering = False
        if self.stream is not None and not self._has_unsent():
            self.stream.credit()

    # --- keeping one open -----------------------------------------------------------------------

    async def run(self) -> None:
        backoff = Backoff(most_s=RETRY_MOST_S)
        while True:
            session = await self._next_session()
            try:
                await self._stream(session)
                backoff.reset()
                reason = "it broke soon, again and again"
                if self._short_lived < MOST_SHORT_LIVED:
                    continue
            except (WorkerNotFound, StaleIncarnation) as error:
                self._on_refused(session, error)
                continue
            except (StreamRefused, Unauthorized, Forbidden) as error:
                reason = error.detail
            except RotaError as error:
                log.warning("no stream to the coordinator; trying again", reason=error.detail)
                self._short_lived += not isinstance(error, NotSent)
                reason = error.detail
                if self._short_lived < MOST_SHORT_LIVED:
                    await asyncio.sleep(backoff.wait_s())
                    continue
            self._short_lived = 0
            await self._do_without(reason, backoff)

    async def _next_session(self) -> Session:
        while self._session is None or self._session.is_over:
            self._changed.clear()
            await self._changed.wait()
        return self._session

    async def _stream(self, session: Session) -> None:
        """Work over one stream until it breaks, or the session is over."""
        opened_at = now_s()
        socket = await self._open_socket()
        stream = Stream(
            socket,
            session,
            self._work,
            on_refused=self._on_refused,
            on_cancelled=lambda task_ids: self._on_cancelled(task_ids, []),
        )
        # Whoever waits for an answer is told, and be it that the stream is just being opened.
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
            log.warning("the stream broke; opening another", reason=reason)

    async def _open_socket(self) -> StreamSocket:
        endpoint = self._doors.endpoint
        try:
            return await open_socket(endpoint, timeout_s=OPEN_TIMEOUT_S)
        except Unavailable:
            self._doors.leave(endpoint)
            raise

    async def _attach(self, stream: Stream) -> None:
        try:
            async with asyncio.timeout(OPEN_TIMEOUT_S):
                opened = await stream.resume(self._held())
        except TimeoutError:
            raise StreamRefused("a stream was not answered in time") from None
        stream.session.take_terms(opened.heartbeat_interval_ms, opened.lease_ms)
        if opened.cancel or opened.lost:
            self._on_cancelled(_texts(opened.cancel), _texts(opened.lost))
        self.stream = stream
        stream.credit()
        log.debug("streaming", worker_id=stream.session.worker_id)

    async def _until_over(self, stream: Stream, lost: "asyncio.Future[str]") -> str:
        while not lost.done() and self._session is stream.session and not stream.session.is_over:
            self._changed.clear()
            changed = asyncio.ensure_future(self._changed.wait())
            try:
                await asyncio.wait((lost, changed), return_when=asyncio.FIRST_COMPLETED)
            finally:
                changed.cancel()
        return lost.result() if lost.done() else "the session is over"

    # --- without one ----------------------------------------------------------------------------

    async def _do_without(self, reason: str, backoff: Backoff) -> None:
        """Poll until a socket can be opened; or, if nothing but a stream will do, just wait."""
        if self._line is Line.WEBSOCKET:
            log.warning("no stream to be had; trying again", reason=reason)
            await asyncio.sleep(backoff.wait_s(at_least_s=1.0))
            return
        log.info("no stream to be had; polling", reason=reason)
        polling = asyncio.create_task(self._leasing.run())
        try:
            while True:
                wait_s = TRY_AGAIN_S * random.uniform(0.5, 1.0)  # noqa: S311 - spread, not secrecy
                await asyncio.wait((polling,), timeout=wait_s)
                if polling.done():
                    polling.result()  # ends only by an error, and that ends the worker
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

    # --- what the heartbeat thread asks ---------------------------------------------------------

    def beat(self, session: Session, request: HeartbeatRequest) -> HeartbeatAnswer | None:
        """Beat over the stream, from another thread; None when it should be done otherwise.

        There may be no stream, or a loop that is blocked by a handler: the beat must not wait.
        """
        if self.stream is None or (self._beat is not None and not self._beat.done()):
            return None
        answer: Future[HeartbeatAnswer] = Future()
        self._beat = answer
        with contextlib.suppress(RuntimeError):  # the loop has ended, and the worker with it
            self._loop.call_soon_threadsafe(self._begin_beat, session, request, answer)
        try:
            return answer.result(session.interval_s / 2)
        except (TimeoutError, CancelledError, Unavailable):
            return None

    def _begin_beat(
        self, session: Session, request: HeartbeatRequest, answer: "Future[HeartbeatAnswer]"
    ) -> None:
        stream = self.stream
        if stream is None or stream.session is not session:
            answer.cancel()
            return

        def take(future: "asyncio.Future[HeartbeatAnswer]") -> None:
            if answer.done():
                return
            error = future.exception()
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(future.result())

        stream.beat(request).add_done_callback(take)


def _broke(reason: str) -> Unavailable:
    return Unavailable(f"the stream to the coordinator broke: {reason}")


def _texts(numbers: Sequence[int]) -> list[str]:
    return [f"{number:016x}" for number in numbers]
