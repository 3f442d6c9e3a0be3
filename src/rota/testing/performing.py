"""What does one handler do? Run it here and now, with its context, and look at what it said."""

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any, Generic, Literal, ParamSpec, TypeVar

import msgspec
from msgspec import Raw, Struct

from rota.core.tasks import TaskError
from rota.messages import LeaseView, ResultItem
from rota.sdk.attempts import acarry_out, carry_out
from rota.sdk.client import Client
from rota.sdk.context import EXECUTION
from rota.sdk.tasks import Task

P = ParamSpec("P")
R = TypeVar("R")

PERFORMED_ID = "0" * 16


class Performed(Struct, Generic[R], frozen=True, kw_only=True):
    """What a handler said: as it would have been reported."""

    name: str
    task_id: str
    outcome: Literal["succeeded", "failed", "snoozed"]
    result: R | None = None
    error: TaskError | None = None
    is_final: bool = True  # a failure that is worth another attempt is not
    retry_in_ms: int | None = None
    snooze_ms: int | None = None
    progress: tuple[Any, ...] = ()  # every value it reported, in order


class Rehearsal:
    """An attempt without a worker; stands for `Attempt`."""

    stop_reason = None

    def __init__(
        self,
        lease: LeaseView,
        task: Task[..., Any],
        on_progress: Callable[[LeaseView, Raw | None, Raw | None], None] | None = None,
    ) -> None:
        self.lease = lease
        self.task = task
        self.reported: list[Any] = []
        self._on_progress = on_progress

    def note_progress(self, progress: Raw | None, partial: Raw | None) -> None:
        if progress is not None:
            self.reported.append(msgspec.json.decode(progress))
        if self._on_progress is not None:
            self._on_progress(self.lease, progress, partial)

    @property
    def client(self) -> Client:
        return self.task.app.client


def perform(task: Task[P, R], *args: P.args, **kwargs: P.kwargs) -> Performed[R]:
    """Run a task's handler with these arguments, checked and converted as on their way to it."""
    return perform_attempt(1, task, *args, **kwargs)


def perform_attempt(
    attempt: int, task: Task[P, R], *args: P.args, **kwargs: P.kwargs
) -> Performed[R]:
    """As `perform`, as if it were not the first attempt."""
    rehearsal = Rehearsal(_lease(task, attempt, args, kwargs), task)
    return told(rehearsal, run_here(rehearsal))


async def aperform(task: Task[P, R], *args: P.args, **kwargs: P.kwargs) -> Performed[R]:
    """As `perform`, on the running event loop."""
    rehearsal = Rehearsal(_lease(task, 1, args, kwargs), task)
    return told(rehearsal, await arun_here(rehearsal))


def run_here(rehearsal: Any) -> ResultItem:
    """Run a handler on this thread; an async one on an event loop of its own."""
    context = contextvars.copy_context()
    if rehearsal.task.is_async:
        return context.run(lambda: _apart(arun_here(rehearsal)))
    return context.run(carry_out, rehearsal)


async def arun_here(rehearsal: Any) -> ResultItem:
    """Run a handler on the running loop, in a task and a context of its own."""
    if not rehearsal.task.is_async:
        return contextvars.copy_context().run(carry_out, rehearsal)
    context = contextvars.copy_context()
    context.run(EXECUTION.set, rehearsal)
    return await asyncio.create_task(acarry_out(rehearsal), context=context)


def told(rehearsal: Rehearsal, item: ResultItem) -> Performed[Any]:
    """A report, read back."""
    lease = rehearsal.lease
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
        result=_result(rehearsal.task, item),
        error=error,
        is_final=is_final,
        retry_in_ms=item.retry_in_ms,
        snooze_ms=item.snooze_ms,
        progress=tuple(rehearsal.reported),
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
    )


def _apart(coroutine: Any) -> ResultItem:
    """Run a coroutine to its end, also where another event loop is running."""
    from rota.testing.loops import run_apart  # noqa: PLC0415 - only async handlers need it

    item: ResultItem = run_apart(coroutine)
    return item
