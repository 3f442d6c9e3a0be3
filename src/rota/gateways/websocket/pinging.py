"""Who has been silent for long? All sockets are looked at in one round.

A timer for each would wake the loop as often as there are sockets, to find that nearly all of them
were heard of meanwhile.
"""

import asyncio
from typing import Protocol
from weakref import WeakKeyDictionary

ROUND_S = 0.5


class Silent(Protocol):
    def look(self, now_s: float) -> None:
        """Ask whether anybody is there, if nobody was heard of for long."""
        ...


class Rounds:
    """All sockets of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._sockets: dict[Silent, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    def on(cls, loop: asyncio.AbstractEventLoop) -> "Rounds":
        return _by_loop.setdefault(loop, cls(loop))

    def add(self, socket: Silent) -> None:
        self._sockets[socket] = None
        if self._timer is None:
            self._timer = self._loop.call_later(ROUND_S, self._go)

    def drop(self, socket: Silent) -> None:
        self._sockets.pop(socket, None)

    def _go(self) -> None:
        self._timer = self._loop.call_later(ROUND_S, self._go) if self._sockets else None
        now_s = self._loop.time()
        for socket in list(self._sockets):
            socket.look(now_s)


_by_loop: "WeakKeyDictionary[asyncio.AbstractEventLoop, Rounds]" = WeakKeyDictionary()
