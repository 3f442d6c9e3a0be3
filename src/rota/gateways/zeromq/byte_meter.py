"""The bytes that each connection has sent since its last whole message.

Theory of operation. libzmq limits one frame, and delivers a message when its last frame is there.
Frames that announce another one therefore pile up inside libzmq, and no option of it limits them.
The kernel knows how many bytes a connection has received (TCP_INFO), and libzmq names the
descriptor of every connection and of every delivered message. The difference between the bytes now
and the bytes at the last delivered message is what the connection has left unfinished. A peer with
too much of it is dropped; libzmq then frees what it held.

The descriptors stay libzmq's: here they are only read and shut down, never closed. A
descriptor may be closed and used again at any moment, so its two ends are compared first.

An own epoll reports which connections have received something, so that silent ones cost nothing.
It is edge-triggered, and watches for space to write as well: the kernel reports an edge only while
one of the watched conditions holds, and libzmq may have read everything by then.
"""

import asyncio
import select
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import structlog

from rota.gateways.zeromq.throttled_log import ThrottledLog

log = structlog.get_logger("rota.zeromq")

MEASURE_EVERY_S = 0.02  # while something is received
CLOSE_MEASURE_EVERY_S = 0.005  # the same while a peer is over its limit
SILENCE_CHECK_EVERY_S = 5.0  # between two checks
BACKLOG_FACTOR = 4  # by this, limits are higher while whole messages wait for us
COUNTED_FROM_BYTES = 4_096  # a handshake and a few pings are no part of the total

IS_AVAILABLE = sys.platform == "linux"
BYTES_RECEIVED = struct.Struct("=Q")
BYTES_RECEIVED_AT = 128  # tcpi_bytes_received in the kernel's struct tcp_info

RESET = struct.pack("ii", 1, 0)  # SO_LINGER: on, for no time


class Metered:
    """One connection."""

    __slots__ = ("address", "base_bytes", "unfinished_bytes", "whole_at_s")

    def __init__(self, address: str, now_s: float) -> None:
        self.address = address  # of the peer
        self.base_bytes = 0  # received up to the last whole message
        self.unfinished_bytes = 0
        self.whole_at_s = now_s  # when the last whole message, or the connection itself, came


