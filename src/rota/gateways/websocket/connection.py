"""One open socket and its outbox.

A peer that reads too slowly must not cost the others anything. Messages wait in a bounded outbox.
While many wait, nothing more is read from the peer, so its requests cannot fill the outbox. When
pushes fill it all the same, the socket is closed with the reason.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple

from starlette.types import Send

from rota.core import limits
from rota.core.access import Caller
from rota.gateways.quotas import Reservation
from rota.gateways.websocket.codecs import Codec
from rota.gateways.websocket.protocol import SocketTransport, Taker
from rota.messages.sessions import UI, Outgoing

MAX_OUTBOX_FRAMES = 10_000
MAX_OUTBOX_BYTES = 64 * 1024 * 1024
# With more in the outbox than this, nothing is read from the peer.
BUSY_FRAMES = 1_000
BUSY_BYTES = 1024 * 1024
# Nor with more of its messages than this waiting for their commit.
BUSY_CALLS = limits.MAX_SOCKET_CALLS
BUSY_CALL_BYTES = limits.MAX_SOCKET_CALL_BYTES

GOING_AWAY = 1001  # the usual end
POLICY = 1008  # the token was revoked or has expired, or the peer goes beyond a limit
RESTARTING = 1012  # the coordinator is stopping; it may be back soon
SLOW_READER = 4008  # more waited to be read than the outbox holds, or nothing was read for long

Receipt = Callable[[bool], None]  # called once: True when it was handed to the transport


class Waiting(NamedTuple):
    data: bytes
    receipt: Receipt | None


class Connection:
    """A socket that has been accepted. Belongs to the event loop."""

    def __init__(
        self,
        send: Send,
        codec: Codec,
        caller: Caller,
        session_id: str,
        *,
        transport: SocketTransport | None,
        reservation: Reservation,
    ) -> None:
        self._send = send
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._outbox: deque[Waiting] = deque()
        self._waiting_bytes = 0
        self._calls = 0  # messages that wait for their commit
        self._call_bytes = 0
        self._is_hung_up = False  # the close frame was sent past the outbox
        self._wake = asyncio.Event()
        self._capacity = asyncio.Event()
        self._capacity.set()
        self._prefix = secrets.token_hex(6)
        self._numbers = count(1)
        self.codec = codec
        self.caller = caller
        self.session_id = session_id
        self.reservation = reservation  # what the socket holds of the quotas
        self.address = f"session:{session_id}"
        self.closing: asyncio.Future[tuple[int, str]] = self._loop.create_future()

    @property
    def is_open(self) -> bool:
        return not self.closing.done()

    def new_id(self) -> str:
        """A new id for a message to the peer."""
        return f"{self._prefix}-{next(self._numbers)}"

    def was_alive(self) -> bool:
        """Whether the peer has sent anything, a pong included, since the last call."""
        return self._transport is None or self._transport.take_pulse()

    def take_with(self, taker: Taker) -> None:
        """Hand binary messages to `taker` as they arrive, where the transport can do so."""
        if self._transport is not None and not self.codec.is_text:
            self._transport.taker = taker

    def put(self, message: Outgoing, receipt: Receipt | None = None) -> None:
        """Send a message after all that were put before."""
        if not self.is_open:
            _settle(receipt, sent=False)
            return
        data = self.codec.encode(message)
        if not self._outbox and self._sent_at_once(data):
            if receipt is not None:
                self._loop.call_soon(receipt, True)  # noqa: FBT003 - the form of a receipt
            return
        self._outbox.append(Waiting(data, receipt))
        self._waiting_bytes += len(data)
        self._wake.set()
        if self._is_busy():
            self._capacity.clear()
        if self._is_over(MAX_OUTBOX_FRAMES, MAX_OUTBOX_BYTES):
            self._hang_up(SLOW_READER, "too slow: more waits to be read than the outbox holds")

    def send(
        self,
        kind: str,
        payload: Any,
        *,
        to: str = UI,
        sender: str | None = None,
        reply_to: Any = None,
        timestamp: int | None = None,
        receipt: Receipt | None = None,
    ) -> None:
        """Send a message of the usual form: with an id, from this session to its client."""
        message = Outgoing(
            type=kind,
            to=to,
            sender=sender or self.address,
            payload=payload,
            id=self.new_id(),
            reply_to=reply_to,
            timestamp=timestamp,
        )
        self.put(message, receipt)

    def _sent_at_once(self, data: bytes) -> bool:
        """Write to the transport without waking a task, as most peers read at once."""
        return self._transport is not None and self._transport.send_now(
            data, is_text=self.codec.is_text
        )

    def close(self, code: int = GOING_AWAY, reason: str = "") -> None:
        """Close after the outbox has been sent."""
        if self.is_open:
            self.closing.set_result((code, reason))
            self._wake.set()
            self._capacity.set()

    def end(self) -> None:
        """Drop the outbox, because the socket is gone."""
        self.close()
        waiting, self._outbox = self._outbox, deque()
        self._waiting_bytes = 0
        for one in waiting:
            _settle(one.receipt, sent=False)

    def begin_call(self, size: int) -> None:
        """Count a message of this size that waits for its commit."""
        self._calls += 1
        self._call_bytes += size
        if self._is_busy():
            self._capacity.clear()

    def end_call(self, size: int) -> None:
        self._calls -= 1
        self._call_bytes -= size
        self._signal_capacity()

    @property
    def has_capacity(self) -> bool:
        return self._capacity.is_set()

    async def wait_for_capacity(self) -> None:
        """Wait until the outbox is short, or the socket is being closed."""
        await self._capacity.wait()

    async def write(self) -> None:
        """Send the outbox until the socket is closed. One task for each socket runs this."""
        while True:
            while self._outbox:
                one = self._outbox[0]
                await self._send(self._frame(one.data))
                if not self._outbox:
                    return  # hung up meanwhile
                self._outbox.popleft()
                self._waiting_bytes -= len(one.data)
                _settle(one.receipt, sent=True)
                self._signal_capacity()
            if self._is_hung_up:
                return
            if not self.is_open:
                code, reason = self.closing.result()
                await self._send({"type": "websocket.close", "code": code, "reason": reason})
                return
            self._wake.clear()
            await self._wake.wait()

    def _signal_capacity(self) -> None:
        if not self._capacity.is_set() and not self._is_busy():
            self._capacity.set()

    def _is_busy(self) -> bool:
        """Whether too much waits to be sent or committed to read more."""
        return (
            self._calls > BUSY_CALLS
            or self._call_bytes > BUSY_CALL_BYTES
            or self._is_over(BUSY_FRAMES, BUSY_BYTES)
        )

    def _is_over(self, frames: int, size: int) -> bool:
        return len(self._outbox) > frames or self._waiting_bytes > size

    def _hang_up(self, code: int, reason: str) -> None:
        """Close without waiting for the peer to read the outbox."""
        self.close(code, reason)
        self.end()
        if self._transport is not None:
            self._is_hung_up = True
            self._transport.hang_up(code, reason)

    def _frame(self, data: bytes) -> dict[str, Any]:
        if self.codec.is_text:
            return {"type": "websocket.send", "text": data.decode()}
        return {"type": "websocket.send", "bytes": data}


def _settle(receipt: Receipt | None, *, sent: bool) -> None:
    if receipt is not None:
        receipt(sent)
