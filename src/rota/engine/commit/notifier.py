"""Resolves every caller of a committed batch, and notifies everything that waits for a commit."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import MappingProxyType

import structlog

from rota.core.decisions import TellCancelled
from rota.core.ids import TaskId
from rota.core.workflow.commands import RunShown
from rota.engine.commit.request import Delivery, EndNotice, QueuedCommand, ReplyCallback
from rota.engine.events.stream import EventStream
from rota.engine.kv.lock_waiters import LockWaiters
from rota.engine.shards.assignments import AssignmentWaiters
from rota.engine.waiters import Waiters

log = structlog.get_logger("rota.engine")

SessionsCallback = Callable[[AbstractSet[str]], None]
PresentSessions = Callable[[], Iterable[str]]
CancellationsCallback = Callable[[Sequence[TellCancelled]], None]
Reply = tuple[ReplyCallback, object]


class Notifier:
    """All waiters of one coordinator, except lease calls, which wait in the writer's waitlist."""

    def __init__(self, events: EventStream) -> None:
        self.events = events
        self.lines: Waiters[TaskId, TaskId] = Waiters()  # for log lines
        self.ends: Waiters[TaskId, EndNotice] = Waiters()
        self.assignments = AssignmentWaiters()
        self.lock_waiters = LockWaiters()
        self._sessions: list[tuple[SessionsCallback, PresentSessions]] = []
        self._cancellations: list[CancellationsCallback] = []

    def watch_sessions(
        self, callback: SessionsCallback, present: PresentSessions
    ) -> Callable[[], None]:
        entry = callback, present
        self._sessions.append(entry)
        return lambda: self._sessions.remove(entry)

    def watch_cancellations(self, callback: CancellationsCallback) -> Callable[[], None]:
        self._cancellations.append(callback)
        return lambda: self._cancellations.remove(callback)

    def notify(self, delivery: Delivery) -> None:
        """Notify all waiters of a commit; runs on the loop, after the commit's callers resolve."""
        self.wake(delivery.ended, delivery.ended_runs)
        if delivery.logged:
            self._wake_readers(delivery.logged)
        if delivery.pushes:
            self.assignments.push(delivery.pushes)
        if delivery.events:
            self.events.publish(delivery.events)
        if delivery.granted_locks:
            self.lock_waiters.call(delivery.granted_locks)
        if delivery.sessions:
            self.tell_sessions(delivery.sessions)
        if delivery.cancelled:
            for callback in self._cancellations:
                callback(delivery.cancelled)

    def close(self) -> None:
        """End all waits: no further commit follows."""
        self.ends.close()
        self.lines.close()
        self.assignments.close()
        self.events.close()
        self.lock_waiters.close()

    @property
    def awaits_ends(self) -> bool:
        """Whether a caller has to know which tasks and runs have ended."""
        return len(self.ends) > 0 or len(self.lines) > 0

    @property
    def sessions(self) -> list[str]:
        """The sessions that are open on this coordinator."""
        return [session for _, present in self._sessions for session in present()]

    def wake(
        self, ended: Iterable[int], runs: Mapping[int, RunShown] = MappingProxyType({})
    ) -> None:
        """Resume the callers that wait for the end of these tasks and runs."""
        if len(self.ends):
            for one in ended:
                self.ends.resolve(TaskId(one), EndNotice(one, runs.get(one)))
        self._wake_readers(ended)

    def wake_all_readers(self) -> None:
        """Resume every caller that waits for log lines: it looks again."""
        self.lines.close()

    def _wake_readers(self, tasks: Iterable[int]) -> None:
        """Resume the callers that wait for log lines of these tasks."""
        if len(self.lines):
            for one in tasks:
                self.lines.resolve(TaskId(one), TaskId(one))

    def tell_sessions(self, sessions: AbstractSet[str]) -> None:
        for callback, _ in self._sessions:
            callback(sessions)


def resolve_all(
    answers: Sequence[tuple[QueuedCommand, object]],
    *,
    take_back: Callable[[QueuedCommand, object], None],
) -> Sequence[Reply]:
    """Resolve each caller with its outcome; take back the outcome of a caller that has gone.

    Returns the replies by callback, which `reply_soon` gives.
    """
    called: list[Reply] = []
    for entry, outcome in answers:
        if entry.is_of_follower and entry.on_reply is not None:
            # At once, so that the message about this commit also has its replies.
            _give([(entry.on_reply, outcome)])
        elif entry.on_reply is not None:
            called.append((entry.on_reply, outcome))
        elif entry.future.done():
            take_back(entry, outcome)
        else:
            if isinstance(outcome, Exception):
                entry.future.set_exception(outcome)
            else:
                entry.future.set_result(outcome)
            if entry.on_resolved is not None:
                _call(entry.on_resolved)
    return called


def reply_soon(replies: Sequence[Reply]) -> None:
    """Give replies in the next turn of the loop: messages of earlier commits come first."""
    if replies:
        asyncio.get_running_loop().call_soon(_give, replies)


def _call(on_resolved: Callable[[], None]) -> None:
    try:
        on_resolved()
    except Exception:
        log.exception("reply_callback_failed")


def _give(answers: Iterable[Reply]) -> None:
    for answer, outcome in answers:
        try:
            answer(outcome)
        except Exception:
            # One failed callback must not keep the other callers from their replies.
            log.exception("reply_failed")
