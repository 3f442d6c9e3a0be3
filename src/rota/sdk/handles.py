"""Task handles: wait for the result of a task, read its state, cancel or retry it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from rota.core import limits
from rota.core.tasks.model import FINISHED, TaskError, TaskState
from rota.errors import RotaError, Unavailable
from rota.messages import LogLineView, LogPage, TaskView
from rota.messages.dashboard import TaskTimeline, WhyView
from rota.sdk.client import calls
from rota.sdk.client.client import Client
from rota.sdk.client.requests import Exchange, Wait, wait_for_end
from rota.sdk.options.durations import Seconds
from rota.sdk.options.other_names import HANDLE_ELSEWHERE, missing_attribute
from rota.telemetry import library_logger

R = TypeVar("R")
log = library_logger("rota.client")

FIRST_PAUSE_S = 0.02  # between two queries for a pending task; doubled each time
LONGEST_PAUSE_S = 0.5


class TaskFailed(RotaError):  # noqa: N818 - read where it is caught: `except TaskFailed`
    """The task has failed for good; `error` is the error of its last attempt.

    Its cause is the handler's traceback, if the worker sent one.
    """

    code = "task_failed"
    title = "The task has failed"

    def __init__(self, task_id: str, error: TaskError) -> None:
        super().__init__(f"{error.type}: {error.message}", task_id=task_id)
        self.task_id = task_id
        self.error = error
        text = traceback_of(error)
        if text is not None:
            self.__cause__ = RemoteTraceback(text)


class RemoteTraceback(Exception):  # noqa: N818 - not an error: the cause of one, for its traceback
    """The traceback of a handler, as its worker reported it; the cause of a `TaskFailed`."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text.rstrip()}\n"""'


def traceback_of(error: TaskError) -> str | None:
    """The traceback in the details of an error; None when its worker sent none."""
    return traceback_in(error.details)


def traceback_in(details: Any) -> str | None:
    """The traceback in these details of an error; None when there is none."""
    text = details.get("traceback") if isinstance(details, dict) else None
    return text if isinstance(text, str) else None


class TaskCancelled(RotaError):  # noqa: N818
    """The task was cancelled; it has no result."""

    code = "task_cancelled"
    title = "The task was cancelled"

    def __init__(self, task_id: str) -> None:
        super().__init__(f"task {task_id!r} was cancelled", task_id=task_id)
        self.task_id = task_id


class TaskHandle(Generic[R]):
    """A submitted task. A handle holds no resources; `app.handle(id)` makes another one."""

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

    def result(self, timeout: Seconds | None = None) -> R:
        """Wait for the task to finish and return its result.

        Raises `TaskFailed` with the handler's error, `TaskCancelled`, or `TimeoutError` when
        `timeout` has passed first; the task itself then goes on. `timeout` is a number of seconds,
        a timedelta, or a text such as "5m". Without it, a wait of ten seconds for a task that
        nobody can run logs the reason once, as a warning, and goes on.
        """
        return self._client().run(self._wait(timeout))

    async def aresult(self, timeout: Seconds | None = None) -> R:  # noqa: ASYNC109 - as `result`
        """As `result`, for async code."""
        return await self._client().arun(self._wait(timeout))

    def view(self) -> TaskView:
        """Everything the coordinator knows about the task."""
        return self._client().run(calls.get_task(self.id))

    async def aview(self) -> TaskView:
        return await self._client().arun(calls.get_task(self.id))

    def status(self) -> TaskState:
        return self.view().state

    async def astatus(self) -> TaskState:
        return (await self.aview()).state

    def logs(self) -> list[LogLineView]:
        """What the task's handler has logged so far, in all attempts."""
        return self._client().run(_read_log(self.id))

    async def alogs(self) -> list[LogLineView]:
        """As `logs`, for async code."""
        return await self._client().arun(_read_log(self.id))

    def cancel(self) -> None:
        """Cancel the task and stop its handler; `Conflict` when it has finished."""
        self._client().run(calls.cancel_task(self.id))

    async def acancel(self) -> None:
        await self._client().arun(calls.cancel_task(self.id))

    def retry(self) -> None:
        """Queue a failed or cancelled task again."""
        self._client().run(calls.retry_task(self.id))

    async def aretry(self) -> None:
        await self._client().arun(calls.retry_task(self.id))

    def _wait(self, timeout: Seconds | None) -> Exchange[R]:
        return _wait_for_result(self.id, self._decoder, timeout)

    if not TYPE_CHECKING:  # type checkers know the attributes

        def __getattr__(self, name: str) -> Any:
            return missing_attribute(self, "a handle of a task", name, HANDLE_ELSEWHERE)


