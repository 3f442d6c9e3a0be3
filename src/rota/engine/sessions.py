"""Sessions inside the batch: which session submitted a task, and which must be notified.

Tasks that no session submitted cost nothing here: the state remembers whether a session has tasks.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import structlog
from msgspec import Struct

from rota.core import limits
from rota.core.commands import SubmitTasks
from rota.core.decisions import Decision, FinishTask
from rota.core.ids import TaskId
from rota.core.replies import Standing, Stood, Submitted
from rota.core.sessions import ClearNotifications, SessionNotification
from rota.core.tasks.model import FINISHED, TaskRecord, TaskState
from rota.store.database import Transaction
from rota.store.sessions import SessionStore
from rota.store.tasks.lanes import Lanes
from rota.store.tasks.listing import Listing
from rota.store.tasks.tasks import TaskStore

log = structlog.get_logger("rota.sessions")

MOST_COUNTED_AHEAD = 1_000  # a task further back is reported as the next one behind these


class SessionState(Struct, frozen=True):
    """State of the sessions table that is cached between batches; replaced only after a commit."""

    has_tasks: bool = False  # a session waits for a task, or has waited for one
    last_news: int = 0


def loaded_sessions(tx: Transaction, before: SessionState) -> SessionState:
    """Load the state from the table; numbers never fall while a coordinator runs."""
    sessions = SessionStore(tx)
    last_news = max(before.last_news, sessions.last_notification())
    return SessionState(has_tasks=sessions.has_tasks(), last_news=last_news)


class SessionWork(Struct):
    """The effects of a batch on sessions."""

    state: SessionState
    notified: set[str] = set()  # sessions with new notifications


class SessionEngine:
    """Executes the session part of one batch, after all its commands are decided."""

    def __init__(self, tx: Transaction, lanes: Lanes, state: SessionState) -> None:
        self._tx = tx
        self._lanes = lanes
        self.work = SessionWork(state)

    def apply(
        self,
        events: Sequence[object],
        outcomes: list[Any],
        decisions: Mapping[type[Decision], list[Any]],
    ) -> SessionWork:
        """Record submitted tasks, reply with their standing, and store new notifications."""
        for index, event in enumerate(events):
            if type(event) is SubmitTasks and event.session_id is not None:
                outcome = outcomes[index]
                if isinstance(outcome, Submitted):
                    outcomes[index] = self._submitted(event.session_id, outcome)
            elif type(event) is ClearNotifications:
                SessionStore(self._tx).drop_notifications(event.told)
        if self.work.state.has_tasks and (finished := decisions.get(FinishTask)):
            self._finished(finished)
        return self.work

    def _submitted(self, session_id: str, outcome: Submitted) -> Stood:
        ids = [item.id for item in outcome.items]
        tasks = TaskStore(self._tx, self._lanes).by_ids([*ids])
        waited_for = [(one, session_id) for one in ids if tasks[one].state not in FINISHED]
        if waited_for:
            SessionStore(self._tx).add(waited_for)
            self.work.state = SessionState(has_tasks=True, last_news=self.work.state.last_news)
        return Stood(
            [
                self._standing(tasks[item.id], is_duplicate=isinstance(item, TaskRecord))
                for item in outcome.items
            ]
        )

    def _standing(self, task: TaskRecord, *, is_duplicate: bool) -> Standing:
        position = None
        if task.state is TaskState.QUEUED:
            listing = Listing(self._tx, self._lanes)
            position = listing.count_ahead(task, limit=MOST_COUNTED_AHEAD) + 1
        return Standing(task=task, position=position, is_duplicate=is_duplicate)

    def _finished(self, finished: Sequence[FinishTask]) -> None:
        waiting: dict[TaskId, list[str]] = {}
        sessions = SessionStore(self._tx)
        for task_id, session_id in sessions.of_tasks([one.id for one in finished]):
            waiting.setdefault(task_id, []).append(session_id)
        if not waiting:
            return
        state = self.work.state
        news: list[SessionNotification] = []
        for one in finished:
            for session_id in waiting.get(one.id, ()):
                seq = state.last_news + len(news) + 1
                news.append(SessionNotification(seq=seq, session_id=session_id, task_id=one.id))
        dropped = sessions.add_notifications(news, most=limits.MAX_SESSION_NEWS)
        if dropped:
            log.warning("session_notifications_dropped", dropped=dropped)
        self.work.state = SessionState(has_tasks=True, last_news=state.last_news + len(news))
        self.work.notified = {one.session_id for one in news}
