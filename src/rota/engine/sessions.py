"""Carry out what a batch means to sessions: who asked for which task, and who is to be told.

Tasks that no session asked for cost nothing here: whether there are any others is remembered.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import structlog
from msgspec import Struct

from rota.core import limits
from rota.core.decisions import Decision, FinishTask
from rota.core.events import SubmitTasks
from rota.core.ids import TaskId
from rota.core.replies import Standing, Stood, Submitted
from rota.core.sessions import ClearNews, News
from rota.core.tasks import FINISHED, Task, TaskState
from rota.store.database import Transaction
from rota.store.lanes import Lanes
from rota.store.listing import Listing
from rota.store.sessions import Sessions
from rota.store.tasks import Tasks

log = structlog.get_logger("rota.sessions")

MOST_COUNTED_AHEAD = 1_000  # a task further back than this is told that it is just behind them


class SessionMemory(Struct, frozen=True):
    """What is remembered of the table from batch to batch; taken over only after the commit."""

    has_tasks: bool = False  # whether any session waits for, or waited for, any task
    last_news: int = 0


def recalled(tx: Transaction, before: SessionMemory) -> SessionMemory:
    """What the table itself says; numbers never fall while a coordinator runs."""
    sessions = Sessions(tx)
    last_news = max(before.last_news, sessions.last_news())
    return SessionMemory(has_tasks=sessions.has_tasks(), last_news=last_news)


class SessionWork(Struct):
    """What a batch meant to sessions."""

    memory: SessionMemory
    told: set[str] = set()  # sessions that there is news for


class SessionKeeper:
    """Carries out the part of one batch that is about sessions, after all that was decided."""

    def __init__(self, tx: Transaction, lanes: Lanes, memory: SessionMemory) -> None:
        self._tx = tx
        self._lanes = lanes
        self.work = SessionWork(memory)

    def carry_out(
        self,
        events: Sequence[object],
        outcomes: list[Any],
        decisions: Mapping[type[Decision], list[Any]],
    ) -> SessionWork:
        """Note what was asked for, answer how it stands, and keep what is to be told."""
        for index, event in enumerate(events):
            if type(event) is SubmitTasks and event.session_id is not None:
                outcome = outcomes[index]
                if isinstance(outcome, Submitted):
                    outcomes[index] = self._submitted(event.session_id, outcome)
            elif type(event) is ClearNews:
                Sessions(self._tx).clear(event.told)
        if self.work.memory.has_tasks and (finished := decisions.get(FinishTask)):
            self._finished(finished)
        return self.work

    def _submitted(self, session_id: str, outcome: Submitted) -> Stood:
        ids = [item.id for item in outcome.items]
        tasks = Tasks(self._tx, self._lanes).by_ids([*ids])
        waited_for = [(one, session_id) for one in ids if tasks[one].state not in FINISHED]
        if waited_for:
            Sessions(self._tx).add(waited_for)
            self.work.memory = SessionMemory(has_tasks=True, last_news=self.work.memory.last_news)
        return Stood(
            [
                self._standing(tasks[item.id], is_duplicate=isinstance(item, Task))
                for item in outcome.items
            ]
        )

    def _standing(self, task: Task, *, is_duplicate: bool) -> Standing:
        position = None
        if task.state is TaskState.QUEUED:
            listing = Listing(self._tx, self._lanes)
            position = listing.ahead(task, most=MOST_COUNTED_AHEAD) + 1
        return Standing(task=task, position=position, is_duplicate=is_duplicate)

    def _finished(self, finished: Sequence[FinishTask]) -> None:
        waiting: dict[TaskId, list[str]] = {}
        sessions = Sessions(self._tx)
        for task_id, session_id in sessions.of_tasks([one.id for one in finished]):
            waiting.setdefault(task_id, []).append(session_id)
        if not waiting:
            return
        memory = self.work.memory
        news: list[News] = []
        for one in finished:
            for session_id in waiting.get(one.id, ()):
                seq = memory.last_news + len(news) + 1
                news.append(News(seq=seq, session_id=session_id, task_id=one.id))
        dropped = sessions.note_ends(news, most=limits.MAX_SESSION_NEWS)
        if dropped:
            log.warning("sessions were not told of ends: too many are waiting", dropped=dropped)
        self.work.memory = SessionMemory(has_tasks=True, last_news=memory.last_news + len(news))
        self.work.told = {one.session_id for one in news}
