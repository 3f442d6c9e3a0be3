"""How many messages may be under way before we read on?

One turn's worth, at first. The engine carries out small batches on the loop, as long as its thread
is idle; were we to read on while the thread is at something, it would never be idle again, and two
threads that both want the interpreter are slower than one. But a thread that is busy with others
for long must not keep members waiting: after a few milliseconds we read another turn's worth.
"""

import asyncio

from rota.gateways.zeromq.pump import MOST_PER_TURN, Pump

PATIENCE_S = 0.004
MOST_UNDER_WAY_BYTES = 32 * 1024 * 1024  # of messages that wait for their commits
MESSAGE_BYTES = 1_024  # what a message costs us on top of its length


class Window:
    def __init__(self, pump: Pump) -> None:
        self._pump = pump
        self._loop = asyncio.get_running_loop()
        self._allowance = MOST_PER_TURN
        self._under_way = 0
        self._under_way_bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def enter(self, length: int) -> None:
        """A message is under way."""
        self._under_way += 1
        self._under_way_bytes += MESSAGE_BYTES + length
        self._allowance -= 1
        if self._allowance <= 0 or self._under_way_bytes > MOST_UNDER_WAY_BYTES:
            self._pump.is_paused = True
            if self._timer is None:
                self._timer = self._loop.call_later(PATIENCE_S, self._lose_patience)

    def leave(self, length: int) -> None:
        """It was answered."""
        self._under_way -= 1
        self._under_way_bytes -= MESSAGE_BYTES + length
        if not self._under_way:
            self._open()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _lose_patience(self) -> None:
        self._timer = None
        if self._under_way_bytes <= MOST_UNDER_WAY_BYTES:
            self._open()
        else:
            self._timer = self._loop.call_later(PATIENCE_S, self._lose_patience)

    def _open(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._allowance = MOST_PER_TURN
        if self._pump.is_paused:
            self._pump.is_paused = False
            self._pump.look_soon()
