"""The tasks that a worker on a socket holds."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from rota.core.ids import TaskId
from rota.core.sessions import name_of
from rota.core.tasks.model import TaskRecord
from rota.core.workers.model import WorkerRecord
from rota.gateways.websocket.connection import Connection


@dataclass(slots=True)
class HeldTask:
    """A task that a worker holds."""

    task_id: TaskId
    fence: int
    queue: str
    name: str  # as sessions call it
    # Pushed once more at this time: the worker came back, and may never have received it.
    repeat: tuple[int, TaskRecord] | None = None


def held_of(task: TaskRecord, *, repeat_at_ms: int | None = None) -> HeldTask:
    repeat = None if repeat_at_ms is None else (repeat_at_ms, task)
    return HeldTask(task.id, task.fence, task.lane.queue, name_of(task), repeat)


@dataclass(eq=False)
class SocketWorker:
    worker: WorkerRecord
    connection: Connection
    holding: dict[tuple[str, str], HeldTask] = field(default_factory=dict)  # by queue and name
    leasing: asyncio.Task[None] | None = None
    _slot_freed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def free_slots(self) -> int:
        return self.worker.max_concurrent_tasks - len(self.holding)

    def take(self, held: HeldTask) -> None:
        self.holding[held.queue, held.name] = held

    def release(self, held: HeldTask) -> None:
        """Forget a task; the registry limits the leases of a worker in any case."""
        self.holding.pop((held.queue, held.name), None)
        self._slot_freed.set()

    async def wait_for_slot(self) -> int:
        while self.free_slots <= 0:
            self._slot_freed.clear()
            await self._slot_freed.wait()
        return self.free_slots

    def running(self) -> tuple[TaskId, ...]:
        return tuple(held.task_id for held in self.holding.values())

    def find(self, task_ids: Iterable[TaskId]) -> list[HeldTask]:
        wanted = set(task_ids)
        return [held for held in self.holding.values() if held.task_id in wanted]
