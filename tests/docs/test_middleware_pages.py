"""The middleware on the pages does what the pages say."""

from pathlib import Path
from typing import Any

import sentry_sdk
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from rota.testing import TestCoordinator, perform
from rota.testing.handlers import perform_attempt
from tests.docs.pages import ROOT, blocks

HOW_TO = ROOT / "docs" / "how-to"


def executed(page: Path, *wanted: int) -> dict[str, Any]:
    """The names that Python blocks of a page define."""
    names: dict[str, Any] = {"__name__": "page"}
    for number in wanted:
        exec(blocks(page, "python")[number].text, names)
    return names


def test_the_middleware_of_the_page_sends_the_tenant_and_times_the_handler() -> None:
    page = HOW_TO / "middleware.md"
    names = executed(page, 0)

    with TestCoordinator() as coordinator:
        coordinator.attach(names["app"])
        handle = names["whose"].enqueue()
        exec(blocks(page, "python")[1].text, names)
        coordinator.drain()

        assert handle.result() == "acme"
        assert names["handle"].result() == "globex"
    assert names["tenants"].seconds["whose"] >= 0


def test_the_app_of_the_page_on_opentelemetry_is_traced() -> None:
    page = HOW_TO / "trace-with-opentelemetry.md"
    exporter = InMemorySpanExporter()
    text = blocks(page, "python")[0].text.replace(
        "BatchSpanProcessor(ConsoleSpanExporter())", "SimpleSpanProcessor(EXPORTER)"
    )
    # The global provider can be set once in a process, and not for other tests.
    text = text.replace("trace.set_tracer_provider(provider)", "").replace(
        "RotaInstrumentor()", "RotaInstrumentor(tracer_provider=provider)"
    )
    names: dict[str, Any] = {
        "__name__": "page",
        "EXPORTER": exporter,
        "SimpleSpanProcessor": SimpleSpanProcessor,
    }
    exec(text, names)

    with TestCoordinator() as coordinator:
        coordinator.attach(names["app"])
        names["greet"].enqueue("you")
        coordinator.drain()

    sent, processed = exporter.get_finished_spans()
    assert (sent.name, processed.name) == ("send greet", "process greet")
    assert processed.parent is not None
    assert sent.context is not None
    assert processed.parent.span_id == sent.context.span_id


class EventInbox(Transport):
    """Keeps the envelopes that Sentry's client sends."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Any] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        self.events += [item.payload.json for item in envelope.items]


def test_the_app_of_the_page_on_sentry_reports_the_last_attempt() -> None:
    page = HOW_TO / "report-errors-to-sentry.md"
    inbox = EventInbox()
    text = blocks(page, "python")[0].text.replace("traces_sample_rate=0.1", "transport=INBOX")
    names: dict[str, Any] = {"__name__": "page", "INBOX": inbox}
    try:
        exec(text, names)
        assert perform(names["charge"], 1).outcome == "failed"
        assert inbox.events == []

        perform_attempt(5, names["charge"], 1)
    finally:
        sentry_sdk.get_client().close(timeout=0)
        sentry_sdk.get_global_scope().set_client(None)

    (event,) = inbox.events
    assert event["exception"]["values"][-1]["value"] == "the bank is closed"
    assert event["tags"]["rota.attempt"] == "5"
