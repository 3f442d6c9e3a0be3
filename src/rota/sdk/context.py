"""The context of a running handler, as `rota.current()` returns it.

It is a context variable, so it is available in async handlers, in handler threads, and in functions
that a handler calls. A thread that the handler starts itself has it if the handler copies its
context, as `asyncio.to_thread` does.
"""

import asyncio
import hashlib
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Raw

from rota.core.tasks.logs import LogLine
from rota.core.tasks.model import Labels
from rota.errors import Invalid
from rota.messages import LeaseView, SiblingsRequest
from rota.sdk.client.client import Client
from rota.sdk.client.requests import ApiCall
from rota.sdk.encoding import encode
from rota.sdk.outcomes import Cancelled

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from rota.sdk.logs.task_logger import TaskLogger


class Execution(Protocol):
    """A running attempt, in a worker or in a handler process."""

    @property
    def lease(self) -> LeaseView: ...

    @property
    def stop_reason(self) -> str | None:
        """Why the handler should stop; None while it may go on."""

    def note_progress(self, progress: Raw | None, partial: Raw | None) -> None: ...

    @property
    def log_level(self) -> int:
        """The level of `logging` from which on lines are kept."""

    def keep_line(self, line: LogLine) -> None:
        """Keep a log line with the attempt. Callable from any thread; returns at once."""

    @property
    def client(self) -> Client:
        """The client of the coordinator that leased the task."""

    def note_trace(self, traceparent: str) -> None:
        """Report this span with the result of the attempt, if the task is one of a run."""


EXECUTION: ContextVar[Execution] = ContextVar("rota.execution")


def current() -> "TaskContext":
    """The context of the handler that is running here."""
    execution = EXECUTION.get(None)
    if execution is None:
        raise Invalid("no task is running here; call rota.current() inside a handler")
    return TaskContext(execution)


