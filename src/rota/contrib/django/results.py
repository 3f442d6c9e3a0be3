"""Tasks of the coordinator as results of Django.

The id of a result is the key of the task: 128 random bits, which exist before the transaction that
enqueues the task is committed, and which cannot be guessed.
"""

import builtins
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib import import_module
from inspect import isclass
from typing import Any

import msgspec
from django.apps import apps  # type: ignore[import-untyped]  # Django has no types
from django.conf import settings  # type: ignore[import-untyped]  # as above
from django.utils import timezone  # type: ignore[import-untyped]  # as above

from rota.contrib.django import registry
from rota.contrib.django.task_api import (
    DjangoResult,
    DjangoTask,
    InvalidTaskError,
    TaskError,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
)
from rota.core import limits
from rota.core.tasks import model
from rota.core.tasks.model import FINISHED, USED_UP, TaskState
from rota.messages import TaskView
from rota.messages.dashboard import AttemptView, TaskTimeline
from rota.sdk.client import calls
from rota.sdk.client.requests import Exchange
from rota.sdk.handles import traceback_of

STATUSES: dict[TaskState, Any] = {
    TaskState.SCHEDULED: TaskResultStatus.READY,
    TaskState.QUEUED: TaskResultStatus.READY,
    TaskState.RUNNING: TaskResultStatus.RUNNING,
    TaskState.SUCCEEDED: TaskResultStatus.SUCCESSFUL,
    TaskState.FAILED: TaskResultStatus.FAILED,
    TaskState.CANCELLED: TaskResultStatus.FAILED,
}
# The classes of errors that are not raised by a task's function.
TASK_FAILED = "rota.sdk.handles.TaskFailed"
TASK_CANCELLED = "rota.sdk.handles.TaskCancelled"
OTHER_ERRORS = {
    "timeout": "builtins.TimeoutError",
    "start_timeout": "builtins.TimeoutError",
    "invalid_arguments": "builtins.TypeError",
    "Retry": "rota.sdk.outcomes.Retry",
    "Discard": "rota.sdk.outcomes.Discard",
}


