"""The tasks that sessions submitted, and undelivered notifications of their ends."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rota.core.ids import TaskId
from rota.core.sessions import SessionNotification
from rota.store.database import Transaction


class SessionTask(NamedTuple):
    """A task that a session submitted."""

    task_id: TaskId
    session_id: str


class SessionStore:
    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def has_tasks(self) -> bool:
        return bool(self._tx.value("sessions.has_tasks"))

    def last_notification(self) -> int:
        """The highest number of an undelivered notification."""
        return int(self._tx.value("sessions.last_notification"))

    def add(self, submitted: Iterable[tuple[TaskId, str]]) -> None:
        """Notify sessions of the ends of tasks; each pair is a task and its session."""
        self._tx.pipeline_many("sessions.add", SessionTask._fields, submitted)

    def of_tasks(self, ids: list[int]) -> list[SessionTask]:
        return self._tx.records(SessionTask, "sessions.of_tasks", ids=ids)

    def add_notifications(self, ends: Sequence[SessionNotification], *, most: int) -> int:
        """Keep the `most` newest notifications of each session; returns how many are dropped."""
        rows = [(one.seq, one.task_id, one.session_id) for one in ends]
        names = ("seq", "task_id", "session_id")
        self._tx.pipeline_many("sessions.add_notification", names, rows)
        return sum(
            self._tx.execute("sessions.drop_oldest", session_id=session_id, kept=most)
            for session_id in sorted({one.session_id for one in ends})
        )

    def notifications(
        self, session_id: str, *, after: int, limit: int
    ) -> list[SessionNotification]:
        """The notifications of a session, the oldest first."""
        return self._tx.records(
            SessionNotification,
            "sessions.notifications",
            session_id=session_id,
            after=after,
            limit=limit,
        )

    def drop_notifications(self, delivered: Iterable[SessionNotification]) -> None:
        rows = [(one.task_id, one.session_id, one.seq) for one in delivered]
        names = ("task_id", "session_id", "seq")
        self._tx.pipeline_many("sessions.drop_notification", names, rows)

    def drop_tasks(self, ids: list[int]) -> None:
        """Drop tasks that are pruned."""
        self._tx.pipeline("sessions.drop_tasks", ids=ids)
