"""A pool of blocking connections for threads.

A Python socket with a timeout makes two system calls for every operation: one that waits and one
that acts. These connections set the kernel's own timeouts instead and make one call.
"""

import select
import socket
import struct
import time
from collections import deque

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
