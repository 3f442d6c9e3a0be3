"""What does a worker know of one attempt? Its lease, its task, and how far it has come.

An attempt is begun once, settled once and ended once. It is settled when its fate is known: its
handler has finished, or it was stopped. It has ended when its handler has returned, which for one
that was stopped may be later: until then it lingers, and still takes up a place.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from msgspec import Raw

from rota.messages import LeaseView, ResultItem
from rota.sdk.arguments import InvalidArguments
from rota.sdk.client import Client
from rota.sdk.context import EXECUTION
from rota.sdk.outcomes import INVALID_ARGUMENTS, failure, item_of_error, item_of_value
from rota.sdk.tasks import Task

# Why an attempt is stopped.
CANCELLED = "cancelled"  # by somebody's wish
LOST = "lost"  # the lease is over or somebody else's
STOPPING = "stopping"  # the worker leaves
TIMED_OUT = "timed_out"

ProgressSink = Callable[["Attempt", Raw | None, Raw | None], None]


class Attempt:
    __slots__ = (
        "alarm",
        "carrier",
        "is_settled",
        "lease",
        "leased_at",
        "on_progress",
        "stop_reason",
        "task",
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
        self.alarm: asyncio.TimerHandle | None = None
        self.carrier: Any = None  # what its runner stops it by

    def note_progress(self, progress: Raw | None, partial: Raw | None) -> None:
        self.on_progress(self, progress, partial)

    @property
    def client(self) -> Client:
        return self.task.app.client


def carry_out(attempt: Attempt) -> ResultItem:
    """Run a plain handler to its end."""
    EXECUTION.set(attempt)
    lease, task = attempt.lease, attempt.task
    try:
        args, kwargs = task.arguments.decode(lease.payload)
    except InvalidArguments as error:
        return failure(lease, INVALID_ARGUMENTS, error.detail, retryable=False)
    try:
        value = task.function(*args, **kwargs)
    except BaseException as error:  # noqa: BLE001 - a handler may not end the worker, not by exit
        return item_of_error(lease, error)
    return item_of_value(lease, value)


async def acarry_out(attempt: Attempt) -> ResultItem:
    """Run an async handler to its end. Returns without a turn of the loop if the handler does."""
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
