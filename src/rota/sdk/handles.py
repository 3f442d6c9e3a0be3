"""How does a submitter follow a task? By its handle: wait for the result, look, cancel."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from rota.core import limits
from rota.core.tasks import FINISHED, TaskError, TaskState
from rota.errors import RotaError, Unavailable
from rota.messages import TaskView
from rota.sdk import calls
from rota.sdk.client import Client

R = TypeVar("R")

WAIT_MS = 30_000  # one question's patience; a longer wait is several questions
CUT_OFF_LIMIT_S = 60.0  # how long a wait without its own limit outlasts a missing coordinator
ASK_AGAIN_AFTER_S = 0.5


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
        wait = _Wait(self.id, timeout)
        while True:
            try:
                view = self._client().run(wait.question())
            except Unavailable as error:
                time.sleep(wait.pause_s(error))
                continue
            if wait.is_over(view):
                return self._value(view)

    async def aresult(self, timeout: float | None = None) -> R:  # noqa: ASYNC109 - as `result`
        """As `result`, for async code."""
        wait = _Wait(self.id, timeout)
        while True:
            try:
                view = await self._client().arun(wait.question())
            except Unavailable as error:
                await asyncio.sleep(wait.pause_s(error))
                continue
            if wait.is_over(view):
                return self._value(view)

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


class _Wait:
    """The patience of one wait: how long to ask, and how long to bear having no answer."""

    def __init__(self, task_id: str, timeout_s: float | None) -> None:
        self._task_id = task_id
        self._timeout_s = timeout_s
        self._deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._cut_off_since: float | None = None

    def question(self) -> calls.Call[TaskView]:
        wait_ms = WAIT_MS
        if self._deadline is not None:
            left_s = max(0.0, self._deadline - time.monotonic())
            wait_ms = min(wait_ms, int(left_s * 1000))
        return calls.get_task(self._task_id, wait_ms=min(wait_ms, limits.MAX_WAIT_MS))

    def is_over(self, view: TaskView) -> bool:
        self._cut_off_since = None
        if view.state in FINISHED:
            return True
        if self._deadline is not None and time.monotonic() >= self._deadline:
            raise TimeoutError(
                f"task {self._task_id!r} is still {view.state} after {self._timeout_s:g} s"
            )
        return False

    def pause_s(self, error: Unavailable) -> float:
        """How long to wait before asking again; gives up by raising the error."""
        now = time.monotonic()
        self._cut_off_since = self._cut_off_since or now
        limit = self._deadline
        if limit is None:
            limit = self._cut_off_since + CUT_OFF_LIMIT_S
        if now + ASK_AGAIN_AFTER_S > limit:
            raise error
        return ASK_AGAIN_AFTER_S