class ByteMeter:
    """Drops peers that send without end, and peers that send nothing."""

    def __init__(
        self,
        dropped: Counter[str],
        throttled_log: ThrottledLog,
        *,
        most_bytes: int,
        most_total_bytes: int,
        most_silence_s: float,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Limit the unfinished bytes of one connection and of all, and the time of silence."""
        self._dropped = dropped
        self._throttled_log = throttled_log
        self._most_bytes = most_bytes
        self._most_total_bytes = most_total_bytes
        self._most_silence_s = most_silence_s
        self._now_s = now_s
        self._peers: dict[int, Metered] = {}
        self._whole: set[int] = set()  # descriptors with a message since the last measurement
        self._large: dict[int, Metered] = {}  # those with more unfinished than is usual
        self._late: set[int] = set()  # descriptors over their limit at the last measurement
        self._port = 0
        self._is_behind: Callable[[], bool] = bool
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._silence_timer: asyncio.TimerHandle | None = None
        self._epoll = select.epoll() if IS_AVAILABLE else None

    def start(self, port: int, is_behind: Callable[[], bool]) -> None:
        """Watch connections to this port; `is_behind`: whole messages wait to be read."""
        self._port = port
        self._is_behind = is_behind
        self._loop = asyncio.get_running_loop()
        self._silence_timer = self._loop.call_later(SILENCE_CHECK_EVERY_S, self._drop_silent)
        if self._epoll is None:
            log.warning("unfinished_messages_unlimited", reason=f"no byte counts on {sys.platform}")
        else:
            self._loop.add_reader(self._epoll.fileno(), self._wake)

    def close(self) -> None:
        for timer in (self._timer, self._silence_timer):
            if timer is not None:
                timer.cancel()
        if self._epoll is not None:
            if self._loop is not None:
                self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()

    # --- what connections do --------------------------------------------------------------------

    def opened(self, descriptor: int) -> None:
        self.closed(descriptor)
        address = _peer_address(descriptor, self._port)
        if address is None:
            return  # gone already, and its number may be in use for something else
        self._peers[descriptor] = Metered(address, self._now_s())
        if self._epoll is not None:
            edges = select.EPOLLIN | select.EPOLLOUT | select.EPOLLET
            with suppress(OSError):  # gone in this moment: libzmq will report it
                self._epoll.register(descriptor, edges)

    def closed(self, descriptor: int) -> None:
        self._peers.pop(descriptor, None)
        self._large.pop(descriptor, None)
        self._whole.discard(descriptor)
        self._late.discard(descriptor)

    def note_message(self, descriptor: int) -> None:
        """A whole message of this connection was read."""
        self._whole.add(descriptor)

    def drop(self, descriptor: int, reason: str) -> None:
        """End a connection; libzmq then closes its descriptor and reports it."""
        peer = self._peers.get(descriptor)
        if peer is None or not _shut_down(descriptor, self._port, peer.address):
            return
        self._dropped[reason] += 1
        self._throttled_log.warn(
            "peer_dropped",
            code=reason,
            address=peer.address,
            unfinished_bytes=peer.unfinished_bytes,
        )
        self.closed(descriptor)

    # --- measuring ------------------------------------------------------------------------------

    def _wake(self) -> None:
        """Measure soon, and then again until nothing more is received."""
        assert self._loop is not None
        assert self._epoll is not None
        self._loop.remove_reader(self._epoll.fileno())
        self._timer = self._loop.call_later(MEASURE_EVERY_S, self._measure_all)

    def _measure_all(self) -> None:
        assert self._loop is not None
        assert self._epoll is not None
        received = [descriptor for descriptor, _ in self._epoll.poll(0, len(self._peers) + 1)]
        changed = {*received, *self._whole, *self._large}
        whole, self._whole = self._whole, set()
        now_s = self._now_s()
        for descriptor in changed:
            self._measure(descriptor, now_s, is_whole=descriptor in whole)
        if changed:
            factor = BACKLOG_FACTOR if self._large and self._is_behind() else 1
            self._drop_late(factor * self._most_bytes)
            self._drop_largest(factor * self._most_total_bytes)
            delay_s = CLOSE_MEASURE_EVERY_S if self._late else MEASURE_EVERY_S
            self._timer = self._loop.call_later(delay_s, self._measure_all)
        else:
            self._timer = None
            self._loop.add_reader(self._epoll.fileno(), self._wake)

    def _measure(self, descriptor: int, now_s: float, *, is_whole: bool) -> None:
        peer = self._peers.get(descriptor)
        received = None if peer is None else _bytes_received(descriptor)
        if peer is None or received is None:
            return
        if is_whole:
            peer.base_bytes = received
            peer.whole_at_s = now_s
        peer.unfinished_bytes = max(0, received - peer.base_bytes)
        if peer.unfinished_bytes > COUNTED_FROM_BYTES:
            self._large[descriptor] = peer
        else:
            self._large.pop(descriptor, None)

    def _drop_late(self, most_bytes: int) -> None:
        """Drop a peer that is over the limit twice in a row; once, the gateway may be slow."""
        before, self._late = self._late, set()
        for descriptor, peer in list(self._large.items()):
            if peer.unfinished_bytes <= most_bytes:
                continue
            if descriptor in before:
                self.drop(descriptor, "unfinished_message")
            else:
                self._late.add(descriptor)

    def _drop_largest(self, most_bytes: int) -> None:
        """Drop the peers with the most unfinished bytes, until the others are within the total."""
        total = sum(peer.unfinished_bytes for peer in self._large.values())
        while total > most_bytes:
            descriptor = max(self._large, key=lambda one: self._large[one].unfinished_bytes)
            unfinished = self._large[descriptor].unfinished_bytes
            total -= unfinished
            is_alone = unfinished > self._most_bytes
            self.drop(descriptor, "unfinished_message" if is_alone else "unfinished_messages")
            self.closed(descriptor)

    def _drop_silent(self) -> None:
        assert self._loop is not None
        self._silence_timer = self._loop.call_later(SILENCE_CHECK_EVERY_S, self._drop_silent)
        now_s = self._now_s()
        if self._epoll is None:
            whole, self._whole = self._whole, set()
            for descriptor in whole & self._peers.keys():
                self._peers[descriptor].whole_at_s = now_s
        before_s = now_s - self._most_silence_s
        for descriptor, peer in list(self._peers.items()):
            if peer.whole_at_s < before_s and descriptor not in self._whole:
                self.drop(descriptor, "silent")


# --- descriptors of others ----------------------------------------------------------------------


@contextmanager
def _borrowed(descriptor: int) -> Iterator[socket.socket]:
    """A socket object on a descriptor that stays another's to close."""
    # With all three given, nothing is asked of the descriptor; the addresses of IPv6 are the
    # longest, and those of IPv4 are read as well.
    borrowed = socket.socket(
        socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=descriptor
    )
    try:
        yield borrowed
    finally:
        borrowed.detach()


def _bytes_received(descriptor: int) -> int | None:
    size = BYTES_RECEIVED_AT + BYTES_RECEIVED.size
    try:
        with _borrowed(descriptor) as borrowed:
            info = borrowed.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, size)
    except OSError:
        return None
    if len(info) < size:
        return None  # a kernel from before 4.1
    received: int = BYTES_RECEIVED.unpack_from(info, BYTES_RECEIVED_AT)[0]
    return received


def _ends(borrowed: socket.socket) -> tuple[int, str] | None:
    """The local port and the peer's address; None: it is no connection over TCP."""
    here, there = borrowed.getsockname(), borrowed.getpeername()
    if not isinstance(here, tuple) or not isinstance(there, tuple):
        return None
    return int(here[1]), f"{there[0]}:{there[1]}"


def _peer_address(descriptor: int, port: int) -> str | None:
    """The address of the peer; None: this is, by now, no connection to that port."""
    try:
        with _borrowed(descriptor) as borrowed:
            ends = _ends(borrowed)
    except OSError:
        return None
    return ends[1] if ends is not None and ends[0] == port else None


def _shut_down(descriptor: int, port: int, address: str) -> bool:
    try:
        with _borrowed(descriptor) as borrowed:
            if _ends(borrowed) != (port, address):
                return False
            # The peer is reset: a flood that is only half closed would wait for us to read on.
            borrowed.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            borrowed.shutdown(socket.SHUT_RDWR)
    except OSError:
        return False
    return True
