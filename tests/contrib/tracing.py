"""Spans and metrics of a test: in memory, through providers of its own."""

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext

from rota.contrib.otel import RotaInstrumentor


class Traces:
    """What was recorded so far."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("test")
        self.instrumentor = RotaInstrumentor(
            tracer_provider=self.provider,
            meter_provider=MeterProvider(metric_readers=[self._reader]),
        )

    def spans(self, name: str) -> list[ReadableSpan]:
        """The ended spans of a name, in the order of their starts."""
        found = [one for one in self._exporter.get_finished_spans() if one.name == name]
        return sorted(found, key=lambda one: one.start_time or 0)

    def span(self, name: str) -> ReadableSpan:
        (found,) = self.spans(name)
        return found

    def metric(self, name: str) -> list[tuple[dict[str, object], float, int]]:
        """The points of a metric: attributes, sum or value, and how many were counted."""
        data = self._reader.get_metrics_data()
        return [
            (
                dict(point.attributes or {}),
                float(getattr(point, "sum", getattr(point, "value", 0))),
                int(getattr(point, "count", 1)),
            )
            for resource in (data.resource_metrics if data else [])
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


def is_child(span: ReadableSpan, parent: ReadableSpan) -> bool:
    return span.parent is not None and span.parent.span_id == id_of(parent)


def linked(span: ReadableSpan) -> list[int]:
    """The ids of the spans that a span links to."""
    return [one.context.span_id for one in span.links]


def id_of(span: ReadableSpan) -> int:
    return context_of(span).span_id


def context_of(span: ReadableSpan) -> SpanContext:
    context = span.get_span_context()
    assert context is not None
    return context
