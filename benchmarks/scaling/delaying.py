"""A TCP proxy that delays each direction: `python -m benchmarks.scaling.delaying PORT DELAY_MS`.

It listens on a free loopback port, which it prints, and passes each connection on to the given
port. Every chunk leaves a constant time after it arrived, whatever is under way before and after
it, so the proxy adds latency without limiting the throughput. Chunks leave in the order of their
arrival, and so does the end of a connection.

The event loop waits with `select`, because `epoll` and libuv round a wait to whole milliseconds.
Linux may end a wait late by a share of its length, so each one is followed by a short one.
"""

import asyncio
import contextlib
import ctypes
import selectors
import sys
from collections import deque
from collections.abc import Callable
from typing import cast

HOST = "127.0.0.1"
READY = "listening on "
# From the arrival of a chunk to its time stamp, and from its due time to its departure.
OVERHEAD_S = 0.00006
LAST_WAIT_S = 0.0005  # of a delay; the wait before it may end late by no more than this
PR_SET_TIMERSLACK = 29


class Side(asyncio.Protocol):
    """One end of a connection; what it receives leaves through the other end, later."""

    def __init__(self, delay_s: float, on_open: Callable[["Side"], None] | None = None) -> None:
        self._delay_s = max(0.0, delay_s - OVERHEAD_S)
        self._on_open = on_open
        self._loop = asyncio.get_running_loop()
        self._pending: deque[bytes | None] = deque()  # None: the end
        self.transport: asyncio.Transport | None = None
        self.other: Side | None = None

    def join(self, other: "Side") -> None:
        self.other, other.other = other, self

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        if self._on_open is not None:
            self._on_open(self)

    def data_received(self, data: bytes) -> None:
        self._pass_on(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the interface
        self._pass_on(None)

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def _pass_on(self, piece: bytes | None) -> None:
        self._pending.append(piece)
        due_s = self._loop.time() + self._delay_s
        if self._delay_s > LAST_WAIT_S:
            self._loop.call_at(due_s - LAST_WAIT_S, self._loop.call_at, due_s, self._deliver)
        else:
            self._loop.call_at(due_s, self._deliver)

    def _deliver(self) -> None:
        """Send the oldest piece: each call is for one piece, and all wait equally long."""
        piece = self._pending.popleft()
        if self.other is None or self.other.transport is None:
            return
        if piece is None:
            self.other.transport.close()
        elif not self.other.transport.is_closing():
            self.other.transport.write(piece)


class DelayingProxy:
    def __init__(self, target_port: int, delay_s: float) -> None:
        self._target_port = target_port
        self._delay_s = delay_s
        self._connecting: set[asyncio.Task[None]] = set()

    async def listen(self) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        return await loop.create_server(lambda: Side(self._delay_s, self._accept), HOST, 0)

    def _accept(self, client: Side) -> None:
        assert client.transport is not None
        client.transport.pause_reading()
        task = asyncio.ensure_future(self._connect(client))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connect(self, client: Side) -> None:
        assert client.transport is not None
        loop = asyncio.get_running_loop()
        try:
            _, server = await loop.create_connection(
                lambda: Side(self._delay_s), HOST, self._target_port
            )
        except OSError:
            client.transport.abort()
            return
        client.join(server)
        if client.transport.is_closing():  # it went away meanwhile
            client.connection_lost(None)
        else:
            client.transport.resume_reading()


async def serve(target_port: int, delay_s: float) -> None:
    server = await DelayingProxy(target_port, delay_s).listen()
    print(f"{READY}{server.sockets[0].getsockname()[1]}", flush=True)
    async with server:
        await server.serve_forever()


def sharpen_timers() -> None:
    """Ask Linux not to merge the wake-ups of this process, which costs 50 µs each by default."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)


def precise_loop() -> asyncio.AbstractEventLoop:
    return asyncio.SelectorEventLoop(selectors.SelectSelector())


if __name__ == "__main__":
    sharpen_timers()
    with (
        contextlib.suppress(KeyboardInterrupt),
        asyncio.Runner(loop_factory=precise_loop) as runner,
    ):
        runner.run(serve(int(sys.argv[1]), float(sys.argv[2]) / 1000))
