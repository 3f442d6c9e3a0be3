"""The leader's side of its links: executes the commands of followers, and tells them of commits."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import structlog
from msgspec import Raw

from rota.core.replies import Granted
from rota.engine.commit.request import Delivery, QueuedCommand, returned_by
from rota.engine.dispatch.lease_rows import GrantedRows, divided, granted_rows
from rota.engine.replicas.link.frames import (
    NO_IDS,
    Abandon,
    Committed,
    FollowerFrame,
    Forward,
    LeaderFrame,
    OnFollowerFrame,
    OnLost,
    PeerConnection,
    Refused,
    Replied,
    Resigned,
    Resigning,
    encode_ids,
)
from rota.errors import Internal, NotLeader, RotaError, TooLarge

log = structlog.get_logger("rota.replicas")

ToFollower = PeerConnection[LeaderFrame]
Enqueue = Callable[..., QueuedCommand]

FAILED = "the leader failed; see its log"
LAST_FORWARDS_S = 0.5  # how long a leader that resigns waits for what its followers have sent


class FollowerSession:
    """One follower that is connected to this leader."""

    def __init__(self, name: str, connection: ToFollower, enqueue: Enqueue) -> None:
        """`enqueue` queues a command with its reply callback, as for a caller of this leader."""
        self.name = name
        self._connection = connection
        self._enqueue = enqueue
        self._waiting: dict[int, QueuedCommand] = {}  # lease calls, by the follower's number
        self._is_resigning = False
        self.is_over = asyncio.Event()  # nothing more is to come from the follower

    def receive(self, frame: FollowerFrame) -> None:
        if isinstance(frame, Forward):  # nearly always
            self._execute(frame)
            return
        match frame:
            case Abandon(number=number):
                entry = self._waiting.get(number)
                if entry is not None and not entry.future.done():
                    entry.is_abandoned = True
                    entry.future.set_result(Granted([]))
                    self._resolved(number, entry)
            case Resigned():
                self.is_over.set()

    def send(self, frame: LeaderFrame) -> None:
        self._connection.send(frame)

    def resign(self) -> None:
        """Take no more commands; the follower holds them for the next leader."""
        self._is_resigning = True
        self._connection.send(Resigning())

    def end(self) -> None:
        """Note that the follower is gone: the lease calls of its callers no longer wait here."""
        self._is_resigning = True
        self.is_over.set()
        for entry in self._waiting.values():
            entry.is_abandoned = True
            entry.future.cancel()
        self._waiting.clear()

    def close(self) -> None:
        self.end()
        self._connection.close()

    def _execute(self, frame: Forward) -> None:
        number = frame.number
        if self._is_resigning:
            self._connection.send(Refused(number, NotLeader()))
            return
        try:
            if frame.can_wait:
                entry = self._enqueue(frame.command, can_wait=True)
                self._waiting[number] = entry
                entry.on_resolved = lambda: self._resolved(
                    number, entry, as_rows=frame.is_subscription
                )
            else:
                entry = self._enqueue(
                    frame.command, on_reply=lambda outcome: self._reply(number, outcome)
                )
            entry.is_of_follower = True
        except RotaError as error:
            self._connection.send(Refused(number, error))

    def _resolved(self, number: int, entry: QueuedCommand, *, as_rows: bool = False) -> None:
        if self._waiting.pop(number, None) is not None:
            outcome = entry.future.exception() or entry.future.result()
            if as_rows and isinstance(outcome, Granted) and outcome.leases:
                outcome = self._as_rows(entry, outcome)
            self._reply(number, outcome)

    def _as_rows(self, entry: QueuedCommand, granted: Granted) -> GrantedRows:
        """Encode the leases of a streaming worker; return those that are too much at once.

        So the reply fits into a message, however many slots the worker has.
        """
        sent, rest = divided(granted.leases)
        for command in returned_by(entry, Granted([*rest])):
            with contextlib.suppress(RotaError):  # then the leases expire by themselves
                self._enqueue(command, on_reply=lambda _: None)
        return granted_rows(sent)

    def _reply(self, number: int, outcome: Any) -> None:
        if isinstance(outcome, Exception):
            shown = outcome if isinstance(outcome, RotaError) else Internal(FAILED)
            self._connection.send(Refused(number, shown))
            return
        try:
            self._connection.send(Replied(number, outcome))
        except TooLarge as error:
            # The worker does not list tasks that it never saw, so they return to their queue.
            log.warning("reply_too_large", follower=self.name, problem=error.detail)
            self._connection.send(Refused(number, error))


class FollowerSessions:
    """All followers that are connected to this leader."""

    def __init__(self, enqueue: Enqueue) -> None:
        self._enqueue = enqueue
        self._sessions: dict[FollowerSession, None] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def names(self) -> list[str]:
        return sorted(one.name for one in self._sessions)

    def accept(self, name: str, connection: ToFollower) -> tuple[OnFollowerFrame, OnLost]:
        """Serve a follower; return the receivers of its frames and of the loss of its link."""
        session = FollowerSession(name, connection, self._enqueue)
        self._sessions[session] = None
        log.info("follower_connected", follower=name)

        def lost(error: Exception | None) -> None:
            if self._sessions.pop(session, session) is None:
                session.end()
                log.info("follower_disconnected", follower=name, problem=str(error or ""))

        return session.receive, lost

    def tell(self, delivery: Delivery, *, now_ms: int) -> None:
        """Send the notifications of a commit to every follower."""
        if self._sessions and delivery.last_seq:
            frame = committed(delivery, now_ms=now_ms)
            for session in self._sessions:
                session.send(frame)

    def resign(self) -> None:
        for session in self._sessions:
            session.resign()

    async def wait_until_resigned(self) -> None:
        """Wait until every follower knows, so that each command is executed or returned to it."""
        try:
            async with asyncio.timeout(LAST_FORWARDS_S):
                for session in list(self._sessions):
                    await session.is_over.wait()
        except TimeoutError:
            log.warning("resignation_not_acknowledged", followers=self.names)

    def close(self) -> None:
        sessions, self._sessions = self._sessions, {}
        for session in sessions:
            session.close()


def committed(delivery: Delivery, *, now_ms: int) -> Committed:
    submitted: dict[str, int] = {}
    finished: dict[tuple[str, str], int] = {}
    for counts in delivery.counts:
        for queue, count in counts.submitted.items():
            submitted[queue] = submitted.get(queue, 0) + count
        for place, count in counts.finished.items():
            finished[place] = finished.get(place, 0) + count
    return Committed(
        ended=Raw(encode_ids(delivery.ended)) if delivery.ended else NO_IDS,
        logged=delivery.logged,
        pushes=delivery.pushes,
        sessions=sorted(delivery.sessions),
        cancelled=delivery.cancelled,
        granted_locks=delivery.granted_locks,
        last_seq=delivery.last_seq,
        submitted=submitted,
        finished=[(queue, state, count) for (queue, state), count in finished.items()],
        now_ms=now_ms,
    )
