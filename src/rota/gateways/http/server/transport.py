"""The transport of an HTTP connection: one write a response, flow control, and an end in time.

Writes are gathered until the event loop comes round, and go out as one. A closed connection ends
soon, whatever the peer does. A peer that does not read is aborted when nothing has left for a
while. To a peer that is still sending, the server half-closes the connection and discards what it
sends for a moment: a socket that is closed with unread data is reset, and the response may be lost.
"""

import asyncio
import sys
from collections.abc import Callable

LINGER_S = 2.0  # time for which a peer that is still sending may go on after the last response


class ServerTransport:
    """Wraps the transport of the event loop, which is `bare`."""

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        *,
        unread_s: float,
        is_peer_sending: Callable[[], bool],
    ) -> None:
        self.bare = transport
        self.is_lingering = False  # nothing more is written, and input is discarded
        self.is_read_paused = False
        self._loop = loop
        self._pieces: list[bytes] = []
        self._writable: asyncio.Event | None = None  # None: the peer reads what is written
        self._unread_s = unread_s
        self._unread_bytes = 0  # at the last check
        self._unread_timer: asyncio.TimerHandle | None = None
        self._is_peer_sending = is_peer_sending
        self._linger_timer: asyncio.TimerHandle | None = None

    # --- flow control ---------------------------------------------------------------------------

    def pause_reading(self) -> None:
        if not self.is_read_paused:
            self.is_read_paused = True
            self.bare.pause_reading()

    def resume_reading(self) -> None:
        if self.is_read_paused:
            self.is_read_paused = False
            self.bare.resume_reading()

    @property
    def is_write_paused(self) -> bool:
        return self._writable is not None

    def pause_writing(self) -> None:
        """The write buffer is full."""
        if self._writable is None:
            self._writable = asyncio.Event()
        self._watch_peer()

    def resume_writing(self) -> None:
        """The peer has read enough for more to be written."""
        self._unread_bytes = sys.maxsize
        if self._writable is not None:
            self._writable.set()
            self._writable = None

    async def drain(self) -> None:
        if self._writable is not None:
            await self._writable.wait()

    # --- writing --------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        if not self._pieces:
            self._loop.call_soon(self._flush)
        self._pieces.append(data)

    def write_now(self, data: bytes) -> None:
        """Write the end of a response, after everything that was put off."""
        if self._pieces:
            self._flush()
        if not self.is_closing():  # a stop may have closed it meanwhile
            self.bare.write(data)

    def _flush(self) -> None:
        pieces, self._pieces = self._pieces, []
        if pieces and not self.is_closing():
            self.bare.write(pieces[0] if len(pieces) == 1 else b"".join(pieces))

    # --- ending ---------------------------------------------------------------------------------

    def is_closing(self) -> bool:
        return self.is_lingering or self.bare.is_closing()

    def close(self) -> None:
        if self._is_peer_sending() and not self.is_closing():
            self._close_after_lingering()
        elif not self.is_lingering:
            self.close_now()

    def close_now(self) -> None:
        """Close without waiting for what the peer still sends."""
        self._flush()
        self.bare.close()
        self._watch_peer()

    def _close_after_lingering(self) -> None:
        self._flush()
        self.is_lingering = True
        self.bare.write_eof()
        if not self.bare.is_reading():
            self.bare.resume_reading()
        self._linger_timer = self._loop.call_later(LINGER_S, self.close_now)

    def _watch_peer(self) -> None:
        """Abort the connection if the peer stops reading what is buffered for it."""
        unread_bytes = self.bare.get_write_buffer_size()
        if self._unread_timer is None and unread_bytes:
            self._unread_bytes = unread_bytes
            self._unread_timer = self._loop.call_later(self._unread_s, self._check_peer)

    def _check_peer(self) -> None:
        self._unread_timer = None
        if self.bare.get_write_buffer_size() >= self._unread_bytes:
            self.bare.abort()
        else:
            self._watch_peer()

    def release(self) -> None:
        """The connection is lost or belongs to another protocol: stop timers, free writers."""
        for timer in (self._unread_timer, self._linger_timer):
            if timer is not None:
                timer.cancel()
        self.resume_writing()
