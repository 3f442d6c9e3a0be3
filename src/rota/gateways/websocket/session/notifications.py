"""Notifies a session of the end of its tasks, also after it was away.

Theory of operation. A notification stays in the store until it was handed to the transport of an
open socket. A commit with notifications only wakes the session's task, which reads them and sends
them to all open sockets of the session. So a session that comes back under its name receives what
it missed, in order, by the same steps.
"""

import asyncio
from collections.abc import Iterable
from collections.abc import Set as AbstractSet

import structlog

from rota.core import access
from rota.core.access import Action, Caller
from rota.core.sessions import ClearNotifications, SessionNotification, name_of
from rota.core.tasks.model import TaskError, TaskRecord, TaskState
from rota.engine.coordinator import Coordinator
from rota.engine.topics import SessionNews
from rota.errors import Forbidden, RotaError
from rota.gateways.websocket.connection import Connection, Receipt
from rota.messages.sessions import EndedTask

log = structlog.get_logger("rota.websocket")

NOTIFICATIONS_PER_PAGE = 20  # read at once: each may have a large result
CLEAR_DELAY_S = 0.02  # notifications delivered within this time are cleared together
RETRY_PAUSE_S = 1.0  # before the next try, after one that failed


class SocketSession:
    """The open sockets of one session, and the task that notifies them."""

    def __init__(self, session_id: str, coordinator: Coordinator) -> None:
        self._id = session_id
        self._coordinator = coordinator
        self._position = 0
        self._in_flight: set[int] = set()  # put, or delivered and not cleared yet
        self._delivered: list[SessionNotification] = []
        self._wakeup = asyncio.Event()
        self._clearing: asyncio.Task[None] | None = None
        self._delivering = asyncio.create_task(self._deliver())
        self.sockets: set[Connection] = set()

    @property
    def is_idle(self) -> bool:
        return not self.sockets and not self._in_flight

    def wake(self) -> None:
        self._wakeup.set()

    def restart(self) -> None:
        """Read all notifications again: a socket was opened, or closed before it received all."""
        self._position = 0
        self.wake()

    def stop(self) -> None:
        self._delivering.cancel()

    async def _deliver(self) -> None:
        while True:
            await self._wakeup.wait()
            self._wakeup.clear()
            try:
                while self._open() and await self._deliver_page():
                    pass
            except Exception as error:
                expected = isinstance(error, RotaError)
                log.warning("session_notification_failed", exc_info=None if expected else error)
                await asyncio.sleep(RETRY_PAUSE_S)
                self.wake()

    def _open(self) -> list[Connection]:
        return [one for one in self.sockets if one.is_open]

    async def _deliver_page(self) -> bool:
        """Send one page of notifications; return whether there may be more."""
        page = await self._coordinator.queries.sessions.notifications(
            self._id, after=self._position, limit=NOTIFICATIONS_PER_PAGE
        )
        for one, task in page:
            self._position = max(self._position, one.seq)
            if task is not None and one.seq not in self._in_flight:
                self._put(one, task)
                await self._wait_for_capacity()
        return bool(page)

    async def _wait_for_capacity(self) -> None:
        """Wait until one socket has capacity; the slower ones are not waited for."""
        sockets = self._open()
        if not sockets or any(one.has_capacity for one in sockets):
            return
        waits = [asyncio.ensure_future(one.wait_for_capacity()) for one in sockets]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()

    def _put(self, notification: SessionNotification, task: TaskRecord) -> None:
        listeners = [one for one in self._open() if may_receive(one.caller, task)]
        left, is_delivered = len(listeners), False

        def receipt(sent: bool) -> None:  # noqa: FBT001 - the form of a receipt
            nonlocal left, is_delivered
            left -= 1
            if sent and not is_delivered:
                is_delivered = True
                self._confirm(notification)
            elif left == 0 and not is_delivered:
                self._in_flight.discard(notification.seq)
                self.restart()

        if listeners:
            self._in_flight.add(notification.seq)
        for connection in listeners:
            _send(connection, task, receipt)

    def _confirm(self, notification: SessionNotification) -> None:
        self._delivered.append(notification)
        if self._clearing is None:
            self._clearing = asyncio.create_task(self._clear())

    async def _clear(self) -> None:
        """Clear delivered notifications from the store, several at once."""
        try:
            while self._delivered:
                await asyncio.sleep(CLEAR_DELAY_S)
                cleared, self._delivered = self._delivered, []
                await self._coordinator.execute(ClearNotifications(tuple(cleared)))
                self._in_flight.difference_update(one.seq for one in cleared)
        except RotaError as error:
            # They are sent once more after the next start: at least once, not at most once.
            log.warning("notification_cleanup_failed", code=error.code)
        finally:
            self._clearing = None


class SocketSessions:
    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._by_id: dict[str, SocketSession] = {}
        self._empty: set[str] = set()  # without sockets, with notifications still to be cleared
        coordinator.subscribe(SessionNews(self._wake, lambda: self._by_id))

    def enter(self, connection: Connection) -> None:
        session = self._by_id.get(connection.session_id)
        self._sweep()
        if session is None:
            session = SocketSession(connection.session_id, self._coordinator)
            self._by_id[connection.session_id] = session
        session.sockets.add(connection)
        session.restart()

    def leave(self, connection: Connection) -> None:
        session = self._by_id.get(connection.session_id)
        if session is not None:
            session.sockets.discard(connection)
            if not session.sockets:
                self._empty.add(connection.session_id)
            self._sweep()

    def stop(self) -> None:
        self._drop(list(self._by_id))

    def _wake(self, session_ids: AbstractSet[str]) -> None:
        for session_id in session_ids & self._by_id.keys():
            self._by_id[session_id].wake()

    def _sweep(self) -> None:
        """Drop the sessions without sockets."""
        self._empty = {one for one in self._empty if not self._by_id[one].sockets}
        self._drop([one for one in self._empty if self._by_id[one].is_idle])

    def _drop(self, session_ids: Iterable[str]) -> None:
        for session_id in session_ids:
            self._by_id.pop(session_id).stop()
            self._empty.discard(session_id)


def may_receive(caller: Caller, task: TaskRecord) -> bool:
    """Whether the caller may read the task: a session's name alone is no permission."""
    try:
        access.check(caller, Action.READ)
        access.check_queue(caller, task.lane.queue)
    except Forbidden:
        return False
    return True


def _send(connection: Connection, task: TaskRecord, receipt: Receipt) -> None:
    is_completed = task.state is TaskState.SUCCEEDED
    error = task.error or TaskError(type=str(task.state), message=f"the task was {task.state}")
    payload = EndedTask(
        task_id=name_of(task),
        result=connection.codec.from_json(task.result or b"null") if is_completed else None,
        error=None if is_completed else error,
    )
    connection.send(
        "TaskCompleted" if is_completed else "TaskFailed",
        payload,
        sender=f"coordinator:{task.lane.queue}",
        timestamp=task.finished_at_ms,
        receipt=receipt,
    )
