"""How does a socket end, and how do we know that somebody is at its other end?

The server's own protocol leaves three things open. A transport that is closed waits until the peer
has read what is buffered, and a peer that never reads keeps it open for ever: so here it is aborted
after a while. A ping is taken for unanswered while the answer waits behind messages that we have
not come round to: so here a peer that was heard of since is not given up. And the application
cannot see pings: so here it is given a `Line`, on which it can ask whether the peer is alive, and
over which it can send at once as long as the peer reads.
"""

import asyncio
from typing import Any, Protocol

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState
from websockets.http11 import Request

from rota.gateways.http.protocol import GatheringTransport

LINE = "rota.line"  # the name of the extension in the ASGI scope
PATIENCE = 1.1  # intervals of pings that a peer may be silent before it is sent one
CLOSE_TIMEOUT_S = 2.0  # how long a peer may take to read what is left, and to say goodbye


class Line(Protocol):
    """What a socket can do beyond ASGI."""

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

    # --- the line -------------------------------------------------------------------------------

    def take_pulse(self) -> bool:
        was_heard, self._was_heard = self._was_heard, False
        return was_heard

    def send_now(self, data: bytes, *, is_text: bool) -> bool:
        is_open = self.handshake_complete and not self.close_sent and not self.disconnected
        if not is_open or not self.writable.is_set() or self.transport.is_closing():
            return False
        try:
            if is_text:
                self.conn.send_text(data)
            else:
                self.conn.send_binary(data)
        except InvalidState:
            return False  # the peer has begun to close, and hears no more
        self.transport.write(b"".join(self.conn.data_to_send()))
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

    def data_received(self, data: bytes) -> None:
        self._was_heard = True
        self._heard_at_s = self._moved_at_s = self.loop.time()
        super().data_received(data)

    async def receive(self) -> Any:
        self._moved_at_s = self.loop.time()
        return await super().receive()

    def send_keepalive_ping(self) -> None:
        """Ask only those who are silent: a worker that beats shows by that that it is there."""
        assert self.ping_interval is not None
        left_s = self._heard_at_s + self.ping_interval * PATIENCE - self.loop.time()
        if left_s > 0 and not self.transport.is_closing():
            # Not at once, however little is left: timers are exact to a millisecond, if that.
            wait_s = max(left_s, self.ping_interval * (PATIENCE - 1))
            self.ping_timer = self.loop.call_later(wait_s, self.send_keepalive_ping)
        else:
            super().send_keepalive_ping()

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
