"""How many connections are there? ZeroMQ tells of those that come and go, by their descriptors.

It does not tell which of them has been welcomed. But within the time for its handshake, a
connection has been welcomed or is gone. So those that are older are all welcome ones, and of the
younger ones there are no more than were welcomed in that time. Connections that say nothing, or
that were turned away and linger, take nobody's place.
"""

import time
from collections import deque
from collections.abc import Callable

import zmq
from zmq.utils.monitor import parse_monitor_message

from rota.engine.figures import WireFigures
from rota.gateways.zeromq.pump import NOW, Pump

ENDPOINT = "inproc://rota.connections"
COMING = zmq.EVENT_ACCEPTED
GOING = zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED
LATE_S = 1.0  # by how much the library's timers, and what it tells, may be behind


class Roll:
    """The connections there are: those under way and those that were let in."""

    def __init__(self, *, handshake_s: float) -> None:
        self._young_for_s = handshake_s + LATE_S
        self._young: dict[int, float] = {}  # when each came, in that order
        self._old: set[int] = set()
        self._welcomed: deque[float] = deque()  # when, of late

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def come(self, descriptor: int, now_s: float) -> None:
        self.go(descriptor)
        self._young[descriptor] = now_s

    def go(self, descriptor: int) -> None:
        self._young.pop(descriptor, None)
        self._old.discard(descriptor)

    def welcome(self, now_s: float) -> None:
        self._welcomed.append(now_s)

    def welcome_ones(self, now_s: float) -> int:
        """How many were let in and are still here, at the most."""
        before_s = now_s - self._young_for_s
        while self._welcomed and self._welcomed[0] < before_s:
            self._welcomed.popleft()
        while self._young:
            descriptor, came_s = next(iter(self._young.items()))
            if came_s >= before_s:
                break
            del self._young[descriptor]
            self._old.add(descriptor)
        return len(self._old) + len(self._welcomed)


class Connections:
    def __init__(
        self,
        socket: zmq.Socket[bytes],
        figures: WireFigures,
        *,
        handshake_ms: int,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Watch a socket, from before it is bound."""
        self._watched = socket
        self._figures = figures
        self._roll = Roll(handshake_s=handshake_ms / 1000)
        self._now_s = now_s
        socket.monitor(ENDPOINT, COMING | GOING)
        self._socket = socket.context.socket(zmq.PAIR)
        self._socket.linger = 0
        # Were this to fill up, the library's own thread would wait for us to read.
        self._socket.rcvhwm = 0
        self._socket.connect(ENDPOINT)
        self._pump: Pump | None = None

    def start(self) -> None:
        self._pump = Pump(self._socket, self._take)

    def close(self) -> None:
        if self._pump is not None:
            self._pump.close()
        self._watched.disable_monitor()
        self._socket.close()

    def find_place(self, *, most: int) -> bool:
        """Whether one more may be let in; then it is counted from now on."""
        now_s = self._now_s()
        if self._roll.welcome_ones(now_s) >= most:
            return False
        self._roll.welcome(now_s)
        return True

    def _take(self) -> None:
        told = parse_monitor_message(self._socket.recv_multipart(NOW))
        if told["event"] & COMING:
            self._roll.come(told["value"], self._now_s())
        else:
            self._roll.go(told["value"])
        self._figures.connections = len(self._roll)
