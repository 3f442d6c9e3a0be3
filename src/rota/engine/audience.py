"""Who is told what a commit has brought? Those who wait here, be it a commit of ours or not."""

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet

from rota.core.decisions import TellCancelled
from rota.core.ids import TaskId
from rota.core.locks import Lock
from rota.engine.assignments import Assignments
from rota.engine.entries import Delivery
from rota.engine.following import NoticeHub
from rota.engine.lines import Lines
from rota.engine.wake import Waiters

SessionsCallback = Callable[[AbstractSet[str]], None]
PresentSessions = Callable[[], Iterable[str]]
CancellationsCallback = Callable[[Sequence[TellCancelled]], None]
IsPresent = Callable[[], bool]  # whether there is anybody to be told


class Audience:
    """All who wait with one coordinator, but for calls for work: those wait with the writer."""

    def __init__(self, notices: NoticeHub, *, is_shared: bool) -> None:
        self.notices = notices
        self._is_shared = is_shared
        self.waiters = Waiters()
        self.assignments = Assignments()
        self.lines = Lines()
        self._sessions: list[tuple[SessionsCallback, PresentSessions]] = []
        self._cancellations: list[tuple[CancellationsCallback, IsPresent]] = []
        self._told_cancelled: set[tuple[int, int]] = set()

    def watch_sessions(self, callback: SessionsCallback, present: PresentSessions) -> None:
        self._sessions.append((callback, present))

    def watch_cancellations(self, callback: CancellationsCallback, is_wanted: IsPresent) -> None:
        self._cancellations.append((callback, is_wanted))

    def tell(self, delivery: Delivery) -> None:
        """On the loop, after a commit of ours, when its callers have been answered."""
        self.waiters.wake(delivery.finished)
        self.assignments.push(delivery.pushes)
        self.notices.tell(delivery.told)
        self.lines.call(delivery.granted_locks)
        if delivery.sessions:
            self.tell_sessions(delivery.sessions)
        if delivery.cancelled:
            if self._is_shared:
                told = [(one.incarnation, one.task_id) for one in delivery.cancelled]
                self._told_cancelled.update(told)
            for callback, _ in self._cancellations:
                callback(delivery.cancelled)

    def close(self) -> None:
        """Nothing more will come."""
        self.waiters.close()
        self.assignments.close()
        self.notices.close()
        self.lines.close()

    # --- what others have committed ---------------------------------------------------------------

    @property
    def sessions(self) -> list[str]:
        """Those that are open here."""
        return [session for _, present in self._sessions for session in present()]

    @property
    def has_streams(self) -> bool:
        """Whether anybody wants to hear of cancellations at once."""
        return any(is_wanted() for _, is_wanted in self._cancellations)

    def wake(self, ended: Iterable[int]) -> None:
        self.waiters.wake([TaskId(one) for one in ended])

    def call(self, locks: Sequence[Lock]) -> None:
        self.lines.look(locks)

    def tell_sessions(self, sessions: AbstractSet[str]) -> None:
        for callback, _ in self._sessions:
            callback(sessions)

    def tell_cancelled(self, standing: Sequence[tuple[int, int]]) -> None:
        """Of all cancellations that workers do not know of, tell those that are new here."""
        new = set(standing) - self._told_cancelled
        self._told_cancelled = set(standing)
        if new:
            told = [TellCancelled(incarnation, TaskId(task)) for incarnation, task in sorted(new)]
            for callback, _ in self._cancellations:
                callback(told)
