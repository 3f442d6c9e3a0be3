"""Which sessions submitted which tasks, and of which ends have they not been told yet?"""

from collections.abc import Iterable, Sequence

from rota.core.ids import TaskId
from rota.core.sessions import News
from rota.store.database import Transaction


class Sessions:
    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def has_tasks(self) -> bool:
        return bool(self._tx.rows("sessions.any_task"))

    def last_news(self) -> int:
        """The highest number of what is still to be told."""
        return int(self._tx.rows("sessions.last_news")[0][0])

    def add(self, submitted: Iterable[tuple[TaskId, str]]) -> None:
        """Tell these sessions when these tasks end."""
        self._tx.put_many("sessions.add", submitted)

    def of_tasks(self, ids: list[int]) -> list[tuple[TaskId, str]]:
        """The sessions that are to be told of these tasks."""
        return [(task_id, session) for task_id, session in self._tx.rows("sessions.of_tasks", ids)]

    def note_ends(self, news: Sequence[News], *, most: int) -> int:
        """Keep what is to be told, no more than so much for a session; the rest is forgotten."""
        self._tx.put_many(
            "sessions.note_end", [(one.seq, one.task_id, one.session_id) for one in news]
        )
        sessions = sorted({one.session_id for one in news})
        return sum(self._tx.run("sessions.forget_oldest", one, one, most) for one in sessions)

    def news(self, session_id: str, *, after: int, limit: int) -> list[News]:
        """What a session is to be told, the oldest first."""
        rows = self._tx.rows("sessions.news", session_id, after, limit)
        return [News(*row) for row in rows]

    def clear(self, told: Iterable[News]) -> None:
        rows = [(one.task_id, one.session_id, one.seq) for one in told]
        self._tx.many("sessions.clear", rows)

    def forget(self, ids: list[int]) -> None:
        """These tasks are no longer remembered."""
        self._tx.run("sessions.forget", ids)
