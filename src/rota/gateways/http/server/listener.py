"""The listener: accepts every waiting connection each time one comes.

The event loop's own server may accept one connection a round. A round is long when many requests
are under way, so under load the first byte of a new caller would be read seconds later.
"""

import asyncio
import errno
import functools
import socket
from collections.abc import Callable

import structlog

log = structlog.get_logger("rota.http")

ACCEPTED_AT_ONCE = 256  # connections accepted in one round; the others come with the next
SHORTAGE_PAUSE_S = 0.1  # without files or memory for another connection
SHORTAGES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

ProtocolFactory = Callable[[], asyncio.Protocol]


class Listener:
    """Accepts connections until it is closed. Belongs to the event loop."""

    def __init__(self, listening: socket.socket, create_protocol: ProtocolFactory) -> None:
        self._socket = listening
        self._create_protocol = create_protocol
        self._loop = asyncio.get_running_loop()
        self._welcoming: set[asyncio.Task[None]] = set()
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
        for task in self._welcoming:
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait until every connection that was being accepted is open or gone."""
        if self._welcoming:
            await asyncio.wait(self._welcoming)

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
            task = self._loop.create_task(self._welcome(connection))
            self._welcoming.add(task)
            task.add_done_callback(functools.partial(self._end_welcome, connection))

    async def _welcome(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._create_protocol, connection)
        except OSError:
            connection.close()  # gone already

    def _end_welcome(self, connection: socket.socket, task: asyncio.Task[None]) -> None:
        # Here and not in the task: one that is cancelled before its first step runs no line.
        self._welcoming.discard(task)
        if task.cancelled():
            connection.close()
