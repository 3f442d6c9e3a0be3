"""Reads for session gateways; each reply comes from one consistent view of the store."""

from typing import NamedTuple

from msgspec import Struct

from rota.core.commands import TaskFilter
from rota.core.ids import from_text
from rota.core.sessions import SessionNotification, key_of
from rota.core.tasks.model import FINISHED, TaskRecord, TaskState
from rota.engine.queries.reader import StoreReader
from rota.store.database import Transaction
from rota.store.sessions import SessionStore
from rota.store.tasks.listing import Listing
from rota.store.tasks.tasks import TaskStore
from rota.store.workers import WorkerStore

MOST_ACTIVE_SHOWN = 1_000  # running tasks in one reply


class QueueStatus(Struct, frozen=True, kw_only=True):
    """The status of a queue, which sessions use as a coordinator address."""

    workers: list[str]  # the workers that serve it, in the order of registration
    queued: int
    active: list[TaskRecord]  # the oldest first


class NotifiedTask(NamedTuple):
    notification: SessionNotification
    task: TaskRecord | None  # None: the task was requeued since


class SessionQueries:
    def __init__(self, reader: StoreReader) -> None:
        self._read = reader.read
        self._lanes = reader.lanes

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

        return await self._read(body)

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

        return await self._read(body)

    async def notifications(self, session_id: str, *, after: int, limit: int) -> list[NotifiedTask]:
        """Return a session's notifications after a number, each with its task."""

        def body(tx: Transaction) -> list[NotifiedTask]:
            found = SessionStore(tx).notifications(session_id, after=after, limit=limit)
            tasks = TaskStore(tx, self._lanes).by_ids([one.task_id for one in found])
            ended = {one.id: one for one in tasks.values() if one.state in FINISHED}
            return [NotifiedTask(one, ended.get(one.task_id)) for one in found]

        return await self._read(body)
