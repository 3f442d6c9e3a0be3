"""A WebSocket on an asyncio transport.

`websockets` provides the protocol; the transport feeds it directly, so messages are delivered in
the same iteration of the loop and written at once. Messages of one frame, which nearly all are,
bypass `websockets`.
"""

import asyncio
import secrets
from collections.abc import Callable
from typing import cast

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from rota.errors import Unavailable
from rota.messages.frames import MASK_BYTES, FrameReader, framed
from rota.messages.sessions import MSGPACK
from rota.sdk.transport.http1 import CoordinatorEndpoint

MOST_FRAME_BYTES = 256 * 1024 * 1024
CLOSE_TIMEOUT_S = 1.0
END_OF_HEAD = b"\r\n\r\n"
_TEXT_SHOWN = 200


class StreamRefused(Unavailable):
    """The coordinator, or a proxy in front of it, refuses WebSockets."""


async def open_socket(endpoint: CoordinatorEndpoint, *, timeout_s: float) -> "StreamSocket":
    """Connect and do the handshake; raises `StreamRefused` when only the handshake fails."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout_s):
            _, socket = await loop.create_connection(
                lambda: StreamSocket(endpoint, loop),
                endpoint.host,
                endpoint.port,
                ssl=endpoint.tls,
            )
            try:
                await socket.opened
            except BaseException:
                socket.abort()
                await asyncio.sleep(0)  # one iteration of the loop, which closes it
                raise
    except TimeoutError:
        raise endpoint.not_sent("no WebSocket in time") from None
    except OSError as error:
        raise endpoint.not_sent(error) from error
    return socket


class StreamSocket(asyncio.Protocol):
    """One WebSocket. `lost` is resolved with the reason when the connection ends."""

    def __init__(self, endpoint: CoordinatorEndpoint, loop: asyncio.AbstractEventLoop) -> None:
        self._endpoint = endpoint
        self.on_message: Callable[[bytes], None] = _ignore  # set before the first message
        self._protocol = ClientProtocol(
            parse_uri(endpoint.socket_url),
            subprotocols=[Subprotocol(MSGPACK)],
            max_size=MOST_FRAME_BYTES,
        )
        self._transport: asyncio.Transport | None = None
        self._pieces: list[bytes] = []  # of a message in several frames
        self._head = b""  # of the answer to the handshake, as far as it has arrived
        self._reader: FrameReader | None = None  # after the handshake
        self._loop = loop
        self.written_bytes = 0  # of messages, those included that the transport still holds
        self.received_bytes = 0  # of messages, those included that have only begun
        self.received_s = 0.0  # when the last of them came, by the clock of the loop
        self.opened: asyncio.Future[None] = loop.create_future()
        self.lost: asyncio.Future[str] = loop.create_future()

    def send(self, data: bytes) -> None:
        """Send a message if the socket is open."""
        transport = self._transport
        if self._protocol.state is State.OPEN and transport is not None:
            frame = framed(data, secrets.token_bytes(MASK_BYTES))
            self.written_bytes += len(frame)
            transport.write(frame)

    def close(self) -> None:
        """Start the closing handshake; the connection is aborted if it takes too long."""
        if self._protocol.state is State.OPEN:
            self._protocol.send_close()
            self._flush()
        self._loop.call_later(CLOSE_TIMEOUT_S, self.abort)

    async def end(self) -> None:
        """Close, and wait for the end of the connection: a loop that ends would leave it open."""
        self.close()
        try:
            await asyncio.wait([self.lost], timeout=CLOSE_TIMEOUT_S)
        finally:
            if not self.lost.done():  # the peer does not answer, or the caller is cancelled
                self.abort()
        await asyncio.sleep(0)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _flush(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        for data in self._protocol.data_to_send():
            if data:
                transport.write(data)
            else:
                transport.close()  # end of stream

    # --- callbacks of the event loop ------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's does not inherit from it
        request = self._protocol.connect()
        if self._endpoint.token is not None:
            request.headers["Authorization"] = f"Bearer {self._endpoint.token}"
        self._protocol.send_request(request)
        self._flush()

    def data_received(self, data: bytes) -> None:
        self.received_bytes += len(data)
        self.received_s = self._loop.time()
        if self._reader is None:
            data = self._finish_handshake(data)
        for piece in self._reader.feed(data) if self._reader is not None else ():
            if piece.message is None or self._pieces or self._protocol.state is not State.OPEN:
                self._receive(piece.raw)
            else:
                self.on_message(piece.message)

    def _finish_handshake(self, data: bytes) -> bytes:
        """Feed the head of the answer to the protocol; returns the frames that follow it."""
        if self.opened.done():  # refused, with a body
            self._receive(data)
            return b""
        self._head += data
        _, end, frames = self._head.partition(END_OF_HEAD)
        if not end:
            self._receive(data)
            return b""
        self._head = b""
        self._receive(data.removesuffix(frames))
        if self._protocol.state is not State.OPEN:
            self._receive(frames)
            return b""
        self._reader = FrameReader(is_masked=False, most_bytes=MOST_FRAME_BYTES)
        return frames

    def _receive(self, data: bytes) -> None:
        """Feed bytes to the protocol of `websockets`."""
        self._protocol.receive_data(data)
        self._handle_events()
        self._flush()
        if self._protocol.close_expected():
            # The peer closes the connection; otherwise it is aborted.
            self._loop.call_later(CLOSE_TIMEOUT_S, self.abort)

    def eof_received(self) -> None:
        self._protocol.receive_eof()
        self._handle_events()
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is None:
            return
        self._transport = None
        reason = self._reason(exc)
        if not self.opened.done():
            error = self._protocol.handshake_exc
            if error is None or isinstance(error.__cause__, EOFError):
                self.opened.set_exception(self._endpoint.lost(reason))
            else:
                self.opened.set_exception(StreamRefused(_refusal(error)))
        if not self.lost.done():
            self.lost.set_result(reason)

    def _reason(self, exc: Exception | None) -> str:
        code, text = self._protocol.close_code, self._protocol.close_reason
        if code is not None and self._protocol.close_rcvd is not None:
            return f"closed by the other side ({code}{f': {text}' if text else ''})"
        return str(exc or "closed by the other side")

    def _handle_events(self) -> None:
        for event in self._protocol.events_received():
            if isinstance(event, Response):
                self._take_response()
            elif isinstance(event, Frame):
                self._take_frame(event)

    def _take_response(self) -> None:
        error = self._protocol.handshake_exc
        if self.opened.done():
            return
        if error is not None:
            self.opened.set_exception(StreamRefused(_refusal(error)))
        elif self._protocol.subprotocol != MSGPACK:
            self.opened.set_exception(
                StreamRefused(f"the coordinator does not support the subprotocol {MSGPACK}")
            )
        else:
            self.opened.set_result(None)

    def _take_frame(self, frame: Frame) -> None:
        if frame.opcode not in {Opcode.BINARY, Opcode.CONT}:
            return
        if frame.fin and not self._pieces:  # nearly always
            self.on_message(bytes(frame.data))
            return
        self._pieces.append(bytes(frame.data))
        if frame.fin:
            data, self._pieces = b"".join(self._pieces), []
            self.on_message(data)


def _ignore(_: bytes) -> None:
    pass


def _refusal(error: Exception) -> str:
    if isinstance(error, InvalidStatus):
        response = error.response
        text = bytes(response.body or b"")[:_TEXT_SHOWN].decode(errors="replace").strip()
        return f"answered {response.status_code}: {text or 'nothing more'}"
    return str(error)