def _wait_for_result(
    task_id: str, decoder: msgspec.json.Decoder[Any], timeout: Seconds | None
) -> Exchange[Any]:
    try:
        view: TaskView = yield from wait_for_end(
            f"task {task_id!r}",
            lambda wait_ms: calls.get_task(task_id, wait_ms=wait_ms),
            FINISHED,
            timeout,
            warn=_warn_if_stuck,
        )
    except TimeoutError as error:
        why = yield from _why_it_waits(task_id)
        raise TimeoutError(f"{error}: {why.text}" if why else str(error)) from None
    if view.state is TaskState.CANCELLED:
        raise TaskCancelled(task_id)
    if view.state is TaskState.FAILED:
        raise TaskFailed(task_id, view.error or TaskError())
    content = b"null" if view.result is None else bytes(view.result)
    try:
        return decoder.decode(content)
    except msgspec.ValidationError:
        # Another version of the handler wrote it; the plain value is still useful.
        return msgspec.json.decode(content)


def _read_log(task_id: str) -> Exchange[list[LogLineView]]:
    lines: list[LogLineView] = []
    after = 0
    while True:
        page: LogPage = yield calls.get_logs(task_id, after=after, limit=limits.MAX_PAGE)
        lines += page.items
        after = page.next_after
        if not page.has_more:
            return lines


def _warn_if_stuck(view: TaskView) -> Exchange[None]:
    """Log why a task cannot start without a worker or an operator; its caller goes on waiting."""
    if view.state is not TaskState.QUEUED:
        return
    why = yield from _why_it_waits(view.id)
    if why is not None and why.is_stuck:
        log.warning("task_cannot_start", task_id=view.id, task=view.name, reason=why.text)


def _why_it_waits(task_id: str) -> Exchange[WhyView | None]:
    try:
        timeline: TaskTimeline = yield calls.get_timeline(task_id)
    except RotaError:
        return None  # it is only an explanation
    return timeline.why


class PendingHandle(Generic[R]):
    """A task enqueued inside the program's own transaction; it exists once that is committed.

    The handle finds nothing until the transaction is committed and a coordinator has accepted the
    task. After a rollback it never does.
    """

    __slots__ = ("_client", "_decoder", "_handle", "key", "queue")

    def __init__(
        self,
        key: str,
        client: Callable[[], Client],
        decoder: msgspec.json.Decoder[Any],
        queue: str | None = None,
    ) -> None:
        """Keys are unique in one queue; without `queue` the newest task with the key counts."""
        self.key = key
        self.queue = queue
        self._client = client
        self._decoder = decoder
        self._handle: TaskHandle[R] | None = None

    def __repr__(self) -> str:
        return f"<PendingHandle {self.key}>"

    def find(self) -> TaskHandle[R] | None:
        """The task's own handle; None while the task does not exist."""
        return self._client().run(self._find())

    async def afind(self) -> TaskHandle[R] | None:
        return await self._client().arun(self._find())

    def view(self) -> TaskView | None:
        """Everything the coordinator knows about the task; None while it does not exist."""
        return self._client().run(self._view())

    async def aview(self) -> TaskView | None:
        return await self._client().arun(self._view())

    def status(self) -> TaskState | None:
        view = self.view()
        return None if view is None else view.state

    async def astatus(self) -> TaskState | None:
        view = await self.aview()
        return None if view is None else view.state

    def result(self, timeout: Seconds | None = None) -> R:
        """Wait for the task to exist and to finish; otherwise as `TaskHandle.result`.

        Not inside the transaction: the task runs after the commit.
        """
        return self._client().run(self._wait(timeout))

    async def aresult(self, timeout: Seconds | None = None) -> R:  # noqa: ASYNC109 - as `result`
        """As `result`, for async code."""
        return await self._client().arun(self._wait(timeout))

    def _find(self) -> Exchange[TaskHandle[R] | None]:
        if self._handle is None:
            page = yield calls.list_tasks(queue=self.queue, key=self.key)
            if page.items:
                self._handle = TaskHandle(page.items[0].id, self._client, self._decoder)
        return self._handle

    def _view(self) -> Exchange[TaskView | None]:
        handle = yield from self._find()
        return None if handle is None else (yield calls.get_task(handle.id))

    def _wait(self, timeout: Seconds | None) -> Exchange[R]:
        wait = Wait(f"the task with the key {self.key!r}", timeout)
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                handle = yield from self._find()
            except Unavailable as error:
                yield wait.pause_s(error)
                continue
            left_s = wait.left_s()
            if handle is not None:
                result: R = yield from _wait_for_result(handle.id, self._decoder, left_s)
                return result
            wait.check("not there yet")
            yield pause_s if left_s is None else min(pause_s, left_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
