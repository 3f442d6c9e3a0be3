"""One open socket: what goes out over it, and how much of that may wait.

A peer that reads too slowly must not cost the others anything. What is to be sent waits in a
bounded outbox. While much of it waits, nothing more is read from the peer, so it cannot bring that
about by asking; when pushes fill the outbox all the same, the socket is closed, with the reason.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple

from starlette.types import Send

from rota.core.access import Caller
from rota.gateways.websocket.codecs import Codec
from rota.gateways.websocket.protocol import Line, Taker
from rota.messages.sessions import Outgoing

MOST_WAITING_FRAMES = 10_000
MOST_WAITING_BYTES = 64 * 1024 * 1024
# With more waiting than this the peer is not listened to.
ROOMY_FRAMES = 1_000
ROOMY_BYTES = 1024 * 1024

GOING_AWAY = 1001  # there is nothing more to say
POLICY = 1008  # the token was revoked, or has expired
RESTARTING = 1012  # the coordinator is stopping; it may be back soon
SLOW_READER = 4008  # more waited to be read than is kept

Receipt = Callable[[bool], None]  # called once: True when it was handed to the transport


class Waiting(NamedTuple):
    data: bytes
    receipt: Receipt | None


class Connection:
    """A socket that has been accepted. Belongs to the event loop."""

    def __init__(
        self, send: Send, codec: Codec, caller: Caller, session_id: str, line: Line | None = None
    ) -> None:
        self._send = send
        self._line = line
        self._loop = asyncio.get_running_loop()
        self._outbox: deque[Waiting] = deque()
        self._waiting_bytes = 0
        self._is_hung_up = False  # the goodbye was said past the outbox
        self._wake = asyncio.Event()
        self._roomy = asyncio.Event()
        self._roomy.set()
        self._prefix = secrets.token_hex(6)
        self._numbers = count(1)
        self.codec = codec
        self.caller = caller
        self.session_id = session_id
        self.address = f"session:{session_id}"
        self.closing: asyncio.Future[tuple[int, str]] = self._loop.create_future()

    @property
    def is_open(self) -> bool:
        return not self.closing.done()

    def new_id(self) -> str:
        """An id for a message of ours, that no other has."""
        return f"{self._prefix}-{next(self._numbers)}"

    def was_heard(self) -> bool:
        """Whether the peer was heard of since this was last asked; an answer to a ping counts."""
        return self._line is None or self._line.take_pulse()

    def take_with(self, taker: Taker) -> None:
        """Have binary messages taken as they come in, where the socket can do so."""
        if self._line is not None and not self.codec.is_text:
            self._line.taker = taker

    def put(self, message: Outgoing, receipt: Receipt | None = None) -> None:
        """Have something sent, after all that was put before."""
        if not self.is_open:
            _tell(receipt, sent=False)
            return
        data = self.codec.encode(message)
        if not self._outbox and self._sent_at_once(data):
            if receipt is not None:
                self._loop.call_soon(receipt, True)  # noqa: FBT003 - the form of a receipt
            return
        self._outbox.append(Waiting(data, receipt))
        self._waiting_bytes += len(data)
        self._wake.set()
        if self._is_over(ROOMY_FRAMES, ROOMY_BYTES):
            self._roomy.clear()
        if self._is_over(MOST_WAITING_FRAMES, MOST_WAITING_BYTES):
            self._hang_up(SLOW_READER, "too slow: more waits to be read than we keep")

    def _sent_at_once(self, data: bytes) -> bool:
        """Most peers read all they are sent: no task need be woken for them."""
        return self._line is not None and self._line.send_now(data, is_text=self.codec.is_text)

    def close(self, code: int = GOING_AWAY, reason: str = "") -> None:
        """Close after what waits has been sent."""
        if self.is_open:
            self.closing.set_result((code, reason))
            self._wake.set()
            self._roomy.set()

    def end(self) -> None:
        """The socket is gone: nothing of what waits will be sent."""
        self.close()
        waiting, self._outbox = self._outbox, deque()
        self._waiting_bytes = 0
        for one in waiting:
            _tell(one.receipt, sent=False)

    @property
    def is_roomy(self) -> bool:
        return self._roomy.is_set()

    async def room(self) -> None:
        """Wait until not much waits to be sent, or the socket is being closed."""
        await self._roomy.wait()

    async def write(self) -> None:
        """Send what is put, until the socket is closed. One task for each socket runs this."""
        while True:
            while self._outbox:
                one = self._outbox[0]
                await self._send(self._frame(one.data))
                if not self._outbox:
                    return  # hung up meanwhile
                self._outbox.popleft()
                self._waiting_bytes -= len(one.data)
                _tell(one.receipt, sent=True)
                if not self._roomy.is_set() and not self._is_over(ROOMY_FRAMES, ROOMY_BYTES):
                    self._roomy.set()
            if self._is_hung_up:
                return
            if not self.is_open:
                code, reason = self.closing.result()
                await self._send({"type": "websocket.close", "code": code, "reason": reason})
                return
            self._wake.clear()
            await self._wake.wait()

    def _is_over(self, frames: int, size: int) -> bool:
        return len(self._outbox) > frames or self._waiting_bytes > size

    def _hang_up(self, code: int, reason: str) -> None:
        """Do not wait until it has read what is on its way."""
        self.close(code, reason)
        self.end()
        if self._line is not None:
            self._is_hung_up = True
            self._line.hang_up(code, reason)

    def _frame(self, data: bytes) -> dict[str, Any]:
        if self.codec.is_text:
            return {"type": "websocket.send", "text": data.decode()}
        return {"type": "websocket.send", "bytes": data}


def _tell(receipt: Receipt | None, *, sent: bool) -> None:
    if receipt is not None:
        receipt(sent)
