"""The outcomes of a handler, and their form on the wire.

A handler returns a value, raises an error, or raises or returns one of the `HandlerAnswer`s below.
"""

import traceback
from types import TracebackType
from typing import Any

import msgspec
from msgspec import Raw

from rota.core import limits
from rota.core.schedules.durations import milliseconds
from rota.core.tasks.model import TaskError
from rota.messages import LeaseView, ResultItem
from rota.sdk.encoding import encode
from rota.sdk.options.durations import Duration

OWN_MODULES = ("rota.sdk.", "rota.contrib.")
MAX_TRACEBACK_LENGTH = 8_000  # of its end, which names the error

# The types of errors that the SDK reports; the type of a handler's error is its class name.
INVALID_ARGUMENTS = "invalid_arguments"
UNREADABLE_RESULT = "unreadable_result"
REFUSED_RESULT = "refused_result"
UNKNOWN_TASK = "unknown_task"
TIMEOUT = "timeout"
PROCESS_DIED = "process_died"


class HandlerAnswer(Exception):  # noqa: N818 - not an error: what the handler asks for
    """Base of the answers that a handler may give instead of a result."""


class Snooze(HandlerAnswer):
    """Run the task again in `ms` milliseconds, or after a duration; this attempt does not count."""

    def __init__(self, ms: int | Duration) -> None:
        ms = ms if isinstance(ms, int) else milliseconds(ms, "ms")
        super().__init__(f"snooze for {ms} ms")
        if not 0 <= ms <= limits.MAX_DELAY_MS:
            raise ValueError(f"a snooze lasts 0 to {limits.MAX_DELAY_MS} ms, not {ms}")
        self.ms = ms


class RateLimited(HandlerAnswer):
    """Run the task again in `retry_after_ms` milliseconds, or after a duration.

    This attempt does not count.

    Until then, but at most for a day, no task starts that names a rate of this task.
    """

    def __init__(self, retry_after_ms: int | Duration) -> None:
        if not isinstance(retry_after_ms, int):
            retry_after_ms = milliseconds(retry_after_ms, "retry_after")
        super().__init__(f"rate limited for {retry_after_ms} ms")
        if not 0 <= retry_after_ms <= limits.MAX_DELAY_MS:
            most = limits.MAX_DELAY_MS
            raise ValueError(f"a rate is limited for 0 to {most} ms, not {retry_after_ms}")
        self.retry_after_ms = retry_after_ms


class Retry(HandlerAnswer):
    """Fail the attempt; retry in `in_ms` milliseconds, `after` a duration, or as `backoff` says."""

    def __init__(
        self,
        reason: str = "the handler asked for a retry",
        *,
        in_ms: int | None = None,
        after: Duration | None = None,
    ) -> None:
        super().__init__(reason)
        if after is not None:
            in_ms = milliseconds(after, "after")
        if in_ms is not None and not 0 <= in_ms <= limits.MAX_DELAY_MS:
            raise ValueError(f"a retry waits 0 to {limits.MAX_DELAY_MS} ms, not {in_ms}")
        self.in_ms = in_ms


class Discard(HandlerAnswer):
    """Fail the task for good, whatever attempts it has left.

    With a `cause` the task fails with that exception: its type, text and traceback are reported.
    """

    def __init__(
        self, reason: str = "discarded by its handler", *, cause: Exception | None = None
    ) -> None:
        super().__init__(reason)
        self.cause = cause


class Cancelled(BaseException):
    """Raised inside a handler by `check_cancelled` when it should stop.

    Not an `Exception`, so that a handler's own `except Exception` does not catch it.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def item_of_value(lease: LeaseView, value: Any) -> ResultItem:
    """The report of a value that a handler returned."""
    if value is None:
        return ResultItem(task_id=lease.task_id, fence=lease.fence, ok=True)
    if isinstance(value, HandlerAnswer):
        return item_of_error(lease, value)
    try:
        result = encode(value)
    except Exception as error:  # noqa: BLE001 - users' code encodes users' types
        return failure(
            lease,
            UNREADABLE_RESULT,
            f"the result of {lease.name!r} cannot be written as JSON: {error}",
            retryable=False,
        )
    return ResultItem(task_id=lease.task_id, fence=lease.fence, ok=True, result=Raw(result))


def item_of_error(lease: LeaseView, error: BaseException) -> ResultItem:
    """The report of an error that a handler raised."""
    match error:
        case Snooze(ms=ms):
            return ResultItem(task_id=lease.task_id, fence=lease.fence, snooze_ms=ms)
        case RateLimited(retry_after_ms=ms):
            return ResultItem(
                task_id=lease.task_id, fence=lease.fence, snooze_ms=ms, rate_limited=True
            )
        case Retry(in_ms=in_ms):
            item = failure(lease, "Retry", str(error), details=details_of(error))
            return msgspec.structs.replace(item, retry_in_ms=in_ms)
        case Discard(cause=Exception() as cause):
            return failure(
                lease,
                type_name(cause),
                message_of(cause),
                retryable=False,
                details=details_of(cause),
            )
        case Discard():
            return failure(lease, "Discard", str(error), retryable=False)
        case _:
            return failure(lease, type_name(error), message_of(error), details=details_of(error))


def failure(
    lease: LeaseView, kind: str, message: str, *, retryable: bool = True, details: Any = None
) -> ResultItem:
    error = TaskError(
        type=kind[: limits.MAX_ERROR_LENGTH],
        message=message[: limits.MAX_ERROR_LENGTH],
        retryable=retryable,
        details=details,
    )
    return ResultItem(task_id=lease.task_id, fence=lease.fence, ok=False, error=error)


def type_name(error: BaseException) -> str:
    kind = type(error)
    if kind.__module__ in {"builtins", "__main__"}:
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


def message_of(error: BaseException) -> str:
    """The text of an error, also of one whose text is broken."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a broken __str__ must not hide that there was an error
        return f"(an error of type {type_name(error)} that cannot be shown)"


def details_of(error: BaseException) -> dict[str, str] | None:
    """The traceback from the handler on, without the frames of Rota that call it."""
    place = _first_foreign_frame(error.__traceback__)
    if place is None:
        return None
    try:
        lines = traceback.format_exception(type(error), error, place)
    except Exception:  # noqa: BLE001 - as in message_of
        return None
    return {"traceback": "".join(lines)[-MAX_TRACEBACK_LENGTH:]}


def _first_foreign_frame(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None:
        module = trace.tb_frame.f_globals.get("__name__", "")
        if not module.startswith(OWN_MODULES):
            return trace
        trace = trace.tb_next
    return None