class CallPayload(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of a task of Django: the arguments of the call, as they were given."""

    args: list[Any] = []
    kwargs: dict[str, Any] = {}


class ReportedError(TaskError):
    """An error that a worker reported. Its class is not imported from any module.

    The path is whatever a worker has sent. It is looked up in the modules that this program has
    loaded and in those of its own apps. The exceptions are those that Django raises: ImportError
    for an unknown module, ValueError for what is no exception.
    """

    @property
    def exception_class(self) -> type[BaseException]:
        module_name, _, name = self.exception_class_path.rpartition(".")
        module = sys.modules.get(module_name)
        if module is None and _is_of_an_app(module_name):
            module = import_module(module_name)
        found = getattr(module, name, None)
        if isclass(found) and issubclass(found, BaseException):
            return found
        if module is None:
            raise ImportError(
                f"{self.exception_class_path!r} is of a module that this program has not loaded; "
                "import its module, or use exception_class_path"
            )
        raise ValueError(f"{self.exception_class_path!r} does not reference a valid exception.")


def _is_of_an_app(module_name: str) -> bool:
    return any(module_name.startswith(f"{config.name}.") for config in apps.get_app_configs())


def find_result(alias: str, result_id: str) -> Exchange[DjangoResult]:
    """The exchange that finds a task by its key and makes a result of it."""
    if not 1 <= len(result_id) <= limits.MAX_KEY_LENGTH:
        raise TaskResultDoesNotExist(result_id)
    page = yield calls.list_tasks(key=result_id, limit=1)
    if not page.items:
        raise TaskResultDoesNotExist(result_id)
    view: TaskView = page.items[0]
    task = registry.find(alias, view.name)
    if task is None:
        raise TaskResultDoesNotExist(
            f"{result_id}: it is a task {view.name!r}, which no installed app of this program "
            "defines"
        )
    timeline: TaskTimeline | None = None
    if _has_log(view):
        timeline = yield calls.get_timeline(view.id)
    attempts = [] if timeline is None else timeline.attempts
    return result_of(task, alias, view, [one for one in attempts if one.ending in USED_UP])


def _has_log(view: TaskView) -> bool:
    """Whether there are earlier attempts than the one in the view."""
    has_own_attempt = view.state is TaskState.RUNNING or view.state in FINISHED
    return view.attempt > (1 if has_own_attempt else 0)


def result_of(
    task: DjangoTask, alias: str, view: TaskView, earlier: Sequence[AttemptView]
) -> DjangoResult:
    """The result of a task, with the attempts before the one in the view."""
    call = payload_of(view.payload)
    own_worker = [view.worker_id] if view.worker_id and view.started_at_ms is not None else []
    starts = [one.started_at_ms for one in earlier] + [view.started_at_ms]
    started = [one for one in starts if one is not None]
    result: DjangoResult = TaskResult(
        task=variant(task, queue=view.queue, priority=view.priority, run_at_ms=view.run_at_ms),
        id=view.key or view.id,
        status=STATUSES[view.state],
        enqueued_at=moment(view.created_at_ms),
        started_at=moment(started[0]) if started else None,
        last_attempted_at=moment(started[-1]) if started else None,
        finished_at=moment(view.finished_at_ms),
        args=call.args,
        kwargs=call.kwargs,
        backend=alias,
        errors=[_error_of(one.error) for one in earlier if one.error] + _last_errors(view),
        worker_ids=[one.worker_id or "" for one in earlier] + own_worker,
    )
    if view.state is TaskState.SUCCEEDED:
        value = None if view.result is None else msgspec.json.decode(view.result)
        # The class is frozen, and takes no return value when it is made.
        object.__setattr__(result, "_return_value", value)
    return result


def variant(
    task: DjangoTask, *, queue: str, priority: int, run_at_ms: int | None = None
) -> DjangoTask:
    """The task with the options of one call; as it is defined, if they are not valid any more."""
    try:
        return replace(task, queue_name=queue, priority=priority, run_after=moment(run_at_ms))
    except InvalidTaskError:
        return task


def payload_of(payload: msgspec.Raw) -> CallPayload:
    try:
        return msgspec.json.decode(payload, type=CallPayload)
    except msgspec.DecodeError:
        return CallPayload()  # submitted by a program that is not Django's


def moment(at_ms: int | None) -> datetime | None:
    """A moment as Django has it: aware, or in the default time zone if USE_TZ is off."""
    if at_ms is None:
        return None
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    return at if settings.USE_TZ else timezone.make_naive(at)


def milliseconds(at: datetime) -> int:
    if timezone.is_naive(at):
        at = timezone.make_aware(at)
    return round(at.timestamp() * 1000)


# --- errors -------------------------------------------------------------------------------------


def _last_errors(view: TaskView) -> list[TaskError]:
    match view.state:
        case TaskState.FAILED:
            return [_error_of(view.error or model.TaskError())]
        case TaskState.CANCELLED:
            text = f"task {view.id!r} was cancelled"
            return [ReportedError(exception_class_path=TASK_CANCELLED, traceback=text)]
        case _:
            return []


def _error_of(error: model.TaskError) -> TaskError:
    text = traceback_of(error) or f"{error.type}: {error.message}"
    return ReportedError(exception_class_path=path_of(error.type), traceback=text)


def path_of(kind: str) -> str:
    """The path of the class that the type of an error names."""
    if "." in kind:
        return kind
    if kind in OTHER_ERRORS:
        return OTHER_ERRORS[kind]
    found = getattr(builtins, kind, None)
    is_builtin = isclass(found) and issubclass(found, BaseException)
    return f"builtins.{kind}" if is_builtin else TASK_FAILED
