"""Two ends of a link without sockets: every frame is encoded and decoded, one message a turn."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from rota.engine.replicas.link.codec import FollowerCodec, FrameCodec, LeaderCodec, join_frames
from rota.engine.replicas.link.frames import FollowerFrame, LeaderFrame, OnLost

Sent = TypeVar("Sent")
Received = TypeVar("Received")


class MemoryEnd(Generic[Sent, Received]):
    """One end. What it is sent before it has started waits; so does everything while it is held."""

    def __init__(self, codec: FrameCodec[Sent, Received]) -> None:
        self.other: MemoryEnd[Received, Sent]
        self.is_held = False  # what it sends stays in its backlog
        self.messages = 0  # that it has sent
        self._codec = codec
        self._loop = asyncio.get_running_loop()
        self._outbox: list[bytes] = []
        self._inbox: list[bytes] = []
        self._on_frame: Callable[[Received], None] | None = None
        self._on_lost: OnLost | None = None
        self._is_over = False
        self._is_told = False

    def start(self, on_frame: Callable[[Received], None], on_lost: OnLost) -> None:
        self._on_frame, self._on_lost = on_frame, on_lost
        inbox, self._inbox = self._inbox, []
        for message in inbox:
            self._take(message)

    @property
    def backlog(self) -> int:
        return sum(map(len, self._outbox))

    def send(self, frame: Sent) -> None:
        if self._is_over:
            return
        encoded = self._codec.encode(frame)
        if encoded is not None:
            self._put(encoded)

    def _put(self, encoded: bytes) -> None:
        if not self._outbox:
            self._loop.call_soon(self.flush)
        self._outbox.append(encoded)

    def flush(self) -> None:
        if self.is_held or not self._outbox:
            return
        frames, self._outbox = self._outbox, []
        self.messages += 1
        if not self.other._is_over:
            self.other._take(join_frames(frames))

    def _take(self, message: bytes) -> None:
        if self._on_frame is None:
            self._inbox.append(message)
            return
        frames, answers = self._codec.decode(message)
        for answer in answers:
            self._put(answer)
        for frame in frames:
            if not self._is_over:
                self._on_frame(frame)

    def close(self) -> None:
        """Close both ends in good order."""
        self.flush()
        self.cut(None)

    def cut(self, error: Exception | None) -> None:
        """Lose the connection, and with it what waits in the backlogs."""
        for end in (self, self.other):
            if not end._is_over:
                end._is_over = True
                end._outbox = []
                self._loop.call_soon(end._tell, error)

    def _tell(self, error: Exception | None) -> None:
        if self._on_lost is not None and not self._is_told:
            self._is_told = True
            self._on_lost(error)


def memory_pair() -> tuple[
    MemoryEnd[FollowerFrame, LeaderFrame], MemoryEnd[LeaderFrame, FollowerFrame]
]:
    """The end of a follower and the end of its leader."""
    follower = MemoryEnd(FollowerCodec())
    leader = MemoryEnd(LeaderCodec())
    follower.other, leader.other = leader, follower
    return follower, leader
