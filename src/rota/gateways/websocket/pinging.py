"""Checks all sockets in one round: pings silent ones, ends lost ones.

A timer for each would wake the loop as often as there are sockets, and nearly all of their
peers have sent something meanwhile.
"""

import asyncio
from typing import Protocol
from weakref import WeakKeyDictionary

from rota.core import limits

ROUND_S = 0.5


class CheckedSocket(Protocol):
    def check(self, now_s: float) -> int:
        """Ping a silent peer, end a lost one; returns the bytes of an unfinished message."""
        ...

    def end_partial(self) -> None:
        """End the socket: all unfinished messages are too large, and this one is the largest."""
        ...


class PingRounds:
    """All sockets of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._sockets: dict[CheckedSocket, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    def on(cls, loop: asyncio.AbstractEventLoop) -> "PingRounds":
        return _by_loop.setdefault(loop, cls(loop))

    def add(self, socket: CheckedSocket) -> None:
        self._sockets[socket] = None
        if self._timer is None:
            self._timer = self._loop.call_later(ROUND_S, self._run_round)

    def drop(self, socket: CheckedSocket) -> None:
        self._sockets.pop(socket, None)

    def _run_round(self) -> None:
        self._timer = self._loop.call_later(ROUND_S, self._run_round) if self._sockets else None
        now_s = self._loop.time()
        partial: dict[CheckedSocket, int] = {}
        for socket in list(self._sockets):
            partial_bytes = socket.check(now_s)
            if partial_bytes:
                partial[socket] = partial_bytes
        self._end_largest(partial)

    def _end_largest(self, partial: dict[CheckedSocket, int]) -> None:
        """Keep within the limit for all; a single message has a limit of its own."""
        total = sum(partial.values())
        while total > limits.MAX_SOCKETS_PARTIAL_BYTES and len(partial) > 1:
            largest = max(partial, key=partial.__getitem__)
            total -= partial.pop(largest)
            largest.end_partial()


_by_loop: "WeakKeyDictionary[asyncio.AbstractEventLoop, PingRounds]" = WeakKeyDictionary()
