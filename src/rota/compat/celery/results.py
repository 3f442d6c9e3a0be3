"""Results in Celery's words: `AsyncResult` for a task, `RunResult` for chains and chords."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from rota.core.tasks.model import FINISHED, TaskState
from rota.errors import Conflict
from rota.messages import TaskView
from rota.sdk.handles import TaskCancelled, TaskFailed, TaskHandle, traceback_of
from rota.sdk.run import RunHandle

CUSTOM_STATE = "celery_state"  # in the progress of a task: `update_state` has written it
RUN_STATES = {
    "running": "STARTED",
    "paused": "STARTED",
    "completed": "SUCCESS",
    "failed": "FAILURE",
    "timed_out": "FAILURE",
    "cancelled": "REVOKED",
}


class AsyncResult:
    """The result of one task. It holds no resources; `app.AsyncResult(id)` makes another one."""

    def __init__(self, handle: TaskHandle[Any]) -> None:
        self.handle = handle
        self.id = self.task_id = handle.id

    def __repr__(self) -> str:
        return f"<AsyncResult: {self.id}>"

    def get(self, timeout: float | None = None, *, propagate: bool = True) -> Any:
        """Wait for the result. With `propagate` an error is raised, else returned."""
        try:
            return self.handle.result(timeout)
        except (TaskFailed, TaskCancelled) as error:
            if propagate:
                raise
            return error

    wait = get

    @property
    def state(self) -> str:
        """PENDING, STARTED, RETRY, SUCCESS, FAILURE, REVOKED, or what `update_state` has set."""
        return _state_of(self.handle.view())

    status = state

    @property
    def result(self) -> Any:
        """The result, the error of a failed task, or else what `update_state` has set; no wait."""
        view = self.handle.view()
        if view.state in FINISHED:
            return self.get(propagate=False)
        custom = _custom(view)
        return None if custom is None else custom.get("meta")

    info = result

    @property
    def traceback(self) -> str | None:
        error = self.handle.view().error
        return None if error is None else traceback_of(error)

    def ready(self) -> bool:
        return self.handle.status() in FINISHED

    def successful(self) -> bool:
        return self.handle.status() is TaskState.SUCCEEDED

    def failed(self) -> bool:
        return self.handle.status() is TaskState.FAILED

    def revoke(self, *, terminate: bool = False) -> None:  # noqa: ARG002 - running handlers always stop
        """Cancel the task; one that has ended stays as it is."""
        try:
            self.handle.cancel()
        except Conflict:
            return

    def forget(self) -> None:
        """Nothing: the coordinator deletes results when their time is over."""


def _state_of(view: TaskView) -> str:
    match view.state:
        case TaskState.SCHEDULED | TaskState.QUEUED:
            return "RETRY" if view.attempt else "PENDING"
        case TaskState.RUNNING:
            custom = _custom(view)
            return "STARTED" if custom is None else str(custom[CUSTOM_STATE])
        case TaskState.SUCCEEDED:
            return "SUCCESS"
        case TaskState.FAILED:
            return "FAILURE"
        case TaskState.CANCELLED:
            return "REVOKED"


def _custom(view: TaskView) -> dict[str, Any] | None:
    if view.progress is None:
        return None
    value = msgspec.json.decode(bytes(view.progress))
    return value if isinstance(value, dict) and CUSTOM_STATE in value else None


class GroupResult:
    """The results of the tasks of a group, in their order."""

    def __init__(self, results: Sequence["AsyncResult | EagerResult"]) -> None:
        self.results = self.children = list(results)

    def __repr__(self) -> str:
        return f"<GroupResult of {len(self.results)} tasks>"

    def __iter__(self) -> Iterator["AsyncResult | EagerResult"]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    def __getitem__(self, index: int) -> "AsyncResult | EagerResult":
        return self.results[index]

    def get(self, timeout: float | None = None, *, propagate: bool = True) -> list[Any]:
        return [one.get(timeout, propagate=propagate) for one in self.results]

    join = get

    def ready(self) -> bool:
        return all(one.ready() for one in self.results)

    def successful(self) -> bool:
        return all(one.successful() for one in self.results)

    def failed(self) -> bool:
        return any(one.failed() for one in self.results)

    def completed_count(self) -> int:
        return sum(one.successful() for one in self.results)

    def revoke(self, *, terminate: bool = False) -> None:
        for one in self.results:
            one.revoke(terminate=terminate)


class RunResult:
    """The result of a chain or a chord, which are runs of a workflow."""

    def __init__(self, run: RunHandle, result: Callable[[float | None], Any]) -> None:
        self.run = run
        self.id = self.task_id = run.id
        self._result = result

    def __repr__(self) -> str:
        return f"<RunResult: {self.id}>"

    def get(self, timeout: float | None = None) -> Any:
        """Wait for the result of the last task, or of the body of the chord."""
        return self._result(timeout)

    @property
    def state(self) -> str:
        return RUN_STATES[self.run.status()]

    status = state

    def ready(self) -> bool:
        return self.state in {"SUCCESS", "FAILURE", "REVOKED"}

    def successful(self) -> bool:
        return self.state == "SUCCESS"

    def failed(self) -> bool:
        return self.state == "FAILURE"

    def revoke(self, *, terminate: bool = False) -> None:  # noqa: ARG002 - as above
        """Cancel what is left of the run."""
        try:
            self.run.cancel()
        except Conflict:
            return


class EagerResult:
    """The result of a call that ran at once, in this program."""

    def __init__(self, value: Any, error: Exception | None = None) -> None:
        self.id = self.task_id = "eager"
        self._value = value
        self._error = error

    def get(self, timeout: float | None = None, *, propagate: bool = True) -> Any:  # noqa: ARG002 - it is there
        if self._error is not None and propagate:
            raise self._error
        return self.result

    @property
    def result(self) -> Any:
        return self._value if self._error is None else self._error

    info = result

    @property
    def state(self) -> str:
        return "SUCCESS" if self._error is None else "FAILURE"

    status = state

    def ready(self) -> bool:
        return True

    def successful(self) -> bool:
        return self._error is None

    def failed(self) -> bool:
        return self._error is not None

    def revoke(self, *, terminate: bool = False) -> None:
        """Nothing: the call has ended."""
