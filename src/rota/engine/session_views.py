"""What do sessions ask of what is committed? Reads beside the writer, one view for each answer."""

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from rota.core.events import TaskFilter
from rota.core.ids import TaskId, from_text
from rota.core.sessions import News, key_of
from rota.core.tasks import FINISHED, Task, TaskState
from rota.store.database import Transaction
from rota.store.lanes import Lanes
from rota.store.listing import Listing
from rota.store.sessions import Sessions
from rota.store.tasks import Tasks
from rota.store.workers import Workers

MOST_ACTIVE_SHOWN = 1_000  # running tasks in one answer

Reader = Callable[[Callable[[Transaction], Any]], Awaitable[Any]]


class QueueStatus(Struct, frozen=True, kw_only=True):
    """A queue as the coordinator address that it is."""

    workers: list[str]  # that serve it, in the order they registered
    queued: int
    active: list[Task]  # the oldest first


class SessionViews:
    def __init__(self, read: Reader, lanes: Lanes) -> None:
        self._read = read
        self._lanes = lanes

    async def status(self, queue: str) -> QueueStatus:
        def body(tx: Transaction) -> QueueStatus:
            listing = Listing(tx, self._lanes)
            workers = sorted(Workers(tx).every().values(), key=lambda one: one.incarnation)
            active = TaskFilter(states=(TaskState.RUNNING,), queue=queue)
            return QueueStatus(
                workers=[one.id for one in workers if one.queues is None or queue in one.queues],
                queued=listing.count(TaskFilter(states=(TaskState.QUEUED,), queue=queue)),
                active=listing.page(active, limit=MOST_ACTIVE_SHOWN, before=None)[::-1],
            )

        found: QueueStatus = await self._read(body)
        return found

    async def held(self, incarnation: int) -> list[Task]:
        """What a worker has, the oldest lease first."""

        def body(tx: Transaction) -> list[Task]:
            tasks = Tasks(tx, self._lanes)
            leases = tasks.leases_of([incarnation])
            found = tasks.by_ids([*leases])
            return [found[one] for one in sorted(found)]

        held: list[Task] = await self._read(body)
        return held

    async def find(self, queue: str, name: str) -> Task | None:
        """The task that sessions call so: by the name they gave it, or by its own id."""

        def body(tx: Transaction) -> Task | None:
            tasks = Tasks(tx, self._lanes)
            key = key_of(queue, name)
            if (task := tasks.by_keys([key]).get(key)) is not None:
                return task
            task_id = from_text(name)
            task = None if task_id is None else tasks.by_ids([task_id]).get(task_id)
            return task if task is not None and task.lane.queue == queue else None

        found: Task | None = await self._read(body)
        return found

    async def task(self, task_id: TaskId) -> Task | None:
        found: dict[TaskId, Task] = await self._read(
            lambda tx: Tasks(tx, self._lanes).by_ids([task_id])
        )
        return found.get(task_id)

    async def news(
        self, session_id: str, *, after: int, limit: int
    ) -> list[tuple[News, Task | None]]:
        """What a session is to be told; no task where it was sent round again since."""

        def body(tx: Transaction) -> list[tuple[News, Task | None]]:
            news = Sessions(tx).news(session_id, after=after, limit=limit)
            tasks = Tasks(tx, self._lanes).by_ids([one.task_id for one in news])
            ended = {one.id: one for one in tasks.values() if one.state in FINISHED}
            return [(one, ended.get(one.task_id)) for one in news]

        found: list[tuple[News, Task | None]] = await self._read(body)
        return found
