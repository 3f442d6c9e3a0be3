"""Bounds the messages under way before the gateway reads on.

At first one turn's worth. The engine executes small batches on the loop while its thread is idle.
If the gateway read on while the thread is busy, the thread would never be idle again, and two
threads that compete for the interpreter are slower than one. But a thread that is busy for long
must not keep members waiting: after a few milliseconds the gateway reads another turn's worth.
"""

import asyncio

from rota.gateways.zeromq.poller import MOST_PER_TURN, SocketPoller

MAX_PAUSE_S = 0.004
MAX_IN_FLIGHT_BYTES = 32 * 1024 * 1024  # of messages that wait for their commits
MESSAGE_BYTES = 1_024  # what a message costs us on top of its length


class FlowControl:
    def __init__(self, poller: SocketPoller) -> None:
        self._poller = poller
        self._loop = asyncio.get_running_loop()
        self._allowance = MOST_PER_TURN
        self._in_flight = 0
        self._in_flight_bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def enter(self, length: int) -> None:
        """A message is under way."""
        self._in_flight += 1
        self._in_flight_bytes += MESSAGE_BYTES + length
        self._allowance -= 1
        if self._allowance <= 0 or self._in_flight_bytes > MAX_IN_FLIGHT_BYTES:
            self._poller.is_paused = True
            if self._timer is None:
                self._timer = self._loop.call_later(MAX_PAUSE_S, self._on_timeout)

    def leave(self, length: int) -> None:
        """The message was answered."""
        self._in_flight -= 1
        self._in_flight_bytes -= MESSAGE_BYTES + length
        if not self._in_flight:
            self._open()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _on_timeout(self) -> None:
        self._timer = None
        if self._in_flight_bytes <= MAX_IN_FLIGHT_BYTES:
            self._open()
        else:
            self._timer = self._loop.call_later(MAX_PAUSE_S, self._on_timeout)

    def _open(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._allowance = MOST_PER_TURN
        if self._poller.is_paused:
            self._poller.is_paused = False
            self._poller.poll_soon()