class TaskContext:
    """The current attempt, for its handler."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._lease = execution.lease

    @property
    def task_id(self) -> str:
        return self._lease.task_id

    @property
    def name(self) -> str:
        return self._lease.name

    @property
    def queue(self) -> str:
        return self._lease.queue

    @property
    def priority(self) -> int:
        return self._lease.priority

    @property
    def created_at(self) -> datetime:
        """When the coordinator accepted the task."""
        return datetime.fromtimestamp(self._lease.created_at_ms / 1000, UTC)

    @property
    def run_id(self) -> str | None:
        """The run that the task belongs to; None when it was enqueued by itself."""
        return self._lease.run_id

    @property
    def key(self) -> str | None:
        return self._lease.key

    @property
    def labels(self) -> Labels | None:
        return self._lease.labels

    @property
    def headers(self) -> Mapping[str, str]:
        """The texts that travel beside the payload, such as the context of a trace."""
        return self._lease.headers or {}

    def note_trace(self, traceparent: str) -> None:
        """Name the span that executes this attempt, as W3C `traceparent`; for middleware.

        A task that joins this one with others then has it among its links, see
        `rota.core.tasks.trace_links`. Tasks that belong to no run are not joined: it is ignored.
        """
        self._execution.note_trace(traceparent)

    @property
    def attempt(self) -> int:
        """The number of this attempt, counted from 1."""
        return self._lease.attempt

    @property
    def max_attempts(self) -> int:
        return self._lease.max_attempts

    @property
    def is_last_attempt(self) -> bool:
        return self.attempt >= self.max_attempts

    @property
    def deadline(self) -> datetime | None:
        """When this attempt times out; None when it has no limit."""
        deadline_ms = self._lease.deadline_ms
        return None if deadline_ms is None else datetime.fromtimestamp(deadline_ms / 1000, UTC)

    @property
    def is_cancelled(self) -> bool:
        """Whether to stop: the task is cancelled, lost or timed out, or the worker stops."""
        return self._execution.stop_reason is not None

    @property
    def cancel_reason(self) -> str | None:
        return self._execution.stop_reason

    def check_cancelled(self) -> None:
        """Raise `Cancelled` when the handler should stop; for long loops in threads."""
        reason = self._execution.stop_reason
        if reason is not None:
            raise Cancelled(reason)

    def progress(self, value: Any = None, *, partial: Any = None) -> None:
        """Report progress (a share from 0 to 1, or any JSON), and optionally a partial result.

        Returns at once. Of reports that come faster than they can be sent, the newest is sent.
        """
        self._execution.note_progress(_raw(value), _raw(partial))

    async def aprogress(self, value: Any = None, *, partial: Any = None) -> None:
        """As `progress`; it also yields to the event loop, so that a cancellation can arrive."""
        self.progress(value, partial=partial)
        await asyncio.sleep(0)

    def attach(
        self, name: str, data: bytes | str, *, media_type: str = "application/octet-stream"
    ) -> None:
        """Attach a blob to the task's run under a name.

        The run gets it when the task succeeds; an attempt that fails leaves nothing. The same
        name again replaces the blob.
        """
        self._execution.client.run(self._attachment(name, data, media_type))

    async def aattach(
        self, name: str, data: bytes | str, *, media_type: str = "application/octet-stream"
    ) -> None:
        """As `attach`, for async handlers."""
        await self._execution.client.arun(self._attachment(name, data, media_type))

    def _attachment(self, name: str, data: bytes | str, media_type: str) -> ApiCall[Any]:
        from rota.sdk.client import run_calls  # noqa: PLC0415 - few tasks attach anything

        lease = self._lease
        if lease.run_id is None:
            raise Invalid(
                f"task {lease.name!r} does not belong to a run; only tasks of a run can attach "
                "artifacts"
            )
        return run_calls.put_artifact(
            lease.run_id,
            name,
            data.encode() if isinstance(data, str) else data,
            media_type=media_type,
            task_id=lease.task_id,
            fence=lease.fence,
        )

    def add_branches(
        self,
        items: Iterable[Any],
        *,
        key: str | None = None,
        last: bool = False,
        fan_out: str | None = None,
    ) -> None:
        """Add a branch for each item to the open scope around the task, or to that of `fan_out`.

        Without a `key`, the same items are added once for this task, however often it is tried.
        With `last`, the scope takes no further branches.
        """
        self._execution.client.run(self._siblings(items, key, last, fan_out))

    async def aadd_branches(
        self,
        items: Iterable[Any],
        *,
        key: str | None = None,
        last: bool = False,
        fan_out: str | None = None,
    ) -> None:
        """As `add_branches`, for async handlers."""
        await self._execution.client.arun(self._siblings(items, key, last, fan_out))

    def _siblings(
        self,
        items: Iterable[Any],
        key: str | None,
        last: bool,  # noqa: FBT001 - as its callers have it
        fan_out: str | None,
    ) -> ApiCall[Any]:
        from rota.sdk.client import run_calls  # noqa: PLC0415 - few tasks add branches

        lease = self._lease
        if lease.run_id is None:
            detail = f"task {lease.name!r} belongs to no run; only tasks of a run can add branches"
            raise Invalid(detail)
        content = encode(list(items))
        digest = hashlib.sha256(content).hexdigest()
        request = SiblingsRequest(
            items=msgspec.json.decode(content),
            key=key or f"{lease.task_id}:{digest}",
            last=last,
            fence=lease.fence,
            fan_out=fan_out,
        )
        return run_calls.add_siblings(lease.task_id, request)

    @property
    def log(self) -> "TaskLogger":
        """A standard logger (`logging.LoggerAdapter`) whose lines are kept with the attempt.

        They are on the task's page of the dashboard and in `rota tasks logs`, and are passed on
        to the program's own logs as well, with the task's id, name and attempt.
        """
        from rota.sdk.logs.task_logger import TaskLogger  # noqa: PLC0415 - only handlers that log load it

        return TaskLogger(self._execution)

    @property
    def logger(self) -> "FilteringBoundLogger":
        """As `log`, but a logger of structlog, which takes fields as keyword arguments."""
        from rota.sdk.logs.task_logger import structured_logger  # noqa: PLC0415 - as above

        return structured_logger(self._execution)


def _raw(value: Any) -> Raw | None:
    return None if value is None else Raw(encode(value))
