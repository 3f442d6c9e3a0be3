"""The bytes that each connection has sent beyond its whole messages, and their limits.

Theory of operation. libzmq limits one frame, and delivers a message when its last frame is there.
Frames that announce another one therefore pile up inside libzmq, and no option of it limits them.
The kernel knows how many bytes a connection has received (TCP_INFO), and libzmq names the
descriptor of every connection and of every delivered message. The difference of both is what the
connection has left unfinished, or what waits to be read. A peer with too much of it is dropped;
libzmq then frees what it held.

Only reading tells whole messages that wait from unfinished ones. So the limits are higher while the
gateway is behind with reading. They are not lifted: what waits takes memory as well. And nothing is
forgiven: what was no whole message is still counted when everything has been read.

Small frames take far more memory than bytes. So the memory of the process is watched as well, while
messages are unfinished; and none may stay unfinished for long.

An own epoll reports which connections have received something, so that silent ones cost little.
It is edge-triggered, and watches for space to write as well: the kernel reports an edge only while
one of the watched conditions holds, and libzmq may have read everything by then. A peer that does
not read leaves no such space, and is measured every time. A sweep over all peers measures those
that were missed.
"""

import asyncio
import select
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress

import structlog

from rota.gateways.throttled_log import ThrottledLog
from rota.gateways.zeromq.borrowed_socket import IS_AVAILABLE, BorrowedSocket
from rota.gateways.zeromq.memory_watch import FLOOR_BYTES, MemoryWatch
from rota.gateways.zeromq.peer_account import COUNTED_FROM_BYTES, PeerAccount

log = structlog.get_logger("rota.zeromq")

MEASURE_EVERY_S = 0.02  # while something is received
CLOSE_MEASURE_EVERY_S = 0.005  # the same while a peer is over its limit, or memory is close to it
SWEEP_EVERY_S = 1.0  # over all peers
BACKLOG_FACTOR = 4  # by this, limits are higher while whole messages wait for us
BACKLOG_S = 1.0  # since its last whole message, in which a peer's own messages seem to wait


class MeteredPeer(PeerAccount):
    """One connection."""

    __slots__ = ("address", "socket")

    def __init__(self, socket: BorrowedSocket, address: str, now_s: float) -> None:
        super().__init__(now_s)
        self.socket = socket
        self.address = address  # of the peer


