"""What does a worker on a socket hold?"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from rota.core.ids import TaskId
from rota.core.sessions import name_of
from rota.core.tasks import Task
from rota.core.workers import Worker
from rota.gateways.websocket.connection import Connection


@dataclass(slots=True)
class Held:
    """A task that a worker has."""

    task_id: TaskId
    fence: int
    queue: str
    name: str  # as sessions call it
    # Pushed once more at this moment: the worker came back, and may never have got it.
    again: tuple[int, Task] | None = None


def held_of(task: Task, *, again_at_ms: int | None = None) -> Held:
    again = None if again_at_ms is None else (again_at_ms, task)
    return Held(task.id, task.fence, task.lane.queue, name_of(task), again)


@dataclass(eq=False)
class Attachment:
    worker: Worker
    connection: Connection
    holding: dict[tuple[str, str], Held] = field(default_factory=dict)  # by queue and name
    feeding: asyncio.Task[None] | None = None
    _has_room: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def room(self) -> int:
        return self.worker.max_concurrent_tasks - len(self.holding)

    def take(self, held: Held) -> None:
        self.holding[held.queue, held.name] = held

    def let_go(self, held: Held) -> None:
        """It need not be known to be gone: the registry gives no more than there is room for."""
        self.holding.pop((held.queue, held.name), None)
        self._has_room.set()

    async def wait_for_room(self) -> int:
        while self.room <= 0:
            self._has_room.clear()
            await self._has_room.wait()
        return self.room

    def running(self) -> tuple[TaskId, ...]:
        return tuple(held.task_id for held in self.holding.values())

    def find(self, task_ids: Iterable[TaskId]) -> list[Held]:
        wanted = set(task_ids)
        return [held for held in self.holding.values() if held.task_id in wanted]
