"""The log lines of a worker's attempts: begun, succeeded, retrying, failed, snoozed.

Failures and retries are always logged, with their traceback. Lines of attempts that begin and
succeed are limited to some hundred a second, because a worker can run more tasks than a terminal or
a log collector takes; the lines left out are counted. At level `debug` none is left out.

The lines go through the standard library's logger `rota.worker`, so a program that has not set up
logging sees failures on stderr, and nothing else.
"""

import asyncio
import logging
from typing import Any

from rota.core.tasks.model import TaskError
from rota.messages import LeaseView, ResultItem
from rota.sdk.timing import now_s
from rota.telemetry import library_logger

MAX_LINES_PER_S = 500  # of attempts that begin or succeed

_logger = logging.getLogger("rota.worker")
log = library_logger("rota.worker")


class AttemptLog:
    """Logs what happens to attempts, on the event loop it is made on."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._window_ends_at = 0.0
        self._lines = 0  # in this window
        self._is_full = False  # until the window ends, lines are only counted
        self._omitted = 0

    def note_begun(self, lease: LeaseView) -> None:
        if self._may_log():
            log.info("task_started", **_fields(lease))

    def note_ended(self, lease: LeaseView, item: ResultItem, *, began_at: float) -> None:
        """Log how an attempt ended, as its report says."""
        if item.ok:
            if self._may_log():
                log.info("task_succeeded", **_fields(lease), took_ms=_took_ms(began_at))
        elif item.snooze_ms is not None:
            if self._may_log():
                event = "task_rate_limited" if item.rate_limited else "task_snoozed"
                log.info(event, **_fields(lease), again_in_ms=item.snooze_ms)
        else:
            _log_failure(lease, item, took_ms=_took_ms(began_at))

    def _may_log(self) -> bool:
        if self._is_full:  # first, since it is asked for every task of a busy worker
            self._omitted += 1
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
        self._is_full = True
        self._omitted += 1
        self._loop.call_later(self._window_ends_at - now, self._log_omitted)
        return False

    def _log_omitted(self) -> None:
        self._is_full = False
        omitted, self._omitted = self._omitted, 0
        log.info(
            "task_lines_omitted",
            count=omitted,
            hint=f"more than {MAX_LINES_PER_S} lines a second; level debug shows all of them",
        )


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
