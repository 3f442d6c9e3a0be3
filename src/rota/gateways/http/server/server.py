"""The server: listens, keeps its connections, and stops without cutting off what is under way."""

import asyncio
import socket

import structlog

from rota.gateways.http.server.application import Application
from rota.gateways.http.server.connection import HttpConnection, OpenConnections, Upgrade
from rota.gateways.http.server.listener import Listener
from rota.gateways.http.server.read_queue import ReadQueue

log = structlog.get_logger("rota.http")

STOP_GRACE_S = 10.0  # how long requests under way may take once the server stops


class HttpServer:
    """Serves an application on one listening socket. Belongs to the event loop."""

    def __init__(self, app: Application, upgrade: Upgrade) -> None:
        """`upgrade` takes over the connections of WebSocket handshakes."""
        self._app = app
        self._upgrade = upgrade
        self._listener: Listener | None = None
        self.open = OpenConnections()
        self.turns = ReadQueue(asyncio.get_running_loop(), app.is_crowded)

    def start(self, listening: socket.socket) -> None:
        self._listener = Listener(listening, self._connect)

    def _connect(self) -> HttpConnection:
        return HttpConnection(self._app, self.open, self.turns, self._upgrade)

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
