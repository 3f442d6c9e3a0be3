"""What does a handler know about the attempt it is? `rota.current()` tells.

The context is a context variable, so it is right in async handlers, in threads, and in functions
that a handler calls; in a thread that a handler starts itself it is there if the handler copies its
context (`asyncio.to_thread` does).
"""

import asyncio
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Raw

from rota.core.tasks import Labels
from rota.errors import Invalid
from rota.messages import LeaseView
from rota.sdk.client import Client
from rota.sdk.encoding import encode
from rota.sdk.outcomes import Cancelled
from rota.sdk.requests import Call

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger


class Execution(Protocol):
    """An attempt under way, wherever its handler runs."""

    @property
    def lease(self) -> LeaseView: ...

    @property
    def stop_reason(self) -> str | None:
        """Why the handler should stop; None while it should not."""

    def note_progress(self, progress: Raw | None, partial: Raw | None) -> None: ...

    @property
    def client(self) -> Client:
        """The way to the coordinator that the task is from."""


EXECUTION: ContextVar[Execution] = ContextVar("rota.execution")


def current() -> "TaskContext":
    """The context of the handler that is running here."""
    execution = EXECUTION.get(None)
    if execution is None:
        raise Invalid("rota.current() is for handlers: no task is running here")
    return TaskContext(execution)


class TaskContext:
    """One attempt, as its handler sees it."""

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
    def run_id(self) -> str | None:
        """The run of a workflow that it works for; None when it was enqueued by itself."""
        return self._lease.run_id

    @property
    def key(self) -> str | None:
        return self._lease.key

    @property
    def labels(self) -> Labels | None:
        return self._lease.labels

    @property
    def attempt(self) -> int:
        """Which attempt this is, counted from 1."""
        return self._lease.attempt

    @property
    def max_attempts(self) -> int:
        return self._lease.max_attempts

    @property
    def is_last_attempt(self) -> bool:
        return self.attempt >= self.max_attempts

    @property
    def deadline(self) -> datetime | None:
        """When this attempt runs out of time; None when it has no limit."""
        deadline_ms = self._lease.deadline_ms
        return None if deadline_ms is None else datetime.fromtimestamp(deadline_ms / 1000, UTC)

    @property
    def is_cancelled(self) -> bool:
        """Whether to stop: the task was cancelled or lost, its time is up, or the worker stops."""
        return self._execution.stop_reason is not None

    @property
    def cancel_reason(self) -> str | None:
        return self._execution.stop_reason

    def check_cancelled(self) -> None:
        """Raise `Cancelled` when the handler should stop. Long loops in threads call this."""
        reason = self._execution.stop_reason
        if reason is not None:
            raise Cancelled(reason)

    def progress(self, value: Any = None, *, partial: Any = None) -> None:
        """Report progress (a share from 0 to 1, or any JSON) and, if wanted, a partial result.

        Returns at once. Reports that come faster than they can be sent are merged: the newest
        counts.
        """
        self._execution.note_progress(_raw(value), _raw(partial))

    async def aprogress(self, value: Any = None, *, partial: Any = None) -> None:
        """As `progress`, and gives the event loop a turn, in which a cancellation can arrive."""
        self.progress(value, partial=partial)
        await asyncio.sleep(0)

    def attach(
        self, name: str, data: bytes | str, *, media_type: str = "application/octet-stream"
    ) -> None:
        """Attach a blob to the run this task works for, under a name of its own.

        It is the run's once the task has succeeded; an attempt that fails leaves nothing. The
        same name again replaces what was there.
        """
        self._execution.client.run(self._attachment(name, data, media_type))

    async def aattach(
        self, name: str, data: bytes | str, *, media_type: str = "application/octet-stream"
    ) -> None:
        """As `attach`, for async handlers."""
        await self._execution.client.arun(self._attachment(name, data, media_type))

    def _attachment(self, name: str, data: bytes | str, media_type: str) -> Call[Any]:
        from rota.sdk import run_calls  # noqa: PLC0415 - few tasks attach anything

        lease = self._lease
        if lease.run_id is None:
            raise Invalid(f"task {lease.name!r} works for no run, so there is nowhere to attach to")
        return run_calls.put_artifact(
            lease.run_id,
            name,
            data.encode() if isinstance(data, str) else data,
            media_type=media_type,
            task_id=lease.task_id,
            fence=lease.fence,
        )

    @property
    def logger(self) -> "FilteringBoundLogger":
        """A logger whose lines carry the task's id, name and attempt."""
        import structlog  # noqa: PLC0415 - only handlers that log pay for it

        logger: FilteringBoundLogger = structlog.get_logger("rota.task")
        return logger.bind(task_id=self.task_id, task=self.name, attempt=self.attempt)


def _raw(value: Any) -> Raw | None:
    return None if value is None else Raw(encode(value))
