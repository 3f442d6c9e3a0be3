"""A pool of connections for one event loop."""

import asyncio
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
