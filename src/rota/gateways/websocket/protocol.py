"""One WebSocket connection: framing, liveness and shutdown.

Binary messages of one frame, which are nearly all, are read and written here. All other frames go
through the sans-I/O `Protocol` of the `websockets` library, which checks them and answers pings and
closes. The gateway is called as an ASGI application; beyond ASGI it is given a `SocketTransport`,
over which it sends without a task and takes messages as they come in.

A peer can make the server hold things by what it sends and by what it does not read. Pings that
cannot be answered yet get one answer, that to the last of them (RFC 6455, 5.5.3). The server ends
a socket whose peer answers no ping, reads nothing for long, sends control frames without end, cuts
a message into very many frames, or does not come to the end of one. A closed transport is aborted
after a while, since a peer that never reads would keep it open without end.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, ClassVar, Protocol

import structlog
from starlette.types import ASGIApp, Message
from websockets.frames import Frame, Opcode
from websockets.protocol import SEND_EOF, Side, State
from websockets.protocol import Protocol as FrameProtocol

from rota.core import limits
from rota.errors import Internal, Unavailable
from rota.gateways.http.server.connection import OpenConnections, refusal_of
from rota.gateways.http.server.exchange import RequestHead
from rota.gateways.websocket.handshake import Handshake, subprotocols_of
from rota.gateways.websocket.pinging import PingRounds
from rota.messages.frames import PLAIN, PLAIN_TEXT, FrameReader, framed

log = structlog.get_logger("rota.websocket")

TRANSPORT_EXTENSION = "rota.line"  # the name of the extension in the ASGI scope
PATIENCE = 1.1  # intervals of pings that a peer may be silent before it is sent one
CLOSE_TIMEOUT_S = 2.0  # how long a peer may take to read what is left, and to answer a close
STOP_GRACE_S = 0.1  # for the application to close the socket itself when the server stops
STOPPING = "the coordinator is stopping"
CONTROL = 0x08  # the bit of a frame's first byte that marks pings, pongs and closes
CONTROLS_WITHIN_S = 1.0

ABNORMAL = 1006  # the connection was lost without a close
NOT_UTF8 = 1007
WITHOUT_END = 1008  # the peer goes on with something beyond its limit
SERVER_ERROR = 1011
SERVER_STOPS = 1012
NOT_READING = 4008  # the peer reads nothing of what waits for it

OPEN = State.OPEN

Taker = Callable[[bytes], bool]


class SocketTransport(Protocol):
    """What a socket can do beyond ASGI."""

    taker: Taker | None
    """Called with a binary message as it comes in, if none waits; False: the message waits."""

    def take_pulse(self) -> bool:
        """Whether the peer has sent anything since the last call."""
        ...

    def send_now(self, data: bytes, *, is_text: bool) -> bool:
        """Hand a message to the transport, if the peer has read what it was sent before."""
        ...

    def hang_up(self, code: int, reason: str) -> None:
        """End the socket soon, whether the peer reads or not."""
        ...


@dataclass(frozen=True, slots=True)
class SocketOptions:
    max_frame_bytes: int
    ping_interval_s: float
    ping_timeout_s: float


class SocketProtocol(asyncio.Protocol):
    """A WebSocket, from its handshake to its end."""

    handshake_s: ClassVar[float] = limits.HEAD_TIMEOUT_MS / 1000

    def __init__(
        self,
        head: RequestHead,
        open_connections: OpenConnections,
        *,
        app: ASGIApp,
        options: SocketOptions,
    ) -> None:
        """Raises a `RotaError` when the request is not a valid handshake."""
        self._handshake = Handshake(head)
        self._head = head
        self._app = app
        self._options = options
        self._open = open_connections
        self._loop = asyncio.get_running_loop()
        self._frames = FrameProtocol(Side.SERVER, max_size=options.max_frame_bytes)
        self._reader = FrameReader(is_masked=True, most_bytes=options.max_frame_bytes)
        self._refusal: Message | None = None  # the start of the response that refuses the handshake
        self._is_answered = False  # the handshake
        self._is_ended = False  # a close was sent or received, or the connection is lost
        self._early = b""  # what came before the handshake was answered
        self._inbox: deque[Message] = deque()  # what the application has not received
        self._waiter: asyncio.Future[None] | None = None  # of the application
        self._is_read_paused = False
        self._handshake_timer: asyncio.TimerHandle | None = None
        self._abort_timer: asyncio.TimerHandle | None = None
        self._is_lost = False
        self._was_alive = True
        self._heard_at_s = 0.0  # when something last came in
        self._moved_at_s = 0.0  # when something last came in, or was received
        self._pinged_at_s: float | None = None  # None: no ping waits for an answer
        self._pong = b""  # the answer to the last ping that could not be answered yet
        self._controls = 0  # control frames since
        self._controls_since_s = 0.0
        self._fragments: list[bytes] = []  # of a message that comes in several frames
        self._is_text = False  # that message
        self._messages = 0  # complete ones so far
        self._partial_messages = -1  # complete ones before the one that has begun
        self._partial_since_s = 0.0
        self._unread_bytes = 0  # what waited for the peer to read when it last read something
        self._unread_since_s = 0.0
        self.writable = asyncio.Event()
        self.writable.set()
        self.transport: asyncio.Transport
        self.taker: Taker | None = None

    # --- opening --------------------------------------------------------------------------------

    def take_over(self, transport: asyncio.Transport, data: bytes) -> None:
        """Go on with an HTTP connection; nothing is read before the handshake is answered."""
        self.transport = transport
        self._early = data
        transport.set_protocol(self)
        transport.pause_reading()
        self._open.add(self)
        self._inbox.append({"type": "websocket.connect"})
        self._handshake_timer = self._loop.call_later(self.handshake_s, transport.abort)
        self._open.add_task(self._loop.create_task(self._run()))

    async def _run(self) -> None:
        extensions = {"websocket.http.response": {}, TRANSPORT_EXTENSION: self}
        scope = self._head.scope("websocket", extensions)
        scope["subprotocols"] = subprotocols_of(self._head)
        try:
            await self._app(scope, self.receive, self.send)
        except OSError:
            pass  # the peer is gone
        except Exception:
            log.exception("socket_application_failed", path=self._head.path)
            if self._is_answered:
                self.hang_up(SERVER_ERROR, "an internal error")
        if not self._is_answered:
            self._refuse(refusal_of(Internal("the handshake was not answered")))
        elif self._frames.state is OPEN:
            self.transport.close()
        self._abort_later()

    def _accept(self, subprotocol: str | None) -> None:
        if self.transport.is_closing():
            return
        self._is_answered = True
        if self._handshake_timer is not None:
            self._handshake_timer.cancel()
        self.transport.write(self._handshake.acceptance(subprotocol))
        self._heard_at_s = self._moved_at_s = self._loop.time()
        PingRounds.on(self._loop).add(self)
        self.transport.resume_reading()
        early, self._early = self._early, b""
        if early:
            self.data_received(early)

    def _refuse(self, response: bytes) -> None:
        self._is_answered = True
        self._end(ABNORMAL)
        self.transport.write(response)
        self.transport.close()
        self._abort_later()

    # --- the application ------------------------------------------------------------------------

    async def receive(self) -> Message:
        self._moved_at_s = self._loop.time()
        while not self._inbox:
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        message = self._inbox.popleft()
        if self._is_read_paused and not self._inbox:
            self._is_read_paused = False
            self.transport.resume_reading()
        return message

    async def send(self, message: Any) -> None:
        await self.writable.wait()
        if self._is_ended:
            raise ConnectionResetError("the socket is closed")
        match message["type"]:
            case "websocket.send":
                text = message.get("text")
                if text is None:
                    self.transport.write(framed(message["bytes"]))
                else:
                    self.transport.write(framed(text.encode(), first=PLAIN_TEXT))
            case "websocket.accept":
                self._accept(message.get("subprotocol"))
            case "websocket.close":
                self._close(message["code"], message.get("reason") or "")
            case "websocket.http.response.start":
                self._refusal = message
            case "websocket.http.response.body" if self._refusal is not None:
                self._refuse(_response(self._refusal, message["body"]))
            case kind:
                raise RuntimeError(f"the application sent {kind!r} out of turn")

    def _close(self, code: int, reason: str) -> None:
        """Send a close; the peer answers it, and then the transport is closed."""
        if self.transport.is_closing():
            return
        self._end(code)
        self._frames.send_close(code, reason)
        self._flush()
        if self._is_read_paused:
            self._is_read_paused = False
            self.transport.resume_reading()

    def _put(self, message: Message) -> None:
        self._inbox.append(message)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # --- beyond ASGI ----------------------------------------------------------------------------

    def take_pulse(self) -> bool:
        was_alive, self._was_alive = self._was_alive, False
        return was_alive

    def send_now(self, data: bytes, *, is_text: bool) -> bool:
        if not self._is_answered or self._is_ended or not self.writable.is_set():
            return False
        if self.transport.is_closing():
            return False
        self.transport.write(framed(data, first=PLAIN_TEXT if is_text else PLAIN))
        return True

    # --- reading --------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self._was_alive = True
        self._heard_at_s = self._moved_at_s = self._loop.time()
        for piece in self._reader.feed(data):
            if piece.raw[0] & CONTROL and not self._is_control_allowed():
                return
            if piece.message is None or self._fragments or self._frames.state is not OPEN:
                self._take_raw(piece.raw)
            elif self._is_taken(piece.message):
                self._messages += 1
            else:
                self._take_message(piece.message, is_text=False)

    def _is_taken(self, message: bytes) -> bool:
        return (
            self.taker is not None
            and self._waiter is not None
            and not self._inbox
            and not self._is_ended
            and self.taker(message)
        )

    def _take_message(self, message: bytes, *, is_text: bool) -> None:
        """Hand a complete message to the application, and read no more before it is received."""
        self._messages += 1
        if self._is_ended:
            return  # reading goes on until the peer has answered the close
        if is_text:
            try:
                self._put({"type": "websocket.receive", "text": message.decode()})
            except UnicodeDecodeError:
                self.hang_up(NOT_UTF8, "")
                return
        else:
            self._put({"type": "websocket.receive", "bytes": message})
        if not self._is_read_paused:
            self._is_read_paused = True
            self.transport.pause_reading()

    def _take_raw(self, raw: bytes) -> None:
        """Have the library look at a frame that is not a whole binary message."""
        self._frames.receive_data(raw)
        for event in self._frames.events_received():
            if isinstance(event, Frame):
                self._take_frame(event)
        if self._frames.state is not OPEN and not self._is_ended:
            self._end(SERVER_ERROR)  # the frame was broken, and the library answers it with a close
        self._flush()

    def _take_frame(self, frame: Frame) -> None:
        match frame.opcode:
            case Opcode.PING:
                if not self.writable.is_set():
                    self._pong = b"".join(self._frames.data_to_send())
            case Opcode.PONG:
                pass  # the pong has shown that the peer is alive
            case Opcode.CLOSE:
                self._take_close(frame)
            case _:
                self._take_fragment(frame)

    def _take_close(self, frame: Frame) -> None:
        if not self._is_ended:
            self._end(int.from_bytes(frame.data[:2]) or ABNORMAL)

    def _take_fragment(self, frame: Frame) -> None:
        if frame.opcode is not Opcode.CONT:
            self._is_text = frame.opcode is Opcode.TEXT
        elif len(self._fragments) >= limits.MAX_SOCKET_FRAGMENTS:
            self.hang_up(WITHOUT_END, "a message in too many frames")
            return
        self._fragments.append(bytes(frame.data))
        if frame.fin:
            message, self._fragments = b"".join(self._fragments), []
            self._take_message(message, is_text=self._is_text)

    def _is_control_allowed(self) -> bool:
        if self._heard_at_s - self._controls_since_s > CONTROLS_WITHIN_S:
            self._controls_since_s = self._heard_at_s
            self._controls = 0
        self._controls += 1
        if self._controls <= limits.MAX_SOCKET_CONTROLS:
            return True
        self.hang_up(WITHOUT_END, "too many control frames")
        return False

    # --- writing --------------------------------------------------------------------------------

    def _flush(self) -> None:
        """Write what the library has to say; with its last word the transport is closed."""
        pieces = self._frames.data_to_send()
        if not pieces or self.transport.is_closing():
            return
        self.transport.write(b"".join(pieces))
        if SEND_EOF in pieces:
            self.transport.close()
            self._abort_later()

    def pause_writing(self) -> None:
        self.writable.clear()
        self._unread_since_s = self._loop.time()
        self._unread_bytes = self.transport.get_write_buffer_size()

    def resume_writing(self) -> None:
        self.writable.set()
        pong, self._pong = self._pong, b""
        if pong and not self._is_ended and not self.transport.is_closing():
            self.transport.write(pong)

    # --- liveness and limits, by the clock ------------------------------------------------------

    def check(self, now_s: float) -> int:
        """Ping a silent peer, end a lost one; the answer is the bytes of an unfinished message."""
        partial_bytes = self._partial_bytes()
        if self._is_endless(now_s, partial_bytes) or self._is_unread(now_s):
            return 0
        pinged_at_s = self._pinged_at_s
        if pinged_at_s is None:
            if now_s - self._heard_at_s > self._options.ping_interval_s * PATIENCE:
                self._ping(now_s)
        elif self._moved_at_s > pinged_at_s:
            # The answer is here, or on its way behind messages that were not received yet.
            self._pinged_at_s = None
        elif now_s - pinged_at_s > self._options.ping_timeout_s:
            self.hang_up(SERVER_ERROR, "keepalive ping timeout")
        return partial_bytes or 0

    def _ping(self, now_s: float) -> None:
        if not self._is_ended and not self.transport.is_closing():
            self._pinged_at_s = now_s
            self._frames.send_ping(b"")
            self._flush()

    def _partial_bytes(self) -> int | None:
        """The bytes of the message that has begun; None: none has."""
        waiting = self._reader.waiting_bytes
        if self._fragments:
            return waiting + sum(map(len, self._fragments))
        return waiting or None

    def end_partial(self) -> None:
        self.hang_up(WITHOUT_END, "too many messages have begun, and this one is the largest")

    def _is_endless(self, now_s: float, partial_bytes: int | None) -> bool:
        """Whether a message was begun so long ago that the socket was ended for it."""
        if partial_bytes is None:
            self._partial_messages = -1
        elif self._partial_messages != self._messages:
            self._partial_messages = self._messages
            self._partial_since_s = now_s
        elif now_s - self._partial_since_s > limits.MAX_SOCKET_MESSAGE_MS / 1000:
            self.hang_up(WITHOUT_END, "a message that does not come to its end")
            return True
        return False

    def _is_unread(self, now_s: float) -> bool:
        """Whether the peer has read nothing for so long that the socket was ended for it."""
        if self.writable.is_set() or self.transport.is_closing():
            return False
        unread_bytes = self.transport.get_write_buffer_size()
        if unread_bytes < self._unread_bytes:
            self._unread_since_s = now_s
        self._unread_bytes = unread_bytes
        if now_s - self._unread_since_s <= limits.MAX_SOCKET_UNREAD_MS / 1000:
            return False
        self.hang_up(NOT_READING, "too slow: nothing is read of what waits")
        return True

    # --- ending ---------------------------------------------------------------------------------

    def hang_up(self, code: int, reason: str) -> None:
        """Send a close, take nothing more of the peer, and close the transport."""
        if self._frames.state is OPEN and not self.transport.is_closing():
            self._end(code)
            self._frames.fail(code, reason)
            self._flush()

    def _end(self, code: int) -> None:
        """End the application's input, and send nothing more of its own."""
        self._is_ended = True
        self._put({"type": "websocket.disconnect", "code": code})

    def shutdown(self) -> None:
        """Refuse an open handshake; close a socket that the application does not close itself."""
        if not self._is_answered:
            self._refuse(refusal_of(Unavailable(STOPPING)))
        else:
            self._loop.call_later(STOP_GRACE_S, self.hang_up, SERVER_STOPS, STOPPING)
            self._abort_later()

    def abort(self) -> None:
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's form
        self._open.drop(self)
        PingRounds.on(self._loop).drop(self)
        self._is_lost = self._is_answered = True
        self._is_read_paused = False
        self._end(ABNORMAL)
        self.writable.set()
        for timer in (self._handshake_timer, self._abort_timer):
            if timer is not None:
                timer.cancel()

    def _abort_later(self) -> None:
        """Give the peer a little time to read; what it has not read then is lost."""
        if self._abort_timer is None and not self._is_lost:
            self._abort_timer = self._loop.call_later(CLOSE_TIMEOUT_S, self.transport.abort)


def _response(start: Message, body: bytes) -> bytes:
    """A response that refuses a handshake."""
    status = HTTPStatus(start["status"])
    lines = [
        b"HTTP/1.1 %d %b" % (status, status.phrase.encode("ascii")),
        *(b"%b: %b" % header for header in start["headers"]),
        b"connection: close",
        b"content-length: %d" % len(body),
    ]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body
