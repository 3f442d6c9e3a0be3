"""How is a request carried by a thread that waits? On a pool of plain sockets.

A socket of Python's with a timeout asks the kernel twice for everything it does: whether it can be
done, and to do it. Here the kernel is told once how long to wait, and is asked once.
"""

import select
import socket
import struct
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
        self._goodbye = select.poll()
        self._goodbye.register(sock, select.POLLIN | select.POLLHUP)
        self._patience_s: float | None = None  # what the kernel was told; None: nothing yet
        # What encrypts a socket does its waiting as well, and must know of it.
        self._is_encrypted = endpoint.tls is not None
        if not self._is_encrypted:
            sock.settimeout(None)

    @property
    def is_reusable(self) -> bool:
        return self._parser.is_reusable

    def is_usable(self) -> bool:
        """An idle connection has nothing to read; if it has, that is the server's goodbye."""
        return not self._goodbye.poll(0)

    def exchange(self, request: bytes, deadline: float, timeout_s: float) -> Response:
        """Send a request and read its response; all of it until the deadline.

        The first wait may be as long as the whole (`timeout_s`), which is the same from call to
        call, so that the kernel has been told already.
        """
        remaining_s = timeout_s
        try:
            self._wait_for(remaining_s)
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
                self._wait_for(remaining_s)
        except BlockingIOError:
            raise TimeoutError from None

    def _wait_for(self, patience_s: float) -> None:
        if patience_s == self._patience_s:
            return
        self._patience_s = patience_s
        if self._is_encrypted:
            self._socket.settimeout(patience_s)
            return
        patience = _timeval(patience_s)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, patience)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, patience)

    def close(self) -> None:
        self._socket.close()


def _timeval(seconds: float) -> bytes:
    """A time as the kernel takes it; nought would be for ever."""
    whole, rest = divmod(max(1, round(seconds * 1_000_000)), 1_000_000)
    return struct.pack("@ll", whole, rest)
