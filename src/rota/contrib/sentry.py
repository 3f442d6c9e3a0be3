"""Sentry: reports errors of handlers, each in a scope of its own, within the trace of the sender.

    import sentry_sdk
    from rota.contrib.sentry import SentryMiddleware

    sentry_sdk.init(dsn=…)
    app = Rota(middleware=[SentryMiddleware()])

It needs `rota[sentry]`. An error is reported when the task has failed for good: errors of attempts
that are retried would bury it.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import sentry_sdk
from sentry_sdk import Scope
from sentry_sdk.scope import use_isolation_scope, use_scope
from sentry_sdk.tracing import Span

from rota.core.tasks.headers import add_fitting
from rota.core.workflow.functions.model import FunctionReport
from rota.sdk.context import TaskContext
from rota.sdk.functions.errors import error_of
from rota.sdk.middleware.hooks import EnqueuedCall, HandlerCall, Middleware, StepExecution
from rota.sdk.outcomes import Cancelled, Discard, HandlerAnswer, RateLimited, Snooze
from rota.sdk.worker.runners.in_process import TIMED_OUT

ORIGIN = "auto.queue.rota"
# The headers of a trace. `baggage` has another name here, so that OpenTelemetry can use its own.
TRACE, BAGGAGE = "sentry-trace", "sentry-baggage"


class SentryMiddleware(Middleware):
    """Reports to the client that `sentry_sdk.init` has made."""

    def __init__(self, *, every_attempt: bool = False) -> None:
        """With `every_attempt`, errors of attempts that are retried are reported as well."""
        self._every_attempt = every_attempt
        self._running: dict[tuple[str, int], _Running] = {}  # by task and attempt

    @contextmanager
    def on_enqueue(self, calls: Sequence[EnqueuedCall], /) -> Iterator[None]:
        if not calls:
            yield
            return
        first = calls[0]
        with sentry_sdk.start_span(op="queue.publish", name=first.name, origin=ORIGIN) as span:
            span.set_data("messaging.system", "rota")
            if first.queue is not None:
                span.set_data("messaging.destination.name", first.queue)
            carrier = _carrier()
            for one in calls:
                add_fitting(one.headers, carrier)
            yield
            if len(calls) == 1 and first.id is not None:
                span.set_data("messaging.message.id", first.id)

    @contextmanager
    def on_execute(self, call: HandlerCall, /) -> Iterator[None]:
        context = call.context
        answer: BaseException | None = None
        with sentry_sdk.isolation_scope() as scope:
            scope.clear_breadcrumbs()
            _describe(scope, call)
            transaction = sentry_sdk.continue_trace(
                _trace_of(context.headers),
                op="queue.process",
                name=context.name,
                source="task",
                origin=ORIGIN,
            )
            with sentry_sdk.start_transaction(transaction) as span:
                _measure(span, context)
                running = _Running(sentry_sdk.get_current_scope(), scope)
                self._running[context.task_id, context.attempt] = running
                try:
                    yield
                except (Snooze, RateLimited) as error:  # not an error, so not for the transaction
                    span.set_status("ok")
                    answer = error
                except BaseException as error:
                    self._report(scope, error, context)
                    raise
                else:
                    self._report_result(running, call)
                finally:
                    self._running.pop((context.task_id, context.attempt), None)
        if answer is not None:
            raise answer

    @contextmanager
    def on_step(self, step: StepExecution, /) -> Iterator[None]:
        # A suspended function goes on under another task than the one in whose scope it began.
        running = self._running.get((step.context.task_id, step.context.attempt))
        if running is None:
            yield
            return
        with (
            use_isolation_scope(running.isolation),
            use_scope(running.current.fork()),
            sentry_sdk.start_span(op="queue.step", name=step.name, origin=ORIGIN) as span,
        ):
            span.set_data("rota.step.path", step.path)
            try:
                yield
            except Exception as error:
                running.step_error = error
                raise

    # --- reporting ------------------------------------------------------------------------------

    def _report_result(self, running: "_Running", call: HandlerCall) -> None:
        """Report failures that a handler returns, or that the worker has decided meanwhile."""
        result, context, scope = call.result, call.context, running.isolation
        if len(call.contexts) == 1 and context.cancel_reason == TIMED_OUT:
            self._report(scope, asyncio.CancelledError(), context)
        elif isinstance(result, HandlerAnswer):
            self._report(scope, result, context)
        elif isinstance(result, FunctionReport) and result.error is not None:
            _report_function(running, result.error)
        elif len(call.contexts) > 1 and isinstance(result, list | tuple):
            for one, own in zip(result, call.contexts, strict=False):
                if isinstance(one, BaseException):
                    scope.set_tag("rota.task_id", own.task_id)
                    self._report(scope, one, own)

    def _report(self, scope: Scope, error: BaseException, context: TaskContext) -> None:
        """Report an error, if the task has failed by it for good."""
        match error:
            case Snooze() | RateLimited():
                return
            case asyncio.CancelledError() | Cancelled() if context.cancel_reason != TIMED_OUT:
                return  # by a caller, or by a worker that stops
            case asyncio.CancelledError() | Cancelled():
                error = TimeoutError(f"task {context.name!r} ran past its time")
            case Discard(cause=Exception() as cause):
                scope.capture_exception(cause)
                return
            case Discard():
                scope.capture_exception(error)
                return
            case _:
                pass
        if self._every_attempt or context.is_last_attempt:
            scope.capture_exception(error)


class _Running:
    """A handler that runs: its scopes, and the last error of a step of it."""

    def __init__(self, current: Scope, isolation: Scope) -> None:
        self.current = current
        self.isolation = isolation
        self.step_error: Exception | None = None


def _report_function(running: _Running, failed: Mapping[str, Any]) -> None:
    """Report the error that ended a run of a function; it has failed for good."""
    scope, last = running.isolation, running.step_error
    if last is not None and _same(error_of(last), failed):
        scope.capture_exception(last)
        return
    kind, message = str(failed.get("type", "Error")), str(failed.get("message", ""))
    value = {"type": kind, "value": message, "mechanism": {"type": "rota", "handled": False}}
    scope.capture_event({"level": "error", "exception": {"values": [value]}})


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(one.get(field) == other.get(field) for field in ("type", "message"))


# --- the trace and the scope ----------------------------------------------------------------------


def _carrier() -> dict[str, str]:
    found = {TRACE: sentry_sdk.get_traceparent(), BAGGAGE: sentry_sdk.get_baggage()}
    return {name: value for name, value in found.items() if value}


def _trace_of(headers: Mapping[str, str]) -> dict[str, str]:
    names = {TRACE: TRACE, "baggage": BAGGAGE}
    return {name: headers[header] for name, header in names.items() if header in headers}


def _describe(scope: Scope, call: HandlerCall) -> None:
    context = call.context
    scope.set_tag("rota.task", context.name)
    scope.set_tag("rota.queue", context.queue)
    scope.set_tag("rota.task_id", context.task_id)
    scope.set_tag("rota.attempt", str(context.attempt))
    if context.run_id is not None:
        scope.set_tag("rota.run_id", context.run_id)
    about = {
        "name": context.name,
        "queue": context.queue,
        "task_ids": [one.task_id for one in call.contexts],
        "attempt": context.attempt,
        "max_attempts": context.max_attempts,
        "run_id": context.run_id,
    }
    scope.set_context("rota", about)


def _measure(span: Span, context: TaskContext) -> None:
    span.set_data("messaging.system", "rota")
    span.set_data("messaging.destination.name", context.queue)
    span.set_data("messaging.message.id", context.task_id)
    span.set_data("messaging.message.retry.count", context.attempt - 1)
