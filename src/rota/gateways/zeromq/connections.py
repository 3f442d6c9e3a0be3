"""Counts the connections of the ZeroMQ socket by its monitor events.

The events do not name the connection that was admitted. But at the end of its handshake a
connection has been admitted or is closed. So all older connections are admitted ones, and of the
younger ones there are no more than were admitted in that time. Connections that stay silent, or
that linger after a refusal, take up no place.
"""

import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

import zmq
from zmq.utils.monitor import parse_monitor_message

from rota.engine.metrics.metrics import WireMetrics
from rota.gateways.zeromq.byte_meter import ByteMeter
from rota.gateways.zeromq.descriptors import is_scarce
from rota.gateways.zeromq.poller import NOW, SocketPoller

ENDPOINT = "inproc://rota.connections"
OPENED = zmq.EVENT_ACCEPTED
CLOSED = zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED
MOST_TAKEN_AT_ONCE = 1_000  # events
TIMER_LAG_S = 1.0  # by how much libzmq's timers and events may be late


class ConnectionTracker:
    """The open connections: those in their handshake and those that were admitted."""

    def __init__(self, *, handshake_s: float) -> None:
        self._handshake_s = handshake_s + TIMER_LAG_S
        self._young: dict[int, float] = {}  # when each came, in that order
        self._old: set[int] = set()
        self._admitted: deque[float] = deque()  # when, of late

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def opened(self, descriptor: int, now_s: float) -> None:
        self.closed(descriptor)
        self._young[descriptor] = now_s

    def closed(self, descriptor: int) -> None:
        self._young.pop(descriptor, None)
        self._old.discard(descriptor)

    def admit(self, now_s: float) -> None:
        self._admitted.append(now_s)

    def admitted_count(self, now_s: float) -> int:
        """The most connections that were admitted and are still open."""
        before_s = now_s - self._handshake_s
        while self._admitted and self._admitted[0] < before_s:
            self._admitted.popleft()
        while self._young:
            descriptor, came_s = next(iter(self._young.items()))
            if came_s >= before_s:
                break
            del self._young[descriptor]
            self._old.add(descriptor)
        return len(self._old) + len(self._admitted)


class Connections:
    def __init__(
        self,
        socket: zmq.Socket[bytes],
        metrics: WireMetrics,
        meter: ByteMeter,
        *,
        handshake_ms: int,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Watch a socket, from before it is bound."""
        self._watched = socket
        self._metrics = metrics
        self._meter = meter
        self._tracker = ConnectionTracker(handshake_s=handshake_ms / 1000)
        self._now_s = now_s
        socket.monitor(ENDPOINT, OPENED | CLOSED)
        self._socket = socket.context.socket(zmq.PAIR)
        self._socket.linger = 0
        # If this filled up, libzmq's own thread would wait for the reader.
        self._socket.rcvhwm = 0
        self._socket.connect(ENDPOINT)
        self._poller: SocketPoller | None = None

    def start(self) -> None:
        self._poller = SocketPoller(self._socket, self._take)

    def close(self) -> None:
        if self._poller is not None:
            self._poller.close()
        self._watched.disable_monitor()
        self._socket.close()

    def try_admit(self, *, most: int) -> bool:
        """Admit one more connection if there is a place; it is counted from now on."""
        now_s = self._now_s()
        if self._tracker.admitted_count(now_s) >= most:
            return False
        self._tracker.admit(now_s)
        return True

    def take_waiting(self) -> None:
        """Take the events that wait: a connection is known before its messages are."""
        with suppress(zmq.Again):
            for _ in range(MOST_TAKEN_AT_ONCE):
                self._take()
        if self._poller is not None:
            self._poller.poll_soon()

    def _take(self) -> None:
        event = parse_monitor_message(self._socket.recv_multipart(NOW))
        descriptor = int(event["value"])
        if event["event"] & OPENED:
            self._tracker.opened(descriptor, self._now_s())
            self._meter.opened(descriptor)
            if is_scarce(descriptor):
                self._meter.drop(descriptor, "descriptors")
        else:
            self._tracker.closed(descriptor)
            self._meter.closed(descriptor)
        self._metrics.connections = len(self._tracker)
