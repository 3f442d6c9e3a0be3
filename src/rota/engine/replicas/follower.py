"""A follower's side of the link: commands go to the leader, replies and notifications come back.

Theory of operation. To the engine the link is a writer: commands are put, and a delivery comes
back after the leader's commit. Many followers' commands share the leader's next commit. Lease calls
that wait for work wait in the leader's waitlist. When their caller gives up here, the leader is
told. It replies to every command, also to an abandoned one, so a lease that was granted at the same
moment is known here, and is returned.
"""

import asyncio
from collections.abc import Callable

import structlog

from rota.engine.commit.request import BatchCounts, Delivery, QueuedCommand
from rota.engine.replicas.link.frames import (
    Abandon,
    Committed,
    FollowerFrame,
    Forward,
    LeaderFrame,
    PeerConnection,
    Refused,
    Replied,
    Resigned,
    Resigning,
    decode_ids,
)
from rota.errors import NotLeader

log = structlog.get_logger("rota.replicas")

LAST_REPLIES_S = 2.0  # how long a stop waits for the replies to commands under way


class FollowerWriter:
    """The writer of a coordinator that follows. It belongs to the event loop."""

    def __init__(
        self,
        deliver: Callable[[Delivery], None],
        *,
        awaits_ends: Callable[[], bool],
        resolve: Callable[[QueuedCommand, object], None],
        hold: Callable[[QueuedCommand], None],
        on_resigning: Callable[[], None],
    ) -> None:
        """Deliver: takes the notifications of a commit. Resolve: gives a command its reply.

        `awaits_ends`: whether a caller waits for the end of a task or a run, or for its log lines.
        `hold` takes a command that the leader has not executed because it no longer leads.
        """
        self._deliver = deliver
        self._awaits_ends = awaits_ends
        self._give = resolve
        self._hold = hold
        self._on_resigning = on_resigning
        self._connection: PeerConnection[FollowerFrame] | None = None
        self._number = 0
        self._pending: dict[int, QueuedCommand] = {}
        self._is_drained = asyncio.Event()
        self.is_running = False
        self.weight = 0

    def connect(self, connection: PeerConnection[FollowerFrame]) -> None:
        self._connection = connection
        self.is_running = True

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Nothing to start: the link is open."""

    def put(self, entry: QueuedCommand) -> None:
        assert self._connection is not None
        self._number = number = self._number + 1
        # First, because a command that is too large for a message raises here.
        forward = Forward(number, entry.command, entry.can_wait, entry.is_subscription)
        self._connection.send(forward)
        self._pending[number] = entry
        self.weight += entry.weight
        entry.is_forwarded = True
        if entry.can_wait:
            entry.future.add_done_callback(lambda _: self._abandon(number))

    def put_alone(self, entry: QueuedCommand) -> None:
        self.put(entry)

    async def stop(self) -> None:
        """Wait for the replies to all commands, within a limit, then close the link."""
        self.is_running = False
        for number, entry in list(self._pending.items()):
            if entry.can_wait:
                self._abandon(number)
        if self._pending:
            self._is_drained.clear()
            try:
                async with asyncio.timeout(LAST_REPLIES_S):
                    await self._is_drained.wait()
            except TimeoutError:
                log.warning("replies_missing_at_stop", commands=len(self._pending))
        if self._connection is not None:
            self._connection.close()

    def lose(self) -> list[QueuedCommand]:
        """Note that the link is lost; return the commands without a reply."""
        self.is_running = False
        pending, self._pending = self._pending, {}
        self.weight = 0
        self._is_drained.set()
        return list(pending.values())

    def receive(self, frame: LeaderFrame) -> None:
        if isinstance(frame, Replied):  # nearly always
            self._resolve(frame.number, frame.reply)
            return
        match frame:
            case Refused(number=number, error=error):
                if isinstance(error, NotLeader):
                    self._return(number)
                else:
                    self._resolve(number, error)
            case Committed():
                ended = decode_ids(frame.ended) if self._awaits_ends() else []
                self._deliver(_delivery(frame, ended))
            case Resigning():
                self._on_resigning()
                if self._connection is not None:
                    self._connection.send(Resigned())

    def _resolve(self, number: int, outcome: object) -> None:
        entry = self._taken(number)
        if entry is not None:
            self._give(entry, outcome)

    def _return(self, number: int) -> None:
        entry = self._taken(number)
        if entry is not None:
            self._hold(entry)

    def _taken(self, number: int) -> QueuedCommand | None:
        entry = self._pending.pop(number, None)
        if entry is not None:
            self.weight -= entry.weight
            if not self._pending:
                self._is_drained.set()
        return entry

    def _abandon(self, number: int) -> None:
        """Tell the leader that a caller no longer waits, unless it has replied already."""
        if number in self._pending and self._connection is not None:
            self._connection.send(Abandon(number))


def _delivery(frame: Committed, ended: list[int]) -> Delivery:
    finished = {(queue, state): count for queue, state, count in frame.finished}
    return Delivery(
        ended=ended,
        logged=frame.logged,
        pushes=frame.pushes,
        sessions=set(frame.sessions),
        cancelled=frame.cancelled,
        granted_locks=frame.granted_locks,
        last_seq=frame.last_seq,
        counts=[BatchCounts(frame.submitted, finished)],
    )
