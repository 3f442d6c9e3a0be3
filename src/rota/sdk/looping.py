"""How is a request carried on an event loop? On a pool of protocols that belong to that loop."""

import asyncio
from collections.abc import AsyncGenerator
from typing import cast

from rota.errors import Unavailable
from rota.sdk.endpoint import Endpoint
from rota.sdk.parsing import ResponseParser
from rota.sdk.transport import Response

MAX_IDLE_CONNECTIONS = 32
CONNECT_TIMEOUT_S = 10.0


class LoopPool:
    """Kept-open connections of one event loop."""

    def __init__(self, endpoint: Endpoint, loop: asyncio.AbstractEventLoop) -> None:
        self._endpoint = endpoint
        self._loop = loop
        self._open: set[_Connection] = set()
        self._idle: list[_Connection] = []
        self._farewell: AsyncGenerator[None, None] | None = None

    async def exchange(self, request: bytes, *, timeout_s: float) -> Response:
        connection = self._take_idle() or await self._connect(timeout_s)
        is_done = False
        try:
            response = await connection.exchange(request, timeout_s)
            is_done = True
        finally:
            # Whoever was cancelled or gave up leaves an answer under way: no use for others.
            self._give_back(connection, is_done=is_done)
        return response

    def close(self) -> None:
        """Close from any thread; the loop may have ended already."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._close_all)

    def _close_all(self) -> None:
        for connection in list(self._open):
            connection.abort()
        self._open.clear()
        self._idle.clear()

    def _take_idle(self) -> "_Connection | None":
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable:
                return connection
        return None

    async def _connect(self, timeout_s: float) -> "_Connection":
        await self._prepare_farewell()
        endpoint = self._endpoint
        try:
            async with asyncio.timeout(min(CONNECT_TIMEOUT_S, timeout_s)):
                _, connection = await self._loop.create_connection(
                    lambda: _Connection(endpoint, self._loop, self._open),
                    endpoint.host,
                    endpoint.port,
                    ssl=endpoint.tls,
                )
        except TimeoutError:
            raise endpoint.not_sent("no connection in time") from None
        except OSError as error:
            raise endpoint.not_sent(error) from error
        return connection

    def _give_back(self, connection: "_Connection", *, is_done: bool) -> None:
        is_reusable = is_done and connection.is_usable and connection.is_reusable
        if is_reusable and len(self._idle) < MAX_IDLE_CONNECTIONS:
            self._idle.append(connection)
        else:
            connection.abort()

    async def _prepare_farewell(self) -> None:
        """Have the connections closed with their loop: it ends its async generators first."""
        if self._farewell is None:
            self._farewell = self._say_farewell()
            await anext(self._farewell)

    async def _say_farewell(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            self._close_all()
            await asyncio.sleep(0)  # a turn of the loop, in which the sockets are closed


class _Connection(asyncio.Protocol):
    def __init__(
        self, endpoint: Endpoint, loop: asyncio.AbstractEventLoop, registry: set["_Connection"]
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
        alarm = self._loop.call_later(timeout_s, self._fail, self._endpoint.timed_out(timeout_s))
        self._transport.write(request)
        try:
            return await answer
        finally:
            alarm.cancel()
            self._answer = None

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _fail(self, error: Exception) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)

    # --- what the event loop calls ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but name
        self._registry.add(self)

    def data_received(self, data: bytes) -> None:
        if self._answer is None:  # nobody asked: the server's goodbye, or not HTTP at all
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
