"""Sessions inside the batch: which session submitted a task, and which must be notified.

Tasks that no session submitted cost nothing here: the state remembers whether a session has tasks.
"""

from collections.abc import Sequence

import structlog

from rota.core import limits
from rota.core.commands import Command, SubmitTasks
from rota.core.decisions import FinishTask
from rota.core.ids import TaskId
from rota.core.replies import Done, SubmissionStatus, SubmissionStatuses, Submitted
from rota.core.sessions import ClearNotifications, SessionNotification
from rota.core.tasks.model import FINISHED, TaskRecord, TaskState
from rota.engine.commit.batch import Batch, Domain
from rota.engine.commit.state import NOTIFICATIONS, SessionState
from rota.store.sessions import SessionStore
from rota.store.tasks.listing import Listing
from rota.store.tasks.tasks import TaskStore
from rota.store.workers import WorkerStore

log = structlog.get_logger("rota.sessions")

MOST_COUNTED_AHEAD = 1_000  # a task further back is reported as the next one behind these


class SessionDomain(Domain):
    """The sessions of one batch: the tasks they submitted, and the notifications they get."""

    COMMANDS = frozenset({ClearNotifications})

    @classmethod
    def is_concerned(cls, batch: Batch) -> bool:
        return (
            ClearNotifications in batch.kinds
            or (batch.state.sessions.has_tasks and FinishTask in batch.decisions)
            or (SubmitTasks in batch.kinds and any(map(_session_of, batch.commands)))
        )

    def __init__(self, batch: Batch) -> None:
        super().__init__(batch)
        self._sessions = SessionStore(batch.tx)
        self._tasks = TaskStore(batch.tx, batch.lanes)

    def reduce(self, command: ClearNotifications) -> Done:
        self._sessions.drop_notifications(command.told)
        return Done()

    def write(self) -> None:
        """Record submitted tasks, reply with their standing, and store new notifications."""
        batch = self.batch
        for index, command in enumerate(batch.commands):
            session_id, outcome = _session_of(command), batch.outcomes[index]
            if session_id is not None and isinstance(outcome, Submitted):
                batch.outcomes[index] = self._submitted(session_id, outcome)
        finished = batch.decisions.get(FinishTask)
        if finished and batch.sessions.has_tasks:
            self._finished(finished)

    def _submitted(self, session_id: str, outcome: Submitted) -> SubmissionStatuses:
        ids = [item.id for item in outcome.items]
        tasks = self._tasks.by_ids([*ids])
        waited_for = [(one, session_id) for one in ids if tasks[one].state not in FINISHED]
        if waited_for:
            self._sessions.add(waited_for)
            last_notification = self.batch.sessions.last_notification
            self.batch.sessions = SessionState(has_tasks=True, last_notification=last_notification)
        return SubmissionStatuses(
            [
                self._standing(tasks[item.id], is_duplicate=isinstance(item, TaskRecord))
                for item in outcome.items
            ]
        )

    def _standing(self, task: TaskRecord, *, is_duplicate: bool) -> SubmissionStatus:
        position = None
        if task.state is TaskState.QUEUED:
            listing = Listing(self.batch.tx, self.batch.lanes)
            position = listing.count_ahead(task, limit=MOST_COUNTED_AHEAD) + 1
        return SubmissionStatus(task=task, position=position, is_duplicate=is_duplicate)

    def _finished(self, finished: Sequence[FinishTask]) -> None:
        waiting: dict[TaskId, list[str]] = {}
        for task_id, session_id in self._sessions.of_tasks([one.id for one in finished]):
            waiting.setdefault(task_id, []).append(session_id)
        if not waiting:
            return
        last_notification = self.batch.sessions.last_notification
        news: list[SessionNotification] = []
        for one in finished:
            for session_id in waiting.get(one.id, ()):
                seq = last_notification + len(news) + 1
                news.append(SessionNotification(seq=seq, session_id=session_id, task_id=one.id))
        dropped = self._sessions.add_notifications(news, most=limits.MAX_SESSION_NEWS)
        WorkerStore(self.batch.tx).raise_counter(NOTIFICATIONS, last_notification + len(news))
        if dropped:
            log.warning("session_notifications_dropped", dropped=dropped)
        self.batch.sessions = SessionState(
            has_tasks=True, last_notification=last_notification + len(news)
        )
        self.batch.delivery.sessions = {one.session_id for one in news}


def _session_of(command: Command) -> str | None:
    """Return the session that submits tasks with this command, if any."""
    return command.session_id if type(command) is SubmitTasks else None
