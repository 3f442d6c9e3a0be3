"""Reads for session gateways; each reply comes from one consistent view of the store."""

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from rota.core.commands import TaskFilter
from rota.core.ids import TaskId, from_text
from rota.core.sessions import SessionNotification, key_of
from rota.core.tasks.model import FINISHED, TaskRecord, TaskState
from rota.store.database import Transaction
from rota.store.sessions import SessionStore
from rota.store.tasks.lanes import Lanes
from rota.store.tasks.listing import Listing
from rota.store.tasks.tasks import TaskStore
from rota.store.workers import WorkerStore

MOST_ACTIVE_SHOWN = 1_000  # running tasks in one reply

Reader = Callable[[Callable[[Transaction], Any]], Awaitable[Any]]


class QueueStatus(Struct, frozen=True, kw_only=True):
    """The status of a queue, which sessions use as a coordinator address."""

    workers: list[str]  # the workers that serve it, in the order of registration
    queued: int
    active: list[TaskRecord]  # the oldest first


class SessionQueries:
    def __init__(self, read: Reader, lanes: Lanes) -> None:
        self._read = read
        self._lanes = lanes

    async def status(self, queue: str) -> QueueStatus:
        def body(tx: Transaction) -> QueueStatus:
            listing = Listing(tx, self._lanes)
            workers = sorted(WorkerStore(tx).all().values(), key=lambda one: one.incarnation)
            active = TaskFilter(states=(TaskState.RUNNING,), queue=queue)
            return QueueStatus(
                workers=[one.id for one in workers if one.queues is None or queue in one.queues],
                queued=listing.count(TaskFilter(states=(TaskState.QUEUED,), queue=queue)),
                active=listing.page(active, limit=MOST_ACTIVE_SHOWN, before=None)[::-1],
            )

        found: QueueStatus = await self._read(body)
        return found

    async def held(self, incarnation: int) -> list[TaskRecord]:
        """Return the tasks that a worker holds, the oldest first."""

        def body(tx: Transaction) -> list[TaskRecord]:
            tasks = TaskStore(tx, self._lanes)
            leases = tasks.leases_of([incarnation])
            found = tasks.by_ids([*leases])
            return [found[one] for one in sorted(found)]

        held: list[TaskRecord] = await self._read(body)
        return held

    async def find(self, queue: str, name: str) -> TaskRecord | None:
        """Find a task by the name that a session gave it, or by its id."""

        def body(tx: Transaction) -> TaskRecord | None:
            tasks = TaskStore(tx, self._lanes)
            place = queue, key_of(queue, name)
            if (task := tasks.by_keys([place]).get(place)) is not None:
                return task
            task_id = from_text(name)
            task = None if task_id is None else tasks.by_ids([task_id]).get(task_id)
            return task if task is not None and task.lane.queue == queue else None

        found: TaskRecord | None = await self._read(body)
        return found

    async def task(self, task_id: TaskId) -> TaskRecord | None:
        found: dict[TaskId, TaskRecord] = await self._read(
            lambda tx: TaskStore(tx, self._lanes).by_ids([task_id])
        )
        return found.get(task_id)

    async def news(
        self, session_id: str, *, after: int, limit: int
    ) -> list[tuple[SessionNotification, TaskRecord | None]]:
        """Return a session's notifications with their tasks; None: the task was requeued since."""

        def body(tx: Transaction) -> list[tuple[SessionNotification, TaskRecord | None]]:
            news = SessionStore(tx).notifications(session_id, after=after, limit=limit)
            tasks = TaskStore(tx, self._lanes).by_ids([one.task_id for one in news])
            ended = {one.id: one for one in tasks.values() if one.state in FINISHED}
            return [(one, ended.get(one.task_id)) for one in news]

        found: list[tuple[SessionNotification, TaskRecord | None]] = await self._read(body)
        return found
