"""The handlers of a worker: they run tasks of Django, and send its signals."""

import asyncio
from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.db import close_old_connections, connections  # type: ignore[import-untyped]  # no types
from django.utils import timezone  # type: ignore[import-untyped]  # no types

from rota.contrib.django.arguments import plain
from rota.contrib.django.backend import RotaBackend
from rota.contrib.django.results import (
    ReportedError,
    find_result,
    milliseconds,
    moment,
    path_of,
    variant,
)
from rota.contrib.django.task_api import (
    DjangoResult,
    DjangoTask,
    TaskContext,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_finished,
    task_started,
)
from rota.errors import RotaError
from rota.sdk.app.app import Rota
from rota.sdk.context import current
from rota.sdk.outcomes import Cancelled, Discard, RateLimited, Snooze, details_of, type_name
from rota.sdk.task import Task as RotaTask
from rota.sdk.worker.runners.in_process import CANCELLED, LOST, STOPPING, TIMED_OUT

UNKNOWN_WORKER = "unknown"  # of an earlier attempt, when the coordinator could not be asked

WorkerIdOf = Callable[[], str | None]


def add_handlers(
    app: Rota, backend: RotaBackend, tasks: dict[str, DjangoTask], worker_id_of: WorkerIdOf
) -> None:
    """Add a handler to the app for each task; the app is one that only the worker uses."""
    for name, task in tasks.items():
        make = _async_handler if iscoroutinefunction(task.func) else _handler
        added: RotaTask[..., Any] = app.task(name=name)(make(task, backend, worker_id_of))
        assert added.name == name


def _handler(
    task: DjangoTask, backend: RotaBackend, worker_id_of: WorkerIdOf
) -> Callable[[list[Any], dict[str, Any]], Any]:
    def run(args: list[Any], kwargs: dict[str, Any]) -> Any:
        close_old_connections()
        try:
            execution = TaskExecution(task, backend, worker_id_of(), args, kwargs)
            if execution.needs_history:
                execution.take_history(_history(backend, execution.result.id))
            task_started.send_robust(type(backend), task_result=execution.result)
            try:
                value = execution.json_of(task.func(*execution.positional, **kwargs))
            except BaseException as error:
                if execution.fail(error):
                    task_finished.send_robust(type(backend), task_result=execution.result)
                raise
            if execution.succeed(value):
                task_finished.send_robust(type(backend), task_result=execution.result)
            return value
        finally:
            close_old_connections()

    return run


def _async_handler(
    task: DjangoTask, backend: RotaBackend, worker_id_of: WorkerIdOf
) -> Callable[[list[Any], dict[str, Any]], Any]:
    async def run(args: list[Any], kwargs: dict[str, Any]) -> Any:
        # A thread of its own for the database, so that tasks do not wait for each other.
        async with ThreadSensitiveContext():
            try:
                return await _run(args, kwargs)
            finally:
                # The thread ends with the context, and nothing else could use its connections.
                await asyncio.shield(sync_to_async(connections.close_all)())

    async def _run(args: list[Any], kwargs: dict[str, Any]) -> Any:
        execution = TaskExecution(task, backend, worker_id_of(), args, kwargs)
        if execution.needs_history:
            execution.take_history(await _ahistory(backend, execution.result.id))
        await task_started.asend_robust(type(backend), task_result=execution.result)
        try:
            value = execution.json_of(await task.func(*execution.positional, **kwargs))
        except BaseException as error:
            if execution.fail(error):
                await task_finished.asend_robust(type(backend), task_result=execution.result)
            raise
        if execution.succeed(value):
            await task_finished.asend_robust(type(backend), task_result=execution.result)
        return value

    return run


def _history(backend: RotaBackend, result_id: str) -> DjangoResult | None:
    try:
        return backend.rota.client.run(find_result(backend.alias, result_id))
    except (RotaError, TaskResultDoesNotExist):
        return None  # the task runs all the same


async def _ahistory(backend: RotaBackend, result_id: str) -> DjangoResult | None:
    try:
        return await backend.rota.client.arun(find_result(backend.alias, result_id))
    except (RotaError, TaskResultDoesNotExist):
        return None


class TaskExecution:
    """One attempt at a task of Django: its result, as signals and the task itself see it."""

    def __init__(
        self,
        task: DjangoTask,
        backend: RotaBackend,
        worker_id: str | None,
        args: list[Any],
        kwargs: dict[str, Any],
    ) -> None:
        self._context = context = current()
        self._task = task
        now = timezone.now()
        earlier = [UNKNOWN_WORKER] * (context.attempt - 1)
        self.result: DjangoResult = TaskResult(
            task=variant(task, queue=context.queue, priority=context.priority),
            id=context.key or context.task_id,
            status=TaskResultStatus.RUNNING,
            enqueued_at=moment(milliseconds(context.created_at)),
            started_at=now,
            last_attempted_at=now,
            finished_at=None,
            args=args,
            kwargs=kwargs,
            backend=backend.alias,
            errors=[],
            worker_ids=[*earlier, worker_id or UNKNOWN_WORKER],
        )

    @property
    def needs_history(self) -> bool:
        """Whether there were attempts that only the coordinator knows."""
        return self._context.attempt > 1

    def take_history(self, known: DjangoResult | None) -> None:
        """Fill in the workers and the errors of earlier attempts."""
        if known is not None and len(known.worker_ids) == len(self.result.worker_ids):
            self._set(
                worker_ids=[*known.worker_ids[:-1], self.result.worker_ids[-1]],
                errors=known.errors,
                started_at=known.started_at,
            )

    @property
    def positional(self) -> list[Any]:
        """The positional arguments of the function."""
        if self._task.takes_context:
            return [TaskContext(task_result=self.result), *self.result.args]
        return [*self.result.args]

    def json_of(self, value: Any) -> Any:
        """The return value as JSON. Another attempt would return the same, so there is none."""
        try:
            return plain(value)
        except (TypeError, ValueError) as error:
            text = f"the result of {self._task.module_path!r}: {error}"
            raise Discard(text, cause=TypeError(text)) from error  # the class of Django's backends

    def succeed(self, value: Any) -> bool:
        """Note the end of the task; False: it has not ended, and another worker gets it.

        An attempt that was stopped has failed, whatever its function returned.
        """
        reason = self._context.cancel_reason
        if reason is not None:
            return self.fail(TimeoutError() if reason == TIMED_OUT else Cancelled(reason))
        self._set(
            status=TaskResultStatus.SUCCESSFUL, finished_at=timezone.now(), _return_value=value
        )
        return True

    def fail(self, error: BaseException) -> bool:
        """Note an error of the task; False: the task has not finished, and is tried again."""
        if not self._is_final(error):
            return False
        if isinstance(error, Discard) and error.cause is not None:
            error = error.cause  # the coordinator is told the same
        details = details_of(error) or {}
        reported = ReportedError(
            exception_class_path=path_of(type_name(error)),
            traceback=details.get("traceback", str(error)),
        )
        self._set(
            status=TaskResultStatus.FAILED,
            finished_at=timezone.now(),
            errors=[*self.result.errors, reported],
        )
        return True

    def _is_final(self, error: BaseException) -> bool:
        if isinstance(error, Snooze | RateLimited):
            return False
        reason = self._context.cancel_reason
        if reason in {LOST, STOPPING}:  # another worker gets the task
            return False
        is_cancelled = reason == CANCELLED
        return is_cancelled or isinstance(error, Discard) or self._context.is_last_attempt

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self.result, name, value)  # the class is frozen