class ByteMeter:
    """Drops peers that send without end, that do not finish a message, or that send nothing."""

    def __init__(
        self,
        dropped: Counter[str],
        throttled_log: ThrottledLog,
        *,
        most_bytes: int,
        most_total_bytes: int,
        most_growth_bytes: int,
        most_message_s: float,
        most_silence_s: float,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Limit the unfinished bytes of one connection and of all, their memory, and the times.

        `most_growth_bytes`: of the memory, beyond the unfinished bytes; `most_message_s`: from the
        beginning of a message to its end; `most_silence_s`: between the ends of two messages. Pings
        are no part of messages.
        """
        self._dropped = dropped
        self._throttled_log = throttled_log
        self._memory_watch = MemoryWatch(most_growth_bytes=most_growth_bytes, now_s=now_s)
        self._most_bytes = most_bytes
        self._most_total_bytes = most_total_bytes
        self._most_message_s = most_message_s
        self._most_silence_s = most_silence_s
        self._now_s = now_s
        self._peers: dict[int, MeteredPeer] = {}
        self._whole: set[int] = set()  # descriptors with a message since the last measurement
        self._large: dict[int, MeteredPeer] = {}  # those with more unfinished than is usual
        self._late: set[int] = set()  # descriptors over their limit at the last measurement
        self._deaf: set[int] = set()  # descriptors of peers that do not read
        self._caught_up_s = now_s()  # when no whole message waited
        self._port = 0
        self._is_behind: Callable[[], bool] = bool
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._epoll = select.epoll() if IS_AVAILABLE else None

    def start(self, port: int, is_behind: Callable[[], bool]) -> None:
        """Watch connections to this port; `is_behind`: whole messages wait to be read."""
        self._port = port
        self._is_behind = is_behind
        self._loop = asyncio.get_running_loop()
        self._sweep_timer = self._loop.call_later(SWEEP_EVERY_S, self._sweep)
        if self._epoll is None:
            log.warning("unfinished_messages_unlimited", reason=f"no byte counts on {sys.platform}")
        else:
            self._loop.add_reader(self._epoll.fileno(), self._wake)

    def close(self) -> None:
        for timer in (self._timer, self._sweep_timer):
            if timer is not None:
                timer.cancel()
        if self._epoll is not None:
            if self._loop is not None:
                self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
        self._memory_watch.close()
        for descriptor in list(self._peers):
            self.closed(descriptor)

    # --- what connections do --------------------------------------------------------------------

    def opened(self, descriptor: int) -> None:
        self.closed(descriptor)
        try:
            borrowed = BorrowedSocket(descriptor)
        except OSError:
            return  # gone already
        address = borrowed.peer_address(self._port)
        if address is None:
            return  # gone already, and its number is in use for something else
        self._peers[descriptor] = MeteredPeer(borrowed, address, self._now_s())
        if self._epoll is not None:
            edges = select.EPOLLIN | select.EPOLLOUT | select.EPOLLET
            with suppress(OSError):  # gone in this moment: libzmq will report it
                self._epoll.register(descriptor, edges)

    def closed(self, descriptor: int) -> None:
        peer = self._peers.pop(descriptor, None)
        if peer is not None:
            peer.socket.detach()
        self._large.pop(descriptor, None)
        for some in (self._whole, self._late, self._deaf):
            some.discard(descriptor)

    def note_message(self, descriptor: int, routing_id: bytes, length: int) -> None:
        """A whole message of this length on the wire was read."""
        peer = self._peers.get(descriptor)
        if peer is not None and peer.deliver(routing_id, length):
            self._whole.add(descriptor)

    def drop(self, descriptor: int, reason: str) -> None:
        """End a connection; libzmq then closes its descriptor and reports it."""
        peer = self._peers.get(descriptor)
        if peer is None or peer.socket.peer_address(self._port) != peer.address:
            return
        peer.socket.reset()
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
        self._timer = self._loop.call_later(MEASURE_EVERY_S, self._measure_active)

    def _measure_active(self) -> None:
        assert self._loop is not None
        assert self._epoll is not None
        active = {descriptor for descriptor, _ in self._epoll.poll(0, len(self._peers) + 1)}
        active.update(self._whole, self._large, self._deaf)
        if active:
            self._measure(active)
            is_close = self._late or self._memory_watch.is_close
            delay_s = CLOSE_MEASURE_EVERY_S if is_close else MEASURE_EVERY_S
            self._timer = self._loop.call_later(delay_s, self._measure_active)
        else:
            self._timer = None
            self._loop.add_reader(self._epoll.fileno(), self._wake)

    def _sweep(self) -> None:
        """Measure all peers, and drop those that have sent no message for long."""
        assert self._loop is not None
        self._sweep_timer = self._loop.call_later(SWEEP_EVERY_S, self._sweep)
        self._measure(list(self._peers))
        if self._timer is None and (self._large or self._deaf):
            self._wake()
        before_s = self._now_s() - self._most_silence_s
        for descriptor, peer in list(self._peers.items()):
            if peer.whole_at_s < before_s:
                self.drop(descriptor, "silent")

    def _measure(self, descriptors: Iterable[int]) -> None:
        """Bring accounts up to date, and drop the peers that are over the limits."""
        now_s, caught_up_s = self._now_s(), self._caught_up_s
        peers, large, deaf = self._peers, self._large, self._deaf
        self._whole.clear()
        for descriptor in descriptors:
            peer = peers.get(descriptor)
            if peer is None:
                continue
            received, unsent = peer.socket.counts()
            peer.measure(received, now_s, caught_up_s)
            if peer.unfinished_bytes > COUNTED_FROM_BYTES:
                large[descriptor] = peer
            elif descriptor in large:
                del large[descriptor]
            if unsent:
                deaf.add(descriptor)
            elif descriptor in deaf:
                deaf.remove(descriptor)
        self._drop_excess(now_s)

    def _drop_excess(self, now_s: float) -> None:
        is_behind = self._is_behind()
        if not is_behind:
            self._caught_up_s = now_s
        if self._large:
            self._drop_late(now_s, BACKLOG_FACTOR if is_behind else 1)
            self._drop_largest(self._most_total_bytes * (BACKLOG_FACTOR if is_behind else 1))
        else:
            self._late.clear()
        if self._memory_watch.has_outgrown(self._total_bytes()):
            self._drop_largest(FLOOR_BYTES, "memory_growth")

    def _drop_late(self, now_s: float, factor: int) -> None:
        """Drop a peer that is over a limit twice in a row; once, the gateway may be slow."""
        before, self._late = self._late, set()
        for descriptor, peer in list(self._large.items()):
            reason = self._excess(peer, now_s, factor)
            if reason is not None and descriptor in before:
                self.drop(descriptor, reason)
            elif reason is not None:
                self._late.add(descriptor)

    def _excess(self, peer: MeteredPeer, now_s: float, factor: int) -> str | None:
        """The reason to drop a peer, by limits that are higher by a factor; None: there is none."""
        most_bytes = self._most_bytes * factor
        if peer.unfinished_bytes > most_bytes:
            if factor > 1 and now_s - peer.whole_at_s < BACKLOG_S:
                return None  # the limit for all peers holds
            reason = "unfinished_message"
        elif now_s - peer.begun_s > self._most_message_s * factor:
            most_bytes = COUNTED_FROM_BYTES
            reason = "message_timeout"
        else:
            return None
        # Whole messages may be among what libzmq has not read yet.
        is_read = peer.unfinished_bytes - peer.socket.unread_bytes() > most_bytes
        return reason if is_read else None

    def _drop_largest(self, most_bytes: int, reason: str = "unfinished_messages") -> None:
        """Drop the peers with the most unfinished bytes, until the others are within the total."""
        total = self._total_bytes()
        while total > most_bytes:
            descriptor = max(self._large, key=lambda one: self._large[one].unfinished_bytes)
            unfinished = self._large[descriptor].unfinished_bytes
            total -= unfinished
            is_alone = unfinished > self._most_bytes
            self.drop(descriptor, "unfinished_message" if is_alone else reason)
            self.closed(descriptor)

    def _total_bytes(self) -> int:
        return sum(peer.unfinished_bytes for peer in self._large.values())
