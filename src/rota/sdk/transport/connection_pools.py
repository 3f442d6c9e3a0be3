"""Pools of persistent connections: a blocking one for threads, and one for each event loop.

A Python socket with a timeout makes two system calls for every operation: one that waits and one
that acts. The blocking connections set the kernel's own timeouts instead and make one call.
"""

import asyncio
import select
import socket
import struct
import time
from collections import deque
from collections.abc import AsyncGenerator
from typing import cast

from rota.errors import Unavailable
from rota.sdk.transport.http1 import (
    CONNECT_TIMEOUT_S,
    MAX_IDLE_CONNECTIONS,
    CoordinatorEndpoint,
    ResponseParser,
)
from rota.sdk.transport.transport import Response

_READ_SIZE = 64 * 1024


class BlockingPool:
    """Persistent connections, each used by one thread at a time."""

    def __init__(self, endpoint: CoordinatorEndpoint) -> None:
        self._endpoint = endpoint
        # A deque's append and pop are safe between threads, so the pool needs no lock.
        self._idle: deque[_BlockingConnection] = deque()
        self._is_closed = False

    def exchange(self, request: bytes, *, timeout_s: float) -> Response:
        deadline = time.monotonic() + timeout_s
        connection = self._take(deadline)
        try:
            response = connection.exchange(request, deadline, timeout_s)
        except TimeoutError:
            connection.close()
            raise self._endpoint.timed_out(timeout_s) from None
        except OSError as error:
            connection.close()
            raise self._endpoint.lost(error) from error
        except BaseException:
            connection.close()
            raise
        self._give_back(connection)
        return response

    def close(self) -> None:
        self._is_closed = True
        while self._idle:
            self._idle.pop().close()

    def _take(self, deadline: float) -> "_BlockingConnection":
        while self._idle:
            try:
                connection = self._idle.pop()  # the most recently used first
            except IndexError:
                break
            if connection.is_usable():
                return connection
            connection.close()
        try:
            return _BlockingConnection(self._endpoint, deadline)
        except OSError as error:
            raise self._endpoint.not_sent(error) from error

    def _give_back(self, connection: "_BlockingConnection") -> None:
        if (
            connection.is_reusable
            and not self._is_closed
            and len(self._idle) < MAX_IDLE_CONNECTIONS
        ):
            self._idle.append(connection)
        else:
            connection.close()


class _BlockingConnection:
    def __init__(self, endpoint: CoordinatorEndpoint, deadline: float) -> None:
        timeout_s = min(CONNECT_TIMEOUT_S, max(0.001, deadline - time.monotonic()))
        sock = socket.create_connection((endpoint.host, endpoint.port), timeout=timeout_s)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if endpoint.tls is not None:
                sock = endpoint.tls.wrap_socket(sock, server_hostname=endpoint.host)
        except BaseException:
            sock.close()
            raise
        self._socket = sock
        self._parser = ResponseParser()
        self._close_poll = select.poll()
        self._close_poll.register(sock, select.POLLIN | select.POLLHUP)
        self._timeout_s: float | None = None  # the timeout set on the socket; None: not set yet
        # A TLS socket waits in its own code, so its timeout is Python's, not the kernel's.
        self._is_encrypted = endpoint.tls is not None
        if not self._is_encrypted:
            sock.settimeout(None)

    @property
    def is_reusable(self) -> bool:
        return self._parser.is_reusable

    def is_usable(self) -> bool:
        """Whether an idle connection has nothing to read; if it has, the server has closed it."""
        return not self._close_poll.poll(0)

    def exchange(self, request: bytes, deadline: float, timeout_s: float) -> Response:
        """Send a request and read its whole response before the deadline.

        The first operation gets the whole `timeout_s`. That value is the same from call to call,
        so the socket usually has it already.
        """
        try:
            self._set_timeout(timeout_s)
            self._socket.sendall(request)
            while True:
                data = self._socket.recv(_READ_SIZE)
                response = self._parser.feed(data) if data else self._parser.end()
                if response is not None:
                    return response
                if not data:
                    raise ConnectionResetError("closed by the other side")
                remaining_s = deadline - time.monotonic()
                if remaining_s <= 0:
                    raise TimeoutError
                self._set_timeout(remaining_s)
        except BlockingIOError:
            raise TimeoutError from None

    def _set_timeout(self, timeout_s: float) -> None:
        if timeout_s == self._timeout_s:
            return
        self._timeout_s = timeout_s
        if self._is_encrypted:
            self._socket.settimeout(timeout_s)
            return
        timeout = _timeval(timeout_s)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)

    def close(self) -> None:
        self._socket.close()


