"""One attempt of a task in a worker: its lease, its task, its state.

An attempt begins once, is settled once and ends once. It is settled when its outcome is known: its
handler has finished, or the worker has stopped it. It ends when its handler has returned, which may
be later for a stopped attempt. Until then it is lingering, and still occupies a slot.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from msgspec import Raw

from rota.messages import LeaseView, ResultItem
from rota.sdk.arguments import InvalidArguments
from rota.sdk.client.client import Client
from rota.sdk.context import EXECUTION
from rota.sdk.outcomes import INVALID_ARGUMENTS, failure, item_of_error, item_of_value
from rota.sdk.task import Task

# Why an attempt is stopped.
CANCELLED = "cancelled"  # a caller has cancelled the task
LOST = "lost"  # the lease has expired or belongs to another worker
STOPPING = "stopping"  # the worker leaves
TIMED_OUT = "timed_out"

ProgressSink = Callable[["Attempt", Raw | None, Raw | None], None]


class Attempt:
    __slots__ = (
        "carrier",
        "is_settled",
        "lease",
        "leased_at",
        "on_progress",
        "stop_reason",
        "task",
        "timer",
    )

    def __init__(
        self,
        lease: LeaseView,
        task: Task[..., Any],
        on_progress: ProgressSink,
        leased_at: float,
    ) -> None:
        self.lease = lease
        self.task = task
        self.on_progress = on_progress
        self.leased_at = leased_at
        self.stop_reason: str | None = None  # read by handlers in other threads
        self.is_settled = False
        self.timer: asyncio.TimerHandle | None = None
        self.carrier: Any = None  # the asyncio task or process through which its runner stops it

    def note_progress(self, progress: Raw | None, partial: Raw | None) -> None:
        self.on_progress(self, progress, partial)

    @property
    def client(self) -> Client:
        return self.task.app.client


def run_handler(attempt: Attempt) -> ResultItem:
    """Run a plain handler to its end."""
    EXECUTION.set(attempt)
    lease, task = attempt.lease, attempt.task
    try:
        args, kwargs = task.arguments.decode(lease.payload)
    except InvalidArguments as error:
        return failure(lease, INVALID_ARGUMENTS, error.detail, retryable=False)
    try:
        value = task.function(*args, **kwargs)
    except BaseException as error:  # noqa: BLE001 - no handler may end the worker, not by exit
        return item_of_error(lease, error)
    return item_of_value(lease, value)


async def arun_handler(attempt: Attempt) -> ResultItem:
    """Run an async handler to its end; yields to the event loop only if the handler does."""
    lease, task = attempt.lease, attempt.task
    try:
        args, kwargs = task.arguments.decode(lease.payload)
    except InvalidArguments as error:
        return failure(lease, INVALID_ARGUMENTS, error.detail, retryable=False)
    try:
        value = task.function(*args, **kwargs)
        if task.is_async:
            value = await value
    except GeneratorExit:
        raise
    except BaseException as error:  # noqa: BLE001 - as above; a cancelled one is settled already
        return item_of_error(lease, error)
    return item_of_value(lease, value)
