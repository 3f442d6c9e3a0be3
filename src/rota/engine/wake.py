"""Who waits for a task's end? Woken by the commit that brings it."""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rota.core.ids import TaskId


class Waiters:
    def __init__(self) -> None:
        self._by_task: dict[TaskId, set[asyncio.Future[None]]] = {}

    @property
    def waited_for(self) -> list[TaskId]:
        return list(self._by_task)

    @contextmanager
    def waiting_for(self, task_id: TaskId) -> Iterator["asyncio.Future[None]"]:
        """A future that is done when the task has finished; wait, then look."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._by_task.setdefault(task_id, set()).add(future)
        try:
            yield future
        finally:
            waiting = self._by_task.get(task_id, set())
            waiting.discard(future)
            if not waiting:
                self._by_task.pop(task_id, None)

    def wake(self, finished: Iterable[TaskId]) -> None:
        if not self._by_task:
            return
        for task_id in finished:
            for future in self._by_task.pop(task_id, ()):
                _resolve(future)

    def close(self) -> None:
        for futures in self._by_task.values():
            for future in futures:
                _resolve(future)
        self._by_task.clear()


def _resolve(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
