"""How do messages of a ZeroMQ socket get onto the event loop?

Theory of operation. A ZeroMQ socket has a descriptor that an event loop can watch, but it tells of
changes only: it becomes readable when something happened to the socket, and any call on the socket,
a send included, may take that note away. Whether there is a message to read is said by the socket's
EVENTS alone. So these are asked after every turn of reading, and once more after sends.

A turn takes a bounded number of messages, then lets others have the loop.
"""

import asyncio
from collections.abc import Callable

import zmq

# A turn fits into a batch that the engine carries out on the loop itself, with some room for what
# comes by other doors, and there is one turn each time round.
MOST_PER_TURN = 48

NOW = int(zmq.NOBLOCK)
NOW_WITH_MORE = int(zmq.NOBLOCK | zmq.SNDMORE)
_READABLE = int(zmq.POLLIN)


class Pump:
    """Calls `take`, which takes one message off the socket, whenever there is one."""

    def __init__(self, socket: zmq.Socket[bytes], take: Callable[[], None]) -> None:
        """Start reading; on the running loop. `take` raises `zmq.Again` when there is nothing."""
        self._socket = socket
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._descriptor = int(socket.getsockopt(zmq.FD))
        self._is_turn_due = False
        self._is_open = True
        self.is_paused = False
        self._loop.add_reader(self._descriptor, self._hear)
        self.look_soon()  # what came before is told of by nothing

    def look_soon(self) -> None:
        """See whether there is something to read: sends were made, or a pause is over."""
        if self._is_open and not self._is_turn_due:
            self._is_turn_due = True
            self._loop.call_soon(self._turn)

    def close(self) -> None:
        """Read no more. The socket is its owner's to close, after this."""
        if self._is_open:
            self._is_open = False
            self._loop.remove_reader(self._descriptor)

    def _hear(self) -> None:
        if not self._is_turn_due:
            self._turn()

    def _turn(self) -> None:
        self._is_turn_due = False
        taken = 0
        try:
            while taken < MOST_PER_TURN and (taken or self._has_some()) and not self.is_paused:
                taken += 1
                self._take()
        except zmq.Again:
            pass
        finally:
            # Also when a message broke us: those behind it must not wait for a note to come.
            if taken and self._has_some() and not self.is_paused:
                self.look_soon()

    def _has_some(self) -> bool:
        """Ask the socket, which also takes the note away that would wake us again and again."""
        return self._is_open and bool(int(self._socket.getsockopt(zmq.EVENTS)) & _READABLE)
