"""An open link: frames in both directions, with flow control, a keepalive and an end.

All frames that are sent in one turn of the event loop travel in one message. An end that has
nothing to send sends an empty message now and then, and drops a peer that it has not heard of for
longer. The leader reads nothing more from a follower that does not read its replies. What the
leader still has to send to it (commits are for all) is bounded: beyond that, the link is dropped.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import structlog

from rota.engine.metrics.links import LinkMetrics, LinkTraffic
from rota.engine.replicas.link.codec import (
    MAX_FRAMES,
    MAX_MESSAGE_BYTES,
    FrameCodec,
    GarbledMessage,
    join_frames,
)
from rota.engine.replicas.link.frames import OnLost
from rota.gateways.peers.messages import EMPTY, MessageReader, MessageTooLong, with_length

log = structlog.get_logger("rota.peers")

GATHERED_BYTES = 1024 * 1024  # of frames that are gathered into one message
FULL_BYTES = 4 * 1024 * 1024  # of unsent frames, from which the leader reads no more commands
MAX_BACKLOG_BYTES = 2 * MAX_MESSAGE_BYTES  # of unsent frames; beyond, the link is dropped
KEEPALIVE_S = 1.0  # between two signs of life
SILENCE_S = 5.0  # without one, before a peer is dropped
CLOSE_S = 2.0  # for a peer to read what is left

Sent = TypeVar("Sent")
Received = TypeVar("Received")


@dataclass(frozen=True, slots=True)
class LinkLimits:
    """The limits of a link. Tests use smaller ones."""

    message_bytes: int = MAX_MESSAGE_BYTES
    full_bytes: int = FULL_BYTES
    backlog_bytes: int = MAX_BACKLOG_BYTES
    keepalive_s: float = KEEPALIVE_S
    silence_s: float = SILENCE_S


DEFAULT_LIMITS = LinkLimits()


class PeerLink(asyncio.Protocol, Generic[Sent, Received]):
    """One end of an open link."""

    def __init__(
        self,
        transport: asyncio.Transport,
        codec: FrameCodec[Sent, Received],
        peer: str,
        *,
        stops_reading_when_full: bool,
        link_limits: LinkLimits = DEFAULT_LIMITS,
        links: LinkMetrics | None = None,
    ) -> None:
        """`stops_reading_when_full`: only one end may, or both could wait for each other."""
        self.peer = peer
        self.traffic = LinkTraffic()
        self._links = links or LinkMetrics()
        self._transport = transport
        self._codec = codec
        self._stops_reading = stops_reading_when_full
        self._limits = link_limits
        self._loop = asyncio.get_running_loop()
        self._reader = MessageReader(link_limits.message_bytes)
        self._outbox: list[bytes] = []  # encoded frames of this turn of the loop
        self._outbox_bytes = 0
        self._unsent_bytes = 0  # that the transport had when the first of those frames came
        self._is_full = False
        self._left_bytes = 0  # had left at the last check of a full link
        self._is_ending = False
        self._is_lost = False
        self._error: Exception | None = None
        self._on_frame: Callable[[Received], None]
        self._on_lost: OnLost
        self._checked_at_s = self._heard_at_s = self._loop.time()
        self._has_sent = False  # since the last check
        self._timer: asyncio.TimerHandle | None = None

    def start(self, on_frame: Callable[[Received], None], on_lost: OnLost, data: bytes) -> None:
        """Take the connection over; `data` came behind the handshake."""
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._links.begin(self.traffic)
        self._transport.set_protocol(self)
        self._transport.set_write_buffer_limits(high=self._limits.full_bytes)
        self._timer = self._loop.call_later(self._limits.keepalive_s, self._check)
        self._transport.resume_reading()
        if data:
            self.data_received(data)

    # --- sending --------------------------------------------------------------------------------

    @property
    def backlog(self) -> int:
        if self._is_lost:
            return 0
        return self._outbox_bytes + self._transport.get_write_buffer_size()

    def send(self, frame: Sent) -> None:
        if self._is_ending:
            return
        encoded = self._codec.encode(frame)
        if encoded is not None:
            self._put(encoded)

    def _put(self, encoded: bytes) -> None:
        if not self._outbox:
            self._loop.call_soon(self._flush)
            # Asked once in a turn of the loop: in the meantime nothing is written.
            self._unsent_bytes = self._transport.get_write_buffer_size()
        self._outbox.append(encoded)
        self._outbox_bytes += len(encoded)
        if self._unsent_bytes + self._outbox_bytes > self._limits.backlog_bytes:
            self._drop(ConnectionError(f"{self.peer} does not read what it is sent"))

    def _flush(self) -> None:
        frames, self._outbox, self._outbox_bytes = self._outbox, [], 0
        if self._is_ending or not frames:
            return
        for gathered in _gathered(frames):
            self._write(with_length(join_frames(gathered)))
            self.traffic.frames_out += len(gathered)

    def _write(self, message: bytes) -> None:
        self._has_sent = True
        self.traffic.messages_out += 1
        self.traffic.bytes_out += len(message)
        self._transport.write(message)

    def pause_writing(self) -> None:
        self._is_full = True
        if self._stops_reading:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._is_full = False
        if self._stops_reading and not self._is_ending:
            self._heard_at_s = self._loop.time()
            self._transport.resume_reading()

    # --- receiving ------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self._heard_at_s = self._loop.time()
        self.traffic.bytes_in += len(data)
        self._reader.feed(data)
        try:
            while not self._is_ending and (message := self._reader.take()) is not None:
                self.traffic.messages_in += 1
                if message:
                    self._take(message)
        except (GarbledMessage, MessageTooLong) as error:
            log.warning("peer_message_refused", peer=self.peer, error=str(error))
            self._drop(error)

    def _take(self, message: bytes) -> None:
        frames, answers = self._codec.decode(message)
        self.traffic.frames_in += len(frames) + len(answers)
        for answer in answers:
            self._put(answer)
        for frame in frames:
            if self._is_ending:
                return
            try:
                self._on_frame(frame)
            except Exception:
                # One frame that fails must not keep the others from their receivers.
                log.exception("peer_frame_failed", peer=self.peer, frame=type(frame).__name__)

    # --- by the clock ---------------------------------------------------------------------------

    def _check(self) -> None:
        now_s, keepalive_s = self._loop.time(), self._limits.keepalive_s
        self._timer = self._loop.call_later(keepalive_s, self._check)
        if now_s - self._checked_at_s > 2 * keepalive_s:
            self._heard_at_s = now_s  # this process has not read for a while; what came waits
        self._checked_at_s = now_s
        if self._is_full and self._stops_reading:
            left_bytes = self.traffic.bytes_out - self._transport.get_write_buffer_size()
            if left_bytes > self._left_bytes:
                self._heard_at_s = now_s  # nothing is read from the peer, but the peer reads
            self._left_bytes = left_bytes
        if now_s - self._heard_at_s > self._limits.silence_s:
            self._drop(TimeoutError(f"nothing heard of {self.peer} for {self._limits.silence_s} s"))
        elif not self._has_sent and not self._is_ending:
            self._write(EMPTY)
        self._has_sent = False

    # --- ending ---------------------------------------------------------------------------------

    def close(self) -> None:
        if self._is_ending:
            return
        self._flush()
        self._is_ending = True
        self._transport.close()
        self._loop.call_later(CLOSE_S, self.abort)

    def shutdown(self) -> None:
        """End the link because the server stops."""
        self.close()

    def abort(self) -> None:
        if not self._is_lost:
            self._transport.abort()

    def _drop(self, error: Exception) -> None:
        if not self._is_ending:
            self._is_ending = True
            self._error = error
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_ending = self._is_lost = True
        if self._timer is not None:
            self._timer.cancel()
        self._links.end(self.traffic)
        self._on_lost(self._error or exc)


def _gathered(frames: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Cut frames into messages of a moderate size; a larger frame has a message of its own."""
    start = size = 0
    for number, frame in enumerate(frames):
        if number > start and (size + len(frame) > GATHERED_BYTES or number - start == MAX_FRAMES):
            yield frames[start:number]
            start, size = number, 0
        size += len(frame)
    yield frames[start:]
