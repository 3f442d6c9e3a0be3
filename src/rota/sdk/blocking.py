"""How is a request carried by a thread that waits? On a pool of plain sockets."""

import select
import socket
import time
from collections import deque

from rota.sdk.endpoint import Endpoint
from rota.sdk.parsing import ResponseParser
from rota.sdk.transport import Response

MAX_IDLE_CONNECTIONS = 32
CONNECT_TIMEOUT_S = 10.0
_READ_SIZE = 64 * 1024


class BlockingPool:
    """Kept-open connections, each used by one thread at a time."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        # A deque's append and pop are safe between threads, so the pool needs no lock.
        self._idle: deque[_Connection] = deque()
        self._is_closed = False

    def exchange(self, request: bytes, *, timeout_s: float) -> Response:
        deadline = time.monotonic() + timeout_s
        connection = self._take(deadline)
        try:
            response = connection.exchange(request, deadline)
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

    def _take(self, deadline: float) -> "_Connection":
        while self._idle:
            try:
                connection = self._idle.pop()  # the warmest first
            except IndexError:
                break
            if connection.is_usable():
                return connection
            connection.close()
        try:
            return _Connection(self._endpoint, deadline)
        except OSError as error:
            raise self._endpoint.not_sent(error) from error

    def _give_back(self, connection: "_Connection") -> None:
        if (
            connection.is_reusable
            and not self._is_closed
            and len(self._idle) < MAX_IDLE_CONNECTIONS
        ):
            self._idle.append(connection)
        else:
            connection.close()


class _Connection:
    def __init__(self, endpoint: Endpoint, deadline: float) -> None:
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

    @property
    def is_reusable(self) -> bool:
        return self._parser.is_reusable

    def is_usable(self) -> bool:
        """An idle connection has nothing to read; if it has, that is the server's goodbye."""
        readable = select.poll()
        readable.register(self._socket, select.POLLIN | select.POLLHUP)
        return not readable.poll(0)

    def exchange(self, request: bytes, deadline: float) -> Response:
        self._wait_until(deadline)
        self._socket.sendall(request)
        while True:
            self._wait_until(deadline)
            data = self._socket.recv(_READ_SIZE)
            response = self._parser.feed(data) if data else self._parser.end()
            if response is not None:
                return response
            if not data:
                raise ConnectionResetError("closed by the other side")

    def _wait_until(self, deadline: float) -> None:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError
        self._socket.settimeout(remaining)

    def close(self) -> None:
        self._socket.close()
