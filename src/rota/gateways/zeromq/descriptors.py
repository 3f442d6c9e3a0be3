"""Guards the listener against running out of file descriptors.

Without a free descriptor, libzmq cannot accept a waiting connection, is woken for it again and
again, and keeps a processor busy. So a few descriptors are held in reserve: those between the soft
limit of the process and the hard one. When no others are left, the soft limit is raised for a
moment, and the waiting connections are accepted and closed. Connections that libzmq accepts first
are dropped as scarce. The peers try again later.
"""

import asyncio
import errno
import os
import resource
import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from rota.engine.metrics.metrics import WireMetrics
from rota.gateways.throttled_log import ThrottledLog

HELD_IN_RESERVE = 64  # descriptors to turn connections away with
FEWEST = 256  # descriptors of a process that is so small that none are held back
RESERVED = 64  # descriptors that ZeroMQ leaves to the store and to HTTP
RESERVED_PART = 8  # of few descriptors, the reserve is at most this part
CHECK_EVERY_S = 0.05  # while a connection waits
MOST_PER_TURN = 256  # connections turned away before others have the loop
EXHAUSTED = (errno.EMFILE, errno.ENFILE)


def reserve_descriptors() -> None:
    """Lower the soft limit where there are no descriptors between it and the hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard >= FEWEST and hard - soft < HELD_IN_RESERVE:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard - HELD_IN_RESERVE, hard))


@contextmanager
def reserved_descriptors() -> Iterator[None]:
    """Allow the reserved descriptors for a moment."""
    before = soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = soft + HELD_IN_RESERVE
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def is_scarce(descriptor: int) -> bool:
    """Whether a descriptor, the lowest that was free, is among the last of the process."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY:
        return False
    return descriptor >= most - min(RESERVED, most // RESERVED_PART)


class ListenerGuard:
    """The listening socket, beside libzmq, which accepts from it as long as it can."""

    def __init__(
        self, listening: socket.socket, metrics: WireMetrics, throttled_log: ThrottledLog
    ) -> None:
        """Take a descriptor of our own for the socket; libzmq has and closes another."""
        self._socket = listening
        self._metrics = metrics
        self._throttled_log = throttled_log
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._epoll = select.epoll() if hasattr(select, "epoll") else None
        self.port: int = listening.getsockname()[1]

    def start(self) -> None:
        reserve_descriptors()
        self._loop = asyncio.get_running_loop()
        if self._epoll is not None:
            # Edges only: a connection that waits is libzmq's to accept, and wakes us once.
            self._epoll.register(self._socket.fileno(), select.EPOLLIN | select.EPOLLET)
            self._loop.add_reader(self._epoll.fileno(), self._on_readable)
        self._check_later()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._epoll is not None:
            if self._loop is not None:
                self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
        self._socket.close()

    def _on_readable(self) -> None:
        assert self._epoll is not None
        self._epoll.poll(0)
        self._check()

    def _check_later(self) -> None:
        assert self._loop is not None
        if self._timer is None:
            self._timer = self._loop.call_later(CHECK_EVERY_S, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._check()
        if self._epoll is None:
            self._check_later()  # nothing else wakes us for a new connection

    def _check(self) -> None:
        if self._is_exhausted():
            self._refuse_waiting()
        if self._has_waiting():
            self._check_later()

    def _refuse_waiting(self) -> None:
        """Accept the connections that wait, and close them."""
        refused = 0
        # Nothing else on the loop runs meanwhile, so that HTTP takes none of what is held back.
        with reserved_descriptors():
            while refused < MOST_PER_TURN:
                try:
                    connection, _ = self._socket.accept()
                except OSError:
                    break  # none waits any more, or libzmq has what was held back
                connection.close()
                refused += 1
        if refused:
            self._metrics.refused_connections["descriptors"] += refused
            self._throttled_log.warn("connection_refused", code="descriptors")

    def _has_waiting(self) -> bool:
        poll = select.poll()
        poll.register(self._socket.fileno(), select.POLLIN)
        return bool(poll.poll(0))

    def _is_exhausted(self) -> bool:
        try:
            os.close(os.dup(self._socket.fileno()))
        except OSError as error:
            return error.errno in EXHAUSTED
        return False
