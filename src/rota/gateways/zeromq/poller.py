"""Polls the ZeroMQ socket from the event loop.

Theory of operation. A ZeroMQ socket has a descriptor that an event loop can watch, but it signals
changes only: it becomes readable when the state of the socket has changed, and any call on the
socket, a send included, may clear that signal. Only the socket's EVENTS show whether there is a
message to read. So the poller reads EVENTS after every turn of reading, and once more after sends.

A turn takes a bounded number of messages, then returns to the loop.
"""

import asyncio
from collections.abc import Callable

import zmq

# A turn fits into a batch that the engine executes on the loop itself, with some space for other
# gateways; there is one turn in each iteration of the loop.
MOST_PER_TURN = 48

NOW = int(zmq.NOBLOCK)
NOW_WITH_MORE = int(zmq.NOBLOCK | zmq.SNDMORE)
_READABLE = int(zmq.POLLIN)


class SocketPoller:
    """Calls `take`, which takes one message off the socket, whenever there is one."""

    def __init__(self, socket: zmq.Socket[bytes], take: Callable[[], None]) -> None:
        """Start reading; on the running loop. `take` raises `zmq.Again` when there is nothing."""
        self._socket = socket
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._descriptor = int(socket.getsockopt(zmq.FD))
        self._is_turn_scheduled = False
        self._is_open = True
        self.is_paused = False
        self._loop.add_reader(self._descriptor, self._on_readable)
        self.poll_soon()  # earlier messages give no signal

    def poll_soon(self) -> None:
        """Check for messages soon: after a send, or after a pause."""
        if self._is_open and not self._is_turn_scheduled:
            self._is_turn_scheduled = True
            self._loop.call_soon(self._turn)

    def is_behind(self) -> bool:
        """Whether messages wait to be read; then they are read soon."""
        if not self.is_paused and not self._is_readable():
            return False
        self.poll_soon()  # reading EVENTS may have cleared the signal
        return True

    def close(self) -> None:
        """Stop reading. The owner closes the socket after this."""
        if self._is_open:
            self._is_open = False
            self._loop.remove_reader(self._descriptor)

    def _on_readable(self) -> None:
        if not self._is_turn_scheduled:
            self._turn()

    def _turn(self) -> None:
        self._is_turn_scheduled = False
        taken = 0
        try:
            while taken < MOST_PER_TURN and (taken or self._is_readable()) and not self.is_paused:
                taken += 1
                self._take()
        except zmq.Again:
            pass
        finally:
            # Also after an exception: the messages behind it must not wait for the next signal.
            if taken and self._is_readable() and not self.is_paused:
                self.poll_soon()

    def _is_readable(self) -> bool:
        """Ask the socket, which also clears the signal that would wake the loop again and again."""
        return self._is_open and bool(int(self._socket.getsockopt(zmq.EVENTS)) & _READABLE)
