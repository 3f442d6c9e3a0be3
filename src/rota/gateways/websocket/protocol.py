"""How does a socket end, and how do we know that somebody is at its other end?

The server's own protocol leaves three things open. A transport that is closed waits until the peer
has read what is buffered, and a peer that never reads keeps it open for ever: so here it is aborted
after a while. A ping is taken for unanswered while the answer waits behind messages that we have
not come round to: so here a peer that was heard of since is not given up. And the application
cannot see pings: so here it is given a `Line`, on which it can ask whether the peer is alive, and
over which it can send at once as long as the peer reads. By the same line it can take a message in
the moment it comes in, instead of having a task woken up for it.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState
from websockets.http11 import Request
from websockets.protocol import OPEN

from rota.gateways.http.protocol import GatheringTransport
from rota.gateways.websocket.pinging import Rounds
from rota.messages.frames import FrameReader, framed

LINE = "rota.line"  # the name of the extension in the ASGI scope
PATIENCE = 1.1  # intervals of pings that a peer may be silent before it is sent one
CLOSE_TIMEOUT_S = 2.0  # how long a peer may take to read what is left, and to say goodbye


Taker = Callable[[bytes], bool]


class Line(Protocol):
    """What a socket can do beyond ASGI."""

    taker: Taker | None
    """Called with a binary message as it comes in, if none waits; False: then it does, too."""

    def take_pulse(self) -> bool:
        """Whether the peer was heard of since this was last asked."""
        ...

    def send_now(self, data: bytes, *, is_text: bool) -> bool:
        """Hand a message to the transport, if the peer has read what it was sent before."""
        ...

    def hang_up(self, code: int, reason: str) -> None:
        """End the socket soon, whether the peer reads or not."""
        ...


class SocketProtocol(WebSocketsSansIOProtocol):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.close_timeout = CLOSE_TIMEOUT_S
        self._was_heard = True
        self._heard_at_s = 0.0  # when something last came in
        self._moved_at_s = 0.0  # when something last came in, or was taken up
        self._abort_timer: asyncio.TimerHandle | None = None
        self._reader: FrameReader | None = None  # None: what comes in is the library's
        self._is_awaited = False  # the application waits for a message
        self.taker: Taker | None = None

    # --- the line -------------------------------------------------------------------------------

    def take_pulse(self) -> bool:
        was_heard, self._was_heard = self._was_heard, False
        return was_heard

    def send_now(self, data: bytes, *, is_text: bool) -> bool:
        is_open = self.handshake_complete and not self.close_sent and not self.disconnected
        if not is_open or not self.writable.is_set() or self.transport.is_closing():
            return False
        if self.conn.state is not OPEN:
            return False  # the peer has begun to close, and hears no more
        if is_text:
            self.conn.send_text(data)
            self.transport.write(b"".join(self.conn.data_to_send()))
        else:
            self.transport.write(framed(data))
        return True

    def hang_up(self, code: int, reason: str) -> None:
        if not self.close_sent and not self.transport.is_closing():
            self.close_sent = True
            try:
                self.conn.send_close(code, reason)
            except InvalidState:
                pass  # the peer has begun to close, and hears no more
            else:
                self.transport.write(b"".join(self.conn.data_to_send()))
        self.transport.close()
        self._abort_later()

    # --- of the server --------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, GatheringTransport):
            transport = transport.bare  # a frame is one write anyway, and should not wait
        super().connection_made(transport)

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if hasattr(self, "scope"):
            extensions: dict[str, Any] = self.scope["extensions"]
            extensions[LINE] = self
            # What comes next is frames, from the first byte on.
            self._reader = FrameReader(is_masked=True, most_bytes=self.config.ws_max_size)

    def data_received(self, data: bytes) -> None:
        self._was_heard = True
        self._heard_at_s = self._moved_at_s = self.loop.time()
        if self._reader is None:
            super().data_received(data)
            return
        for piece in self._reader.feed(data):
            if piece.message is None or self.frames or self.conn.state is not OPEN:
                super().data_received(piece.raw)
            elif not self._is_taken(piece.message):
                self.curr_msg_data_type = "bytes"
                self.frames = [piece.message]
                self.send_receive_event_to_app()

    def _is_taken(self, message: bytes) -> bool:
        return (
            self.taker is not None
            and self._is_awaited
            and self.queue.empty()
            and not self.close_sent
            and self.taker(message)
        )

    async def receive(self) -> Any:
        self._moved_at_s = self.loop.time()
        self._is_awaited = True
        try:
            return await super().receive()
        finally:
            self._is_awaited = False

    def start_keepalive(self) -> None:
        if self.ping_interval:
            Rounds.on(self.loop).add(self)

    def stop_keepalive(self) -> None:
        Rounds.on(self.loop).drop(self)
        super().stop_keepalive()

    def schedule_ping(self) -> None:
        """The next round will show whether it needs one."""

    def look(self, now_s: float) -> None:
        """Ask only those who are silent: a worker that beats shows by that that it is there."""
        assert self.ping_interval is not None
        is_silent = now_s - self._heard_at_s > self.ping_interval * PATIENCE
        if is_silent and self.pong_timer is None:
            self.send_keepalive_ping()

    def keepalive_timeout(self) -> None:
        if self._moved_at_s > self.ping_sent_at and not self.transport.is_closing():
            # The answer is on its way, behind what we have not read yet.
            self.pong_timer = None
            self.pending_ping_payload = None
            self.schedule_ping()
            return
        super().keepalive_timeout()
        self._abort_later()

    def handle_parser_exception(self) -> None:
        super().handle_parser_exception()
        self._abort_later()

    def handle_close(self, event: Any) -> None:
        super().handle_close(event)
        self._abort_later()

    async def run_asgi(self) -> None:
        await super().run_asgi()
        self._abort_later()

    def shutdown(self) -> None:
        if self.handshake_complete and not self.close_sent and self.conn.state is not OPEN:
            # The peer has said goodbye, and has been answered; there is nothing more to say.
            self.stop_keepalive()
            self.transport.close()
        else:
            super().shutdown()
        self._abort_later()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._abort_timer is not None:
            self._abort_timer.cancel()

    def _abort_later(self) -> None:
        """Whatever is still unread then is lost."""
        if self._abort_timer is None and not self.disconnected:
            self._abort_timer = self.loop.call_later(CLOSE_TIMEOUT_S, self.transport.abort)
