"""How does a session hear that its tasks have ended, also when it was away?

Theory of operation. What is to be told stands in the store until it was handed to the transport of
an open socket. A commit that brings news only wakes the session's teller, which reads what there is
and puts it before all open sockets of the session. So a session that comes back, under its name, is
told what it missed, in order, by the same steps.
"""

import asyncio
from collections.abc import Iterable
from collections.abc import Set as AbstractSet

import structlog

from rota.core import access
from rota.core.access import Action, Caller
from rota.core.sessions import ClearNews, News, name_of
from rota.core.tasks import Task, TaskError, TaskState
from rota.engine.coordinator import Coordinator
from rota.errors import Forbidden, RotaError
from rota.gateways.websocket.connection import Connection
from rota.messages.sessions import UI, EndedTask, Outgoing

log = structlog.get_logger("rota.websocket")

NEWS_PER_STEP = 20  # read at once: each may have a large result
GATHER_S = 0.02  # what is told within this time is forgotten together
TROUBLE_PAUSE_S = 1.0  # before it is tried again, when a session could not be told


class Session:
    """The open sockets of one session, and the task that tells them what there is to tell."""

    def __init__(self, session_id: str, coordinator: Coordinator) -> None:
        self._id = session_id
        self._coordinator = coordinator
        self._position = 0
        self._under_way: set[int] = set()  # put, or handed over and not cleared yet
        self._handed: list[News] = []
        self._has_news = asyncio.Event()
        self._clearing: asyncio.Task[None] | None = None
        self._telling = asyncio.create_task(self._tell())
        self.sockets: set[Connection] = set()

    @property
    def is_idle(self) -> bool:
        return not self.sockets and not self._under_way

    def wake(self) -> None:
        self._has_news.set()

    def begin_anew(self) -> None:
        """Look at everything again: somebody came, or somebody left without having read all."""
        self._position = 0
        self.wake()

    def stop(self) -> None:
        self._telling.cancel()

    async def _tell(self) -> None:
        while True:
            await self._has_news.wait()
            self._has_news.clear()
            try:
                while self._open() and await self._tell_some():
                    pass
            except Exception as error:
                expected = isinstance(error, RotaError)
                log.warning("a session cannot be told", exc_info=None if expected else error)
                await asyncio.sleep(TROUBLE_PAUSE_S)
                self.wake()

    def _open(self) -> list[Connection]:
        return [one for one in self.sockets if one.is_open]

    async def _tell_some(self) -> bool:
        """Whether there was anything, so that there may be more."""
        news = await self._coordinator.queries.sessions.news(
            self._id, after=self._position, limit=NEWS_PER_STEP
        )
        for one, task in news:
            self._position = max(self._position, one.seq)
            if task is not None and one.seq not in self._under_way:
                self._put(one, task)
                await self._room()
        return bool(news)

    async def _room(self) -> None:
        """One socket that reads is enough to go on; one that does not is not waited for."""
        sockets = self._open()
        if not sockets or any(one.is_roomy for one in sockets):
            return
        waits = [asyncio.ensure_future(one.room()) for one in sockets]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()

    def _put(self, news: News, task: Task) -> None:
        listeners = [one for one in self._open() if may_hear(one.caller, task)]
        left, is_told = len(listeners), False

        def receipt(sent: bool) -> None:  # noqa: FBT001 - the form of a receipt
            nonlocal left, is_told
            left -= 1
            if sent and not is_told:
                is_told = True
                self._hand_over(news)
            elif left == 0 and not is_told:
                self._under_way.discard(news.seq)
                self.begin_anew()

        if listeners:
            self._under_way.add(news.seq)
        for connection in listeners:
            connection.put(_frame(connection, task), receipt)

    def _hand_over(self, news: News) -> None:
        self._handed.append(news)
        if self._clearing is None:
            self._clearing = asyncio.create_task(self._clear())

    async def _clear(self) -> None:
        """Forget what was told, all that has gathered at once."""
        try:
            while self._handed:
                await asyncio.sleep(GATHER_S)
                told, self._handed = self._handed, []
                await self._coordinator.carry_out(ClearNews(tuple(told)))
                self._under_way.difference_update(one.seq for one in told)
        except RotaError as error:
            # It is told once more after the next start: better twice than never.
            log.warning("what was told cannot be noted", code=error.code)
        finally:
            self._clearing = None


class Sessions:
    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._by_id: dict[str, Session] = {}
        self._left: set[str] = set()  # by everybody, with something still to be noted
        coordinator.watch_sessions(self._wake, lambda: self._by_id)

    def enter(self, connection: Connection) -> None:
        session = self._by_id.get(connection.session_id)
        self._sweep()
        if session is None:
            session = Session(connection.session_id, self._coordinator)
            self._by_id[connection.session_id] = session
        session.sockets.add(connection)
        session.begin_anew()

    def leave(self, connection: Connection) -> None:
        session = self._by_id.get(connection.session_id)
        if session is not None:
            session.sockets.discard(connection)
            if not session.sockets:
                self._left.add(connection.session_id)
            self._sweep()

    def stop(self) -> None:
        self._drop(list(self._by_id))

    def _wake(self, session_ids: AbstractSet[str]) -> None:
        for session_id in session_ids & self._by_id.keys():
            self._by_id[session_id].wake()

    def _sweep(self) -> None:
        """Let go of the sessions that nobody is at any more."""
        self._left = {one for one in self._left if not self._by_id[one].sockets}
        self._drop([one for one in self._left if self._by_id[one].is_idle])

    def _drop(self, session_ids: Iterable[str]) -> None:
        for session_id in session_ids:
            self._by_id.pop(session_id).stop()
            self._left.discard(session_id)


def may_hear(caller: Caller, task: Task) -> bool:
    """A session's name is no secret: who may not look at a task is not told of it either."""
    try:
        access.check(caller, Action.READ)
        access.check_queue(caller, task.lane.queue)
    except Forbidden:
        return False
    return True


def _frame(connection: Connection, task: Task) -> Outgoing:
    is_completed = task.state is TaskState.SUCCEEDED
    error = task.error or TaskError(type=str(task.state), message=f"the task was {task.state}")
    payload = EndedTask(
        task_id=name_of(task),
        result=connection.codec.from_json(task.result or b"null") if is_completed else None,
        error=None if is_completed else error,
    )
    return Outgoing(
        type="TaskCompleted" if is_completed else "TaskFailed",
        to=UI,
        sender=f"coordinator:{task.lane.queue}",
        payload=payload,
        id=connection.new_id(),
        timestamp=task.finished_at_ms,
    )
