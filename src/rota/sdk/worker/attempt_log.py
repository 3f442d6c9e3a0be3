"""The log lines of a worker's attempts: begun, succeeded, retrying, failed, snoozed.

Failures and retries are always logged, with their traceback. Lines of attempts that begin and
succeed are limited to some hundred a second, because a worker can run more tasks than a terminal or
a log collector takes; the lines left out are counted. At level `debug` none is left out, as long as
they can be written as fast as they come.

A line takes longer to write than a task to start. So the lines of attempts that begin and succeed
are written a few milliseconds later, when the handlers have started and the results are on their
way. They have the time at which it happened, and are written before any other line of the process
that comes after them.

The lines go through the standard library's logger `rota.worker`, so a program that has not set up
logging sees failures on stderr, and nothing else.
"""

import asyncio
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextvars import Context, copy_context
from datetime import UTC, datetime
from typing import Any, NamedTuple

from rota.core.tasks.model import TaskError
from rota.messages import LeaseView, ResultItem
from rota.sdk.timing import now_s
from rota.telemetry import library_logger

MAX_LINES_PER_S = 500  # of attempts that begin or succeed
MAX_WAITING_LINES = 1_000  # while another thread writes; further ones are left out
WRITE_AFTER_S = 0.02
SLOW_WRITER_S = 1.0  # for which lines are left out while too many wait
TOO_MANY = f"more than {MAX_LINES_PER_S} lines a second; level debug shows all of them"
TOO_SLOW = "lines are not written as fast as they come"

_logger = logging.getLogger("rota.worker")
log = library_logger("rota.worker")


class _WaitingLine(NamedTuple):
    event: str
    at_s: float  # by the clock on the wall
    fields: dict[str, Any]
    context: Context  # the handler's, in which it may have bound fields


class AttemptLog:
    """Logs what happens to attempts, on the event loop it is made on."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._window_ends_at = 0.0
        self._lines = 0  # in this window
        self.is_full = False  # until the window ends, lines are only counted
        self.omitted = 0
        self._waiting: deque[_WaitingLine] = deque()
        self._writing = threading.Lock()
        self._is_scheduled = False  # whether the loop will write the lines that wait
        self._process_id = os.getpid()
        self._handlers = [*_handlers_of(_logger)]
        for handler in self._handlers:
            handler.addFilter(self._write_first)

    def note_begun(self, lease: LeaseView) -> None:
        if self._may_log():
            self._put_off("task_started", lease, {})

    def note_ended(self, lease: LeaseView, item: ResultItem, *, began_at: float) -> None:
        """Log how an attempt ended, as its report says."""
        if item.ok:
            if self._may_log():
                self._put_off("task_succeeded", lease, {"took_ms": _took_ms(began_at)})
        elif item.snooze_ms is not None:
            if self._may_log():
                event = "task_rate_limited" if item.rate_limited else "task_snoozed"
                self._put_off(event, lease, {"again_in_ms": item.snooze_ms})
        else:
            self.write()
            _log_failure(lease, item, took_ms=_took_ms(began_at))

    def write(self) -> None:
        """Write all lines that wait; from any thread."""
        if not self._writing.acquire(blocking=False):
            return  # called by a line that is being written, or another thread writes them
        try:
            for _ in range(len(self._waiting)):  # not those that come meanwhile: it would not end
                event, at_s, fields, context = self._waiting.popleft()
                at = datetime.fromtimestamp(at_s, UTC).isoformat().replace("+00:00", "Z")
                context.run(log.info, event, **fields, timestamp=at)
        finally:
            self._writing.release()

    def close(self) -> None:
        self.write()
        for handler in self._handlers:
            handler.removeFilter(self._write_first)

    def _put_off(self, event: str, lease: LeaseView, more: dict[str, int]) -> None:
        if len(self._waiting) >= MAX_WAITING_LINES:
            self.write()
        if len(self._waiting) >= MAX_WAITING_LINES:  # another thread writes, and not fast enough
            self._leave_out(SLOW_WRITER_S, TOO_SLOW)
            return
        fields = {**_fields(lease), **more}
        self._waiting.append(_WaitingLine(event, time.time(), fields, copy_context()))
        self._schedule()

    def _schedule(self) -> None:
        # Not by whether lines wait: another thread may write the last of them in between.
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_later(WRITE_AFTER_S, self._write_due)

    def _write_due(self) -> None:
        self._is_scheduled = False
        self.write()
        if self._waiting:  # another thread was writing, and may have stopped before these
            self._schedule()

    def _write_first(self, _record: logging.LogRecord) -> bool:
        """Write the lines that wait before another one; a filter that lets each record pass."""
        # A process that a handler forks has a copy of these lines, which are this one's.
        if self._waiting and os.getpid() == self._process_id:
            self.write()
        return True

    def _may_log(self) -> bool:
        if self.is_full:
            self.omitted += 1
            return False
        if not _logger.isEnabledFor(logging.INFO):
            return False
        now = now_s()
        if now >= self._window_ends_at:
            self._window_ends_at = now + 1.0
            self._lines = 0
        if self._lines < MAX_LINES_PER_S or _logger.isEnabledFor(logging.DEBUG):
            self._lines += 1
            return True
        self._leave_out(self._window_ends_at - now, TOO_MANY)
        return False

    def _leave_out(self, for_s: float, hint: str) -> None:
        """Leave out this line, and those that follow within this time."""
        self.is_full = True
        self.omitted += 1
        self._loop.call_later(for_s, self._log_omitted, hint)

    def _log_omitted(self, hint: str) -> None:
        self.write()
        self.is_full = False
        omitted, self.omitted = self.omitted, 0
        log.info("task_lines_omitted", count=omitted, hint=hint)


def _handlers_of(logger: logging.Logger) -> Iterator[logging.Handler]:
    """Yield the handlers that the records of a logger reach."""
    current: logging.Logger | None = logger
    while current is not None:
        yield from current.handlers
        current = current.parent if current.propagate else None


def _log_failure(lease: LeaseView, item: ResultItem, *, took_ms: int) -> None:
    error = item.error
    if not isinstance(error, TaskError):
        error = TaskError(message=error or "")
    fields: dict[str, Any] = {**_fields(lease), "error": f"{error.type}: {error.message}"}
    fields["took_ms"] = took_ms
    if isinstance(error.details, dict) and "traceback" in error.details:
        fields["exception"] = str(error.details["traceback"]).rstrip()
    if error.retryable and lease.attempt < lease.max_attempts:
        if item.retry_in_ms is not None:
            fields["again_in_ms"] = item.retry_in_ms
        log.warning("task_retrying", **fields)
    else:
        log.error("task_failed", **fields)


def _fields(lease: LeaseView) -> dict[str, Any]:
    fields: dict[str, Any] = {"task": lease.name, "task_id": lease.task_id}
    if lease.max_attempts > 1:
        fields["attempt"] = f"{lease.attempt}/{lease.max_attempts}"
    return fields


def _took_ms(began_at: float) -> int:
    return round((now_s() - began_at) * 1000)