def _timeval(seconds: float) -> bytes:
    """A timeout as the kernel takes it; at least 1 µs, because zero means no timeout."""
    whole, rest = divmod(max(1, round(seconds * 1_000_000)), 1_000_000)
    return struct.pack("@ll", whole, rest)


class LoopPool:
    """Persistent connections of one event loop."""

    def __init__(self, endpoint: CoordinatorEndpoint, loop: asyncio.AbstractEventLoop) -> None:
        self._endpoint = endpoint
        self._loop = loop
        self._open: set[_LoopConnection] = set()
        self._idle: list[_LoopConnection] = []
        self._closer: AsyncGenerator[None, None] | None = None

    async def exchange(self, request: bytes, *, timeout_s: float) -> Response:
        connection = self._take_idle() or await self._connect(timeout_s)
        is_done = False
        try:
            response = await connection.exchange(request, timeout_s)
            is_done = True
        finally:
            # An abandoned call leaves its answer under way, so its connection is not reused.
            self._give_back(connection, is_done=is_done)
        return response

    def close(self) -> None:
        """Close all connections, from any thread; the loop may have ended already."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._close_all)

    def _close_all(self) -> None:
        for connection in list(self._open):
            connection.abort()
        self._open.clear()
        self._idle.clear()

    def _take_idle(self) -> "_LoopConnection | None":
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable:
                return connection
        return None

    async def _connect(self, timeout_s: float) -> "_LoopConnection":
        await self._close_with_loop()
        endpoint = self._endpoint
        try:
            async with asyncio.timeout(min(CONNECT_TIMEOUT_S, timeout_s)):
                _, connection = await self._loop.create_connection(
                    lambda: _LoopConnection(endpoint, self._loop, self._open),
                    endpoint.host,
                    endpoint.port,
                    ssl=endpoint.tls,
                )
        except TimeoutError:
            raise endpoint.not_sent("no connection in time") from None
        except OSError as error:
            raise endpoint.not_sent(error) from error
        return connection

    def _give_back(self, connection: "_LoopConnection", *, is_done: bool) -> None:
        is_reusable = is_done and connection.is_usable and connection.is_reusable
        if is_reusable and len(self._idle) < MAX_IDLE_CONNECTIONS:
            self._idle.append(connection)
        else:
            connection.abort()

    async def _close_with_loop(self) -> None:
        """Have the connections closed with their loop: it ends its async generators first."""
        if self._closer is None:
            self._closer = self._until_loop_ends()
            await anext(self._closer)

    async def _until_loop_ends(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            self._close_all()
            await asyncio.sleep(0)  # one iteration of the loop, which closes the sockets


class _LoopConnection(asyncio.Protocol):
    def __init__(
        self,
        endpoint: CoordinatorEndpoint,
        loop: asyncio.AbstractEventLoop,
        registry: set["_LoopConnection"],
    ) -> None:
        self._endpoint = endpoint
        self._loop = loop
        self._registry = registry
        self._parser = ResponseParser()
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[Response] | None = None

    @property
    def is_usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_reusable(self) -> bool:
        return self._parser.is_reusable

    async def exchange(self, request: bytes, timeout_s: float) -> Response:
        assert self._transport is not None
        assert self._answer is None, "one request at a time"
        answer: asyncio.Future[Response] = self._loop.create_future()
        self._answer = answer
        timer = self._loop.call_later(timeout_s, self._fail, self._endpoint.timed_out(timeout_s))
        self._transport.write(request)
        try:
            return await answer
        finally:
            timer.cancel()
            self._answer = None

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _fail(self, error: Exception) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)

    # --- callbacks of the event loop ------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's does not inherit from it
        self._registry.add(self)

    def data_received(self, data: bytes) -> None:
        if self._answer is None:  # unasked data: the server closes, or does not speak HTTP
            self.abort()
            return
        try:
            response = self._parser.feed(data)
        except Unavailable as error:
            self._fail(error)
            self.abort()
            return
        if response is not None and not self._answer.done():
            self._answer.set_result(response)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._registry.discard(self)
        response = None if exc is not None else self._parser.end()
        if response is not None and self._answer is not None and not self._answer.done():
            self._answer.set_result(response)
        self._fail(self._endpoint.lost(exc or "closed by the other side"))
