"""A traced task that runs in a process, which imports it from here; its spans go to a file."""

import os
from collections.abc import Sequence
from pathlib import Path

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

import rota
from rota import Rota
from rota.contrib.otel import RotaInstrumentor
from rota.core.tasks.trace_links import LINKS

FILE = "ROTA_TEST_SPANS"


class FileExporter(SpanExporter):
    """Appends a line for each span: name, trace, parent, process."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with Path(os.environ[FILE]).open("a", encoding="utf-8") as file:
            for one in spans:
                context, parent = one.get_span_context(), one.parent
                assert context is not None
                above = "" if parent is None else f"{parent.span_id:016x}"
                file.write(f"{one.name}|{context.span_id:016x}|{above}|{os.getpid()}\n")
        return SpanExportResult.SUCCESS


provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(FileExporter()))
app = Rota("http://127.0.0.1:1")  # tests give it another way
RotaInstrumentor(tracer_provider=provider).instrument(app)


@app.task(run_in="process")
def process_id() -> int:
    return os.getpid()


@app.task(run_in="process")
async def async_process_id() -> int:
    return os.getpid()


@app.task(run_in="process")
def double_in_process(item: int) -> int:
    return item * 2


@app.task(run_in="process")
def links_in_process() -> str:
    return rota.current().headers[LINKS]
