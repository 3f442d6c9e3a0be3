"""The tracing middleware: a span for each submission, each call of a handler, and each step.

The first attempt of a task is a child of the span that sent it. A later attempt, and a batch of
several tasks, begin a trace of their own with links to the spans that sent their tasks: a trace
that is retried for days, or joined with a thousand others, would be of no use. The first task after
a join of a run has links to the spans of the joined tasks, whose workers report them. Steps of a
durable function are children of the span of the task that runs the function.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from opentelemetry import context as contexts
from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider

import rota
from rota.contrib.otel.metrics import ERROR_TYPE, Attributes, TaskMetrics
from rota.contrib.otel.propagation import (
    context_of,
    current_carrier,
    origin_of,
    traceparent_of,
)
from rota.core.tasks.headers import add_fitting
from rota.core.workflow.functions.model import FunctionReport
from rota.sdk.context import TaskContext
from rota.sdk.middleware.hooks import EnqueuedCall, HandlerCall, Middleware, StepExecution
from rota.sdk.outcomes import (
    TIMEOUT,
    Cancelled,
    Discard,
    HandlerAnswer,
    RateLimited,
    Snooze,
    message_of,
    type_name,
)
from rota.sdk.worker.runners.in_process import TIMED_OUT

OUTCOME = "rota.task.outcome"
INSTRUMENTATION = "rota.contrib.otel"

_SYSTEM: Attributes = {"messaging.system": "rota"}
_SEND: Attributes = {"messaging.operation.name": "send", "messaging.operation.type": "send"}
_PROCESS: Attributes = {
    "messaging.operation.name": "process",
    "messaging.operation.type": "process",
}


class TracingMiddleware(Middleware):
    """Spans and metrics through the providers of the program."""

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
    ) -> None:
        """Providers that are not given are the global ones of the program."""
        version = rota.__version__
        self._tracer = trace.get_tracer(INSTRUMENTATION, version, tracer_provider)
        meter = metrics.get_meter(INSTRUMENTATION, version, meter_provider)
        self._metrics = TaskMetrics(meter)
        self._running: dict[tuple[str, int], Context] = {}  # by task and attempt, for their steps

    # --- enqueueing -----------------------------------------------------------------------------

    @contextmanager
    def on_enqueue(self, calls: Sequence[EnqueuedCall], /) -> Iterator[None]:
        if not calls:
            yield
            return
        names = {one.name for one in calls}
        name = names.pop() if len(names) == 1 else "tasks"
        shared: Attributes = {**_SYSTEM, **_SEND, **_destination(calls), **_name_of(calls[0], name)}
        with (
            self._metrics.sending(dict(shared), len(calls)) as measured,
            self._tracer.start_as_current_span(
                f"send {name}",
                kind=SpanKind.PRODUCER,
                attributes=shared,
                record_exception=False,
                set_status_on_exception=False,
            ) as span,
        ):
            carrier = current_carrier()
            for one in calls:
                add_fitting(one.headers, carrier)
            try:
                yield
            except BaseException as error:
                _fail(span, error, measured)
                raise
            if len(calls) > 1:
                span.set_attribute("messaging.batch.message_count", len(calls))
            elif calls[0].id is not None:
                span.set_attribute("messaging.message.id", calls[0].id)
                span.set_attribute("rota.duplicate", calls[0].is_duplicate)

    # --- executing ------------------------------------------------------------------------------

    @contextmanager
    def on_execute(self, call: HandlerCall, /) -> Iterator[None]:
        parent, links = origin_of(call.contexts)
        context, count = call.context, len(call.contexts)
        shared: Attributes = {
            **_SYSTEM,
            **_PROCESS,
            "messaging.destination.name": context.queue,
            "rota.task.name": context.name,
        }
        token = contexts.attach(parent)  # the handler sees the baggage of the sender, too
        try:
            with (
                self._metrics.processing(dict(shared), count) as measured,
                self._tracer.start_as_current_span(
                    f"process {context.name}",
                    kind=SpanKind.CONSUMER,
                    attributes={**shared, **_attempt_of(call)},
                    links=links,
                    record_exception=False,
                    set_status_on_exception=False,
                ) as span,
                self._noted(context),
            ):
                _report_span(span, call)
                try:
                    yield
                except BaseException as error:
                    _note_error(span, error, context, measured)
                    raise
                _note_result(span, call, measured)
        finally:
            contexts.detach(token)

    @contextmanager
    def _noted(self, context: TaskContext) -> Iterator[None]:
        """Note the current span as that of a task, which the steps of a function look for."""
        key = context.task_id, context.attempt
        self._running[key] = contexts.get_current()
        try:
            yield
        finally:
            self._running.pop(key, None)

    # --- steps ----------------------------------------------------------------------------------

    @contextmanager
    def on_step(self, step: StepExecution, /) -> Iterator[None]:
        task = step.context
        # A suspended function goes on under another task than the one in whose context it began.
        parent = self._running.get((task.task_id, task.attempt))
        attributes: Attributes = {
            **_SYSTEM,
            "rota.step.name": step.name,
            "rota.step.path": step.path,
            "rota.step.attempt": step.attempt,
            "rota.task.name": task.name,
        }
        if task.run_id is not None:
            attributes["messaging.message.conversation_id"] = task.run_id
        with self._tracer.start_as_current_span(
            f"step {step.name}",
            context=context_of(task.headers) if parent is None else parent,
            kind=SpanKind.INTERNAL,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except BaseException as error:
                _note_error(span, error, task, {})
                raise


def _report_span(span: Span, call: HandlerCall) -> None:
    """Report the span with the results, for the links of the task after a join."""
    traceparent = traceparent_of(span)
    if traceparent is not None:
        for one in call.contexts:
            one.note_trace(traceparent)


# --- attributes -----------------------------------------------------------------------------------


def _destination(calls: Sequence[EnqueuedCall]) -> Attributes:
    queues = {one.queue for one in calls}
    queue = queues.pop() if len(queues) == 1 else None
    return {} if queue is None else {"messaging.destination.name": queue}


def _name_of(call: EnqueuedCall, name: str) -> Attributes:
    return {"rota.task.name" if call.kind == "task" else "rota.workflow.name": name}


def _attempt_of(call: HandlerCall) -> Attributes:
    """What is known of one attempt; of a batch how many tasks it has."""
    if len(call.contexts) > 1:
        return {"messaging.batch.message_count": len(call.contexts)}
    context = call.context
    attributes: Attributes = {
        "messaging.message.id": context.task_id,
        "messaging.message.retry.count": context.attempt - 1,
        "rota.task.attempt": context.attempt,
        "rota.task.max_attempts": context.max_attempts,
    }
    if context.run_id is not None:
        attributes["messaging.message.conversation_id"] = context.run_id
    return attributes


# --- outcomes -------------------------------------------------------------------------------------


def _note_result(span: Span, call: HandlerCall, measured: Attributes) -> None:
    result = call.result
    if len(call.contexts) == 1 and call.context.is_cancelled:  # a thread cannot be stopped
        _note_error(span, asyncio.CancelledError(), call.context, measured)
        return
    if isinstance(result, HandlerAnswer):  # a handler may return what others raise
        _note_error(span, result, call.context, measured)
        return
    if isinstance(result, FunctionReport) and result.error is not None:
        kind = str(result.error.get("type", "Error"))
        _set_failed(span, kind, str(result.error.get("message", "")), measured)
        return
    if len(call.contexts) > 1 and isinstance(result, list | tuple):
        failed = [one for one in result if isinstance(one, BaseException)]
        if failed:
            span.set_attribute("rota.batch.failed_count", len(failed))
            _fail(span, failed[0], measured)
            return
    span.set_attribute(OUTCOME, "succeeded")


def _note_error(
    span: Span, error: BaseException, context: TaskContext, measured: Attributes
) -> None:
    """Note how a handler or a step ended that did not return."""
    if isinstance(error, Snooze | RateLimited):
        span.set_attribute(OUTCOME, "snoozed")
    elif isinstance(error, asyncio.CancelledError | Cancelled):
        if context.cancel_reason == TIMED_OUT:
            _set_failed(span, TIMEOUT, "ran past its time", measured)
        else:
            span.set_attribute(OUTCOME, "cancelled")
    elif isinstance(error, Discard) and error.cause is not None:
        _fail(span, error.cause, measured)
    else:
        _fail(span, error, measured)


def _fail(span: Span, error: BaseException, measured: Attributes) -> None:
    span.record_exception(error)
    _set_failed(span, type_name(error), message_of(error), measured)


def _set_failed(span: Span, kind: str, message: str, measured: Attributes) -> None:
    measured[ERROR_TYPE] = kind
    span.set_attribute(ERROR_TYPE, kind)
    span.set_attribute(OUTCOME, "failed")
    span.set_status(Status(StatusCode.ERROR, message))
