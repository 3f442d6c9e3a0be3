"""Runs one handler in a test with its context, and records its outcome.

An async handler runs on the running event loop, or from sync code on its own loop: on this thread
where no loop runs, and otherwise on another thread while this one waits.
"""

import asyncio
import contextvars
import logging
import threading
from collections.abc import Callable
from typing import Any, Generic, Literal, ParamSpec, TypeVar

import msgspec
from msgspec import Raw, Struct

from rota.core.tasks.logs import LogLine
from rota.core.tasks.model import TaskError
from rota.messages import LeaseView, ResultItem
from rota.sdk.client.client import Client
from rota.sdk.functions.execution.host import FUNCTION_HOST, FunctionHost
from rota.sdk.task import Task
from rota.sdk.worker.runners.in_process import arun_handler, run_handler

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

PERFORMED_ID = "0" * 16


class Performed(Struct, Generic[R], frozen=True, kw_only=True):
    """The outcome of a handler, as a worker would report it."""

    name: str
    task_id: str
    outcome: Literal["succeeded", "failed", "snoozed"]
    result: R | None = None
    error: TaskError | None = None
    is_final: bool = True  # false: a failure that is retried
    retry_in_ms: int | None = None
    snooze_ms: int | None = None
    progress: tuple[Any, ...] = ()  # every reported value, in order
    logs: tuple[LogLine, ...] = ()  # every line that the handler has logged, in order


class TrialAttempt:
    """An attempt without a worker, in place of the SDK's `Attempt`."""

    stop_reason = None
    is_settled = False
    log_level = logging.DEBUG  # a test may look at every line

    def __init__(
        self,
        lease: LeaseView,
        task: Task[..., Any],
        on_progress: Callable[[LeaseView, Raw | None, Raw | None], None] | None = None,
        host: FunctionHost | None = None,
    ) -> None:
        """`host` runs the task if it is that of a durable function."""
        self.lease = lease
        self.task = task
        self.reported: list[Any] = []
        self.logged: list[LogLine] = []
        self.host = host
        self.traceparent: str | None = None
        self._on_progress = on_progress

    def note_progress(self, progress: Raw | None, partial: Raw | None) -> None:
        if progress is not None:
            self.reported.append(msgspec.json.decode(progress))
        if self._on_progress is not None:
            self._on_progress(self.lease, progress, partial)

    def keep_line(self, line: LogLine) -> None:
        self.logged.append(line)

    @property
    def client(self) -> Client:
        return self.task.app.client

    def note_trace(self, traceparent: str) -> None:
        if self.lease.run_id is not None:
            self.traceparent = traceparent


def perform(task: Task[P, R], *args: P.args, **kwargs: P.kwargs) -> Performed[R]:
    """Run a task's handler; arguments are checked and converted as for a worker."""
    return perform_attempt(1, task, *args, **kwargs)


def perform_attempt(
    attempt: int, task: Task[P, R], *args: P.args, **kwargs: P.kwargs
) -> Performed[R]:
    """As `perform`, with the given number of the attempt."""
    trial = TrialAttempt(_lease(task, attempt, args, kwargs), task)
    return performed(trial, run_here(trial))


async def aperform(task: Task[P, R], *args: P.args, **kwargs: P.kwargs) -> Performed[R]:
    """As `perform`, on the running event loop."""
    trial = TrialAttempt(_lease(task, 1, args, kwargs), task)
    return performed(trial, await arun_here(trial))


def run_here(trial: Any) -> ResultItem:
    """Run a handler on this thread; an async one on its own event loop."""
    context = _context_of(trial)
    if trial.task.is_async:
        return context.run(call_apart, lambda: asyncio.run(arun_here(trial)))
    return context.run(run_handler, trial)


async def arun_here(trial: Any) -> ResultItem:
    """Run a handler on the running loop, in its own task and context."""
    if not trial.task.is_async:
        return contextvars.copy_context().run(run_handler, trial)
    context = _context_of(trial)
    return await asyncio.create_task(arun_handler(trial), context=context)


def _context_of(trial: Any) -> contextvars.Context:
    context = contextvars.copy_context()
    if trial.host is not None:
        context.run(FUNCTION_HOST.set, trial.host)
    return context


def performed(trial: TrialAttempt, item: ResultItem) -> Performed[Any]:
    """The outcome that a report states."""
    lease = trial.lease
    error = item.error if isinstance(item.error, TaskError) else None
    outcome: Literal["succeeded", "failed", "snoozed"] = "succeeded"
    if item.snooze_ms is not None:
        outcome = "snoozed"
    elif not item.ok:
        outcome = "failed"
    is_final = item.snooze_ms is None and (
        error is None or not error.retryable or lease.attempt >= lease.max_attempts
    )
    return Performed(
        name=lease.name,
        task_id=lease.task_id,
        outcome=outcome,
        result=_result(trial.task, item),
        error=error,
        is_final=is_final,
        retry_in_ms=item.retry_in_ms,
        snooze_ms=item.snooze_ms,
        progress=tuple(trial.reported),
        logs=tuple(trial.logged),
    )


def _result(task: Task[..., Any], item: ResultItem) -> Any:
    if item.result is None:
        return None
    try:
        return task.arguments.result_decoder.decode(item.result)
    except msgspec.ValidationError:
        return msgspec.json.decode(item.result)


def _lease(
    task: Task[..., Any], attempt: int, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> LeaseView:
    new_task = task.bind(*args, **kwargs).new_task
    return LeaseView(
        task_id=PERFORMED_ID,
        fence=attempt,
        name=task.name,
        payload=new_task.payload,
        attempt=attempt,
        max_attempts=new_task.max_attempts,
        timeout_ms=new_task.timeout_ms,
        queue=new_task.queue,
        priority=new_task.priority,
        key=new_task.key,
        labels=new_task.labels,
        headers=new_task.headers,
    )


def call_apart(action: Callable[[], T]) -> T:
    """Call something that runs an event loop, also where another loop is running."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return action()
    context = contextvars.copy_context()
    results: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(context.run(action))
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
