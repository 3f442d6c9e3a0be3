"""The context of a trace in the headers of tasks and runs.

The propagator of the program writes and reads it: by default W3C `traceparent`, `tracestate` and
`baggage`.
"""

from collections.abc import Mapping, Sequence
from itertools import chain, islice

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, TraceFlags

from rota.core.tasks.headers import TRACEPARENT
from rota.core.tasks.trace_links import LINKS, decode_links
from rota.sdk.context import TaskContext

MOST_LINKS = 128  # of one span, as many as the SDK keeps by default


def current_carrier() -> dict[str, str]:
    """The current context as headers, the trace itself first."""
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return dict(sorted(carrier.items(), key=lambda one: one[0] != TRACEPARENT))


def context_of(headers: Mapping[str, str]) -> Context:
    """The context that headers carry; without any an empty one, never that of the worker."""
    return propagate.extract(headers, context=Context())


def origin_of(tasks: Sequence[TaskContext]) -> tuple[Context, list[Link]]:
    """The parent of the span of a call of a handler, and its links."""
    first = context_of(tasks[0].headers)
    is_child = len(tasks) == 1 and tasks[0].attempt == 1
    senders = () if is_child else (_span_of(context_of(one.headers)) for one in tasks[:MOST_LINKS])
    joined = (span for one in tasks for span in joined_spans(one.headers))
    spans = {
        (span.trace_id, span.span_id): Link(span)
        for span in chain(senders, joined)
        if span.is_valid
    }
    links = list(islice(spans.values(), MOST_LINKS))
    if is_child:
        return first, links
    # The baggage of one task stays; that of several would be mixed.
    kept = first if len(tasks) == 1 else Context()
    return trace.set_span_in_context(trace.INVALID_SPAN, kept), links


def joined_spans(headers: Mapping[str, str]) -> list[SpanContext]:
    """The spans of the tasks that a run has joined before a task, as its headers carry them."""
    found = headers.get(LINKS)
    if found is None:
        return []
    return [
        SpanContext(int(trace_id, 16), int(span_id, 16), True, TraceFlags(int(flags, 16)))  # noqa: FBT003 - `is_remote`
        for trace_id, span_id, flags in decode_links(found)
    ]


def traceparent_of(span: Span) -> str | None:
    """The W3C context of a span, whatever the propagator of the program; None: it is not valid."""
    found = span.get_span_context()
    if not found.is_valid:
        return None
    return f"00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags:02x}"


def _span_of(context: Context) -> SpanContext:
    return trace.get_current_span(context).get_span_context()
