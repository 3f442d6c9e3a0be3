"""The server: accepts connections, and stops without cutting off what is under way.

The listener accepts every waiting connection each time one comes. The event loop's own server may
accept one connection a round. A round is long when many requests are under way, so under load the
first byte of a new caller would be read seconds later.
"""

import asyncio
import errno
import functools
import socket
from collections.abc import Callable

import structlog

from rota.gateways.http.server.connection import HttpConnection, OpenConnections, Upgrades
from rota.gateways.http.server.exchange import AsgiApplication
from rota.gateways.http.server.scheduling import ReadQueue
from rota.gateways.http.server.tls import ServerTls, TlsConnection

log = structlog.get_logger("rota.http")

ACCEPTED_AT_ONCE = 256  # connections accepted in one round; the others come with the next
SHORTAGE_PAUSE_S = 0.1  # without files or memory for another connection
SHORTAGES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
STOP_GRACE_S = 10.0  # how long requests under way may take once the server stops

ProtocolFactory = Callable[[], asyncio.Protocol]


class Listener:
    """Accepts connections until it is closed. Belongs to the event loop."""

    def __init__(self, listening: socket.socket, create_protocol: ProtocolFactory) -> None:
        self._socket = listening
        self._create_protocol = create_protocol
        self._loop = asyncio.get_running_loop()
        self._connecting: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._is_short = False  # of files or memory; logged once until a connection is accepted
        self._resume()

    def close(self) -> None:
        """Accept no more; connections that are open are left alone."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._socket)
        for task in self._connecting:
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait until every connection that was being accepted is open or gone."""
        if self._connecting:
            await asyncio.wait(self._connecting)

    def _resume(self) -> None:
        self._loop.add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                connection, _address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in SHORTAGES:
                    raise
                if not self._is_short:
                    log.error("connection_not_accepted", error=str(error))  # noqa: TRY400 - no trace
                self._is_short = True
                self._loop.remove_reader(self._socket)
                self._pause = self._loop.call_later(SHORTAGE_PAUSE_S, self._resume)
                return
            self._is_short = False
            connection.setblocking(False)  # noqa: FBT003 - the socket's own signature
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            task = self._loop.create_task(self._connect(connection))
            self._connecting.add(task)
            task.add_done_callback(functools.partial(self._end_connecting, connection))

    async def _connect(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._create_protocol, connection)
        except OSError:
            connection.close()  # gone already

    def _end_connecting(self, connection: socket.socket, task: asyncio.Task[None]) -> None:
        # Here and not in the task: one that is cancelled before its first step runs no line.
        self._connecting.discard(task)
        if task.cancelled():
            connection.close()


class HttpServer:
    """Serves an application on one listening socket. Belongs to the event loop."""

    def __init__(
        self, app: AsgiApplication, upgrades: Upgrades, tls: ServerTls | None = None
    ) -> None:
        """`upgrades` take over the connections that ask for another protocol, such as WebSocket."""
        self._app = app
        self._tls = tls
        self._upgrades = upgrades
        self._listener: Listener | None = None
        self.open = OpenConnections()
        self.turns = ReadQueue(asyncio.get_running_loop(), app.is_crowded)

    def start(self, listening: socket.socket) -> None:
        self._listener = Listener(listening, self._connect)

    def _connect(self) -> asyncio.Protocol:
        if self._tls is None:
            return self._connect_http()
        return TlsConnection(self._tls, self._connect_http, self.open)

    def _connect_http(self) -> HttpConnection:
        return HttpConnection(self._app, self.open, self.turns, self._upgrades)

    async def stop(self) -> None:
        """Accept no more, have requests under way answered, then close every connection."""
        if self._listener is not None:
            self._listener.close()
            await self._listener.wait_closed()
        for connection in list(self.open.connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(STOP_GRACE_S):
                await self.open.wait_empty()
        except TimeoutError:
            log.warning(
                "stop_grace_exceeded",
                requests=len(self.open.tasks),
                connections=len(self.open.connections),
            )
            for task in self.open.tasks:
                task.cancel()
            for connection in list(self.open.connections):
                connection.abort()
            if self.open.tasks:
                await asyncio.wait(self.open.tasks)
