"""The context of a trace in the headers of tasks and runs.

The propagator of the program writes and reads it: by default W3C `traceparent`, `tracestate` and
`baggage`.
"""

from collections.abc import Mapping, Sequence

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link

from rota.core.tasks.headers import TRACEPARENT
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
    if len(tasks) == 1 and tasks[0].attempt == 1:
        return first, []
    others = (context_of(one.headers) for one in tasks[:MOST_LINKS])
    links = {
        (link.context.trace_id, link.context.span_id): link
        for link in map(_link_to, others)
        if link is not None
    }
    # The baggage of one task stays; that of several would be mixed.
    kept = first if len(tasks) == 1 else Context()
    return trace.set_span_in_context(trace.INVALID_SPAN, kept), list(links.values())


def _link_to(context: Context) -> Link | None:
    """A link to the span of a context, if it has one."""
    found = trace.get_current_span(context).get_span_context()
    return Link(found) if found.is_valid else None
