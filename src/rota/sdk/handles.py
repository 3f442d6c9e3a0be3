"""How does a submitter follow a task? By its handle: wait for the result, look, cancel."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from rota.core.tasks import FINISHED, TaskError, TaskState
from rota.errors import RotaError, Unavailable
from rota.messages import TaskView
from rota.sdk import calls
from rota.sdk.client import Client
from rota.sdk.waiting import Wait

R = TypeVar("R")


class TaskFailed(RotaError):  # noqa: N818 - read where it is caught: `except TaskFailed`
    """The task has failed for good; `error` is what its handler said."""

    code = "task_failed"
    title = "The task has failed"

    def __init__(self, task_id: str, error: TaskError) -> None:
        super().__init__(f"{error.type}: {error.message}", task_id=task_id)
        self.task_id = task_id
        self.error = error


class TaskCancelled(RotaError):  # noqa: N818
    """The task was cancelled; it has no result."""

    code = "task_cancelled"
    title = "The task was cancelled"

    def __init__(self, task_id: str) -> None:
        super().__init__(f"task {task_id!r} was cancelled", task_id=task_id)
        self.task_id = task_id


class TaskHandle(Generic[R]):
    """A submitted task, as its submitter holds it. Costs nothing to keep or to make anew."""

    __slots__ = ("_client", "_decoder", "id", "is_duplicate")

    def __init__(
        self,
        task_id: str,
        client: Callable[[], Client],
        decoder: msgspec.json.Decoder[Any],
        *,
        is_duplicate: bool = False,
    ) -> None:
        self.id = task_id
        self.is_duplicate = is_duplicate  # its key was known: this is the earlier task
        self._client = client
        self._decoder = decoder

    def __repr__(self) -> str:
        return f"<TaskHandle {self.id}>"

    def result(self, timeout: float | None = None) -> R:
        """Wait for the task's end and give its result.

        Raises `TaskFailed` with the handler's error, `TaskCancelled`, or `TimeoutError` when
        `timeout` seconds have passed first; the task itself then goes on.
        """
        wait = Wait(f"task {self.id!r}", timeout)
        while True:
            try:
                view = self._client().run(self._question(wait))
            except Unavailable as error:
                time.sleep(wait.pause_s(error))
                continue
            if view.state in FINISHED:
                return self._value(view)
            wait.go_on(view.state)

    async def aresult(self, timeout: float | None = None) -> R:  # noqa: ASYNC109 - as `result`
        """As `result`, for async code."""
        wait = Wait(f"task {self.id!r}", timeout)
        while True:
            try:
                view = await self._client().arun(self._question(wait))
            except Unavailable as error:
                await asyncio.sleep(wait.pause_s(error))
                continue
            if view.state in FINISHED:
                return self._value(view)
            wait.go_on(view.state)

    def view(self) -> TaskView:
        """Everything the coordinator tells about the task."""
        return self._client().run(calls.get_task(self.id))

    async def aview(self) -> TaskView:
        return await self._client().arun(calls.get_task(self.id))

    def status(self) -> TaskState:
        return self.view().state

    async def astatus(self) -> TaskState:
        return (await self.aview()).state

    def cancel(self) -> None:
        """End the task now; a handler that runs it is told. `Conflict` when it has ended."""
        self._client().run(calls.cancel_task(self.id))

    async def acancel(self) -> None:
        await self._client().arun(calls.cancel_task(self.id))

    def retry(self) -> None:
        """Send a failed or cancelled task round again."""
        self._client().run(calls.retry_task(self.id))

    async def aretry(self) -> None:
        await self._client().arun(calls.retry_task(self.id))

    def _question(self, wait: Wait) -> calls.Call[TaskView]:
        return calls.get_task(self.id, wait_ms=wait.question_ms())

    def _value(self, view: TaskView) -> R:
        if view.state is TaskState.CANCELLED:
            raise TaskCancelled(self.id)
        if view.state is TaskState.FAILED:
            raise TaskFailed(self.id, view.error or TaskError())
        content = b"null" if view.result is None else bytes(view.result)
        try:
            value: R = self._decoder.decode(content)
        except msgspec.ValidationError:
            # Written by another version of the handler; what it said is still worth having.
            value = msgspec.json.decode(content)
        return value
