"""Spans and metrics of real workers, through the SDK of OpenTelemetry."""

import asyncio
from pathlib import Path

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

import rota
from rota import Rota, Run
from rota.core.tasks.headers import add_fitting, size_of
from rota.messages import TaskView
from rota.sdk.client import calls
from tests.contrib import traced_tasks
from tests.contrib.tracing import Traces, context_of, id_of, is_child, linked
from tests.sdk.conftest import app, server
from tests.sdk.serving import PATIENCE_S, Server, working

__all__ = ["app", "server"]  # fixtures


@pytest.fixture
def traces(app: Rota) -> Traces:
    traces = Traces()
    traces.instrumentor.instrument(app)
    return traces


def task_of(app: Rota, task_id: str) -> TaskView:
    return app.client.run(calls.get_task(task_id))


def attributes(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


# --- parents and links ----------------------------------------------------------------------------


def test_the_first_attempt_is_a_child_of_the_send_span(app: Rota, traces: Traces) -> None:
    inside: list[int] = []

    @app.task(queue="mail")
    def greet(name: str) -> str:
        inside.append(trace.get_current_span().get_span_context().span_id)
        return name

    with working(app), traces.tracer.start_as_current_span("request"):
        handle = greet.enqueue("you")
        handle.result(PATIENCE_S)

    request, sent, processed = (
        traces.span(one) for one in ("request", "send greet", "process greet")
    )
    assert is_child(sent, request)
    assert is_child(processed, sent)
    assert inside == [id_of(processed)]
    assert (sent.kind, processed.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert attributes(sent) == {
        "messaging.system": "rota",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "mail",
        "messaging.message.id": handle.id,
        "rota.task.name": "greet",
        "rota.duplicate": False,
    }
    assert attributes(processed) == {
        "messaging.system": "rota",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "mail",
        "messaging.message.id": handle.id,
        "messaging.message.retry.count": 0,
        "rota.task.name": "greet",
        "rota.task.attempt": 1,
        "rota.task.max_attempts": 3,
        "rota.task.outcome": "succeeded",
    }


async def test_async_tasks_are_traced_as_plain_ones(app: Rota, traces: Traces) -> None:
    @app.task
    async def inner() -> None: ...

    @app.task
    async def outer() -> str:
        return (await inner.aenqueue()).id

    with working(app):
        handle = await (await outer.aenqueue()).aresult(PATIENCE_S)
        await app.handle(handle).aresult(PATIENCE_S)

    assert is_child(traces.span("process outer"), traces.span("send outer"))
    assert is_child(traces.span("send inner"), traces.span("process outer"))
    assert is_child(traces.span("process inner"), traces.span("send inner"))


def test_a_retry_begins_a_trace_with_a_link_to_the_send_span(app: Rota, traces: Traces) -> None:
    @app.task(max_attempts=2, backoff={"kind": "none"})
    def flaky() -> int:
        if rota.current().attempt == 1:
            raise ValueError("not yet")
        return 2

    with working(app):
        assert flaky.enqueue().result(PATIENCE_S) == 2

    sent = traces.span("send flaky")
    first, second = traces.spans("process flaky")
    assert is_child(first, sent)
    assert (second.parent, linked(second)) == (None, [id_of(sent)])
    assert context_of(second).trace_id != context_of(sent).trace_id
    assert attributes(second)["messaging.message.retry.count"] == 1
    assert (first.status.status_code, first.status.description) == (StatusCode.ERROR, "not yet")
    assert attributes(first)["error.type"] == "ValueError"
    (event,) = first.events
    assert (event.name, dict(event.attributes or {})["exception.message"]) == (
        "exception",
        "not yet",
    )
    assert second.status.status_code is StatusCode.UNSET


def test_a_batch_links_to_the_span_that_sent_each_task(app: Rota, traces: Traces) -> None:
    @app.task(batch=rota.Batch(size=3, wait_ms=5_000))
    def add(items: list[int]) -> list[int]:
        return [one + 1 for one in items]

    with working(app):
        handles = [add.enqueue(1), *app.enqueue_many([add.bind(2), add.bind(3)])]
        assert [one.result(PATIENCE_S) for one in handles] == [2, 3, 4]

    alone, many = traces.spans("send add")
    processed = traces.span("process add")
    assert attributes(many)["messaging.batch.message_count"] == 2
    assert attributes(processed)["messaging.batch.message_count"] == 3
    assert processed.parent is None
    assert sorted(linked(processed)) == sorted([id_of(alone), id_of(many)])


def test_the_span_of_a_snoozed_or_cancelled_attempt_is_no_error(app: Rota, traces: Traces) -> None:
    snoozed: list[int] = []

    @app.task
    def later() -> None:
        if not snoozed:
            snoozed.append(1)
            raise rota.Snooze(0)

    @app.task
    def returned() -> object:
        if len(snoozed) < 2:
            snoozed.append(2)
            return rota.Snooze(0)
        return None

    with working(app):
        later.enqueue().result(PATIENCE_S)
        returned.enqueue().result(PATIENCE_S)

    for name in ("process later", "process returned"):
        spans = traces.spans(name)
        assert [attributes(one)["rota.task.outcome"] for one in spans] == ["snoozed", "succeeded"]
        assert all(one.status.status_code is StatusCode.UNSET for one in spans)


@pytest.mark.parametrize("place", ["loop", "thread"])
def test_an_attempt_that_ran_past_its_time_is_an_error(
    app: Rota, traces: Traces, place: str
) -> None:
    if place == "loop":

        @app.task(name="slow", max_attempts=1, timeout_ms=50)
        async def slow() -> None:
            await asyncio.Event().wait()

        task: rota.Task[[], None] = slow
    else:

        @app.task(name="slow", max_attempts=1, timeout_ms=50)
        def slow_in_thread() -> None:
            while not rota.current().is_cancelled:
                pass

        task = slow_in_thread

    with working(app), pytest.raises(rota.TaskFailed, match="50 ms"):
        task.enqueue().result(PATIENCE_S)

    assert attributes(traces.span("process slow"))["error.type"] == "timeout"


def test_baggage_reaches_the_handler_and_what_is_too_large_is_left_out(
    app: Rota, traces: Traces
) -> None:
    @app.task
    def tenant() -> object:
        return baggage.get_baggage("tenant")

    with working(app):
        token = context.attach(baggage.set_baggage("tenant", "acme"))
        small = tenant.enqueue()
        context.attach(baggage.set_baggage("tenant", "x" * 600))
        large = tenant.enqueue()
        context.detach(token)

        assert small.result(PATIENCE_S) == "acme"
        assert large.result(PATIENCE_S) is None

    assert list(task_of(app, large.id).headers or {}) == ["traceparent"]


def test_headers_that_fit_beside_others_are_added_and_the_rest_is_left_out() -> None:
    headers = {f"h{number}": "v" * 500 for number in range(4)}

    add_fitting(headers, {"traceparent": "t" * 24, "baggage": "b", "n" * 65: ""})

    assert size_of(headers) <= 2048
    assert headers["traceparent"] == "t" * 24
    assert set(headers) == {"h0", "h1", "h2", "h3", "traceparent"}


# --- workflows ------------------------------------------------------------------------------------

FLOW = """
name: flow
initial_node: one
nodes:
  one: {task: echo}
  two: {task: echo}
transitions: [{from: one, to: two}]
"""


def test_the_tasks_of_a_run_are_children_of_the_span_that_started_it(
    app: Rota, traces: Traces
) -> None:
    @app.task
    def echo() -> None: ...

    with working(app):
        run = app.workflow(FLOW).start({})
        run.result(PATIENCE_S)

    sent = traces.span("send flow")
    processed = traces.spans("process echo")
    assert attributes(sent)["rota.workflow.name"] == "flow"
    assert attributes(sent)["messaging.message.id"] == run.id
    assert len(processed) == 2
    assert all(is_child(one, sent) for one in processed)
    assert {attributes(one)["messaging.message.conversation_id"] for one in processed} == {run.id}


def test_steps_of_a_function_are_children_of_the_task_that_runs_it_then(
    app: Rota, traces: Traces
) -> None:
    @app.task
    def double(number: int) -> int:
        return number * 2

    def plain(number: int) -> int:
        return number + 1

    async def flaky(number: int) -> int:
        if len(traces.spans("step flaky")) < 1:
            raise ValueError("not yet")
        return number + 1

    @app.workflow
    async def order(ctx: Run, number: int) -> int:
        number = await ctx.step(plain, number)
        number = await ctx.call(double, number)  # the function is suspended meanwhile
        return await ctx.using(backoff={"kind": "none"}).step(flaky, number)

    with working(app):
        assert order.start(1).result(PATIENCE_S) == 5

    sent = traces.span("send order")
    first, second = traces.spans("process workflow:order")
    failed, repeated = traces.spans("step flaky")
    assert is_child(first, sent)
    assert is_child(second, sent)
    assert is_child(traces.span("process double"), sent)
    assert is_child(traces.span("step plain"), first)
    assert is_child(failed, second)
    assert is_child(repeated, second)
    assert failed.status.status_code is StatusCode.ERROR
    assert repeated.status.status_code is StatusCode.UNSET
    assert attributes(repeated)["rota.step.attempt"] == 2
    assert attributes(repeated)["rota.step.path"] == "flaky#1"


def test_a_function_that_fails_is_an_error_of_its_task(app: Rota, traces: Traces) -> None:
    @app.workflow
    async def broken(_: Run) -> None:
        raise LookupError("no such order")

    with working(app), pytest.raises(rota.RunFailed):
        broken.start().result(PATIENCE_S)

    span = traces.span("process workflow:broken")
    assert span.status.status_code is StatusCode.ERROR
    assert attributes(span)["error.type"] == "LookupError"


# --- places ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", [traced_tasks.process_id, traced_tasks.async_process_id])
def test_a_task_in_a_process_is_traced_there(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: rota.Task[[], int]
) -> None:
    file = tmp_path / "spans"
    monkeypatch.setenv(traced_tasks.FILE, str(file))
    with Rota(server.url) as connected:
        traced_tasks.app.use(connected.client)
        try:
            with working(traced_tasks.app):
                child = task.enqueue().result(PATIENCE_S)
        finally:
            traced_tasks.app.reset()

    by_name = {line.split("|")[0]: line.split("|")[1:] for line in file.read_text().splitlines()}
    sent, processed = by_name[f"send {task.name}"], by_name[f"process {task.name}"]
    assert processed[1] == sent[0]
    assert int(processed[2]) == child != int(sent[2])


def test_the_embedded_mode_is_traced(tmp_path: Path) -> None:
    traces = Traces()
    app = Rota(f"sqlite:///{tmp_path}/rota.db")
    traces.instrumentor.instrument(app)

    @app.task
    def greet() -> str:
        return "hello"

    with app:
        assert greet.enqueue().result(PATIENCE_S) == "hello"

    assert is_child(traces.span("process greet"), traces.span("send greet"))


# --- sending, metrics, on and off -----------------------------------------------------------------


def test_a_submission_that_is_refused_is_an_error_of_the_send_span(
    app: Rota, traces: Traces
) -> None:
    with pytest.raises(rota.Invalid):
        app.enqueue("any", delay_ms=5, run_at_ms=5)

    span = traces.span("send any")
    assert span.status.status_code is StatusCode.ERROR
    assert attributes(span)["error.type"] == "rota.errors.Invalid"
    ((measured, _, count),) = traces.metric("messaging.client.operation.duration")
    assert (measured["error.type"], count) == ("rota.errors.Invalid", 1)


def test_durations_and_active_tasks_are_measured(app: Rota, traces: Traces) -> None:
    during: list[float] = []

    @app.task
    def greet() -> None:
        during.extend(value for _, value, _ in traces.metric("rota.tasks.active"))

    with working(app):
        greet.enqueue().result(PATIENCE_S)

    assert during == [1.0]
    ((_, active, _),) = traces.metric("rota.tasks.active")
    assert active == 0.0
    ((measured, seconds, count),) = traces.metric("messaging.process.duration")
    assert (measured["rota.task.name"], count, seconds > 0) == ("greet", 1, True)
    ((_, sent, _),) = traces.metric("messaging.client.sent.messages")
    assert sent == 1.0


def test_an_app_is_instrumented_once_and_not_at_all_after_uninstrument(app: Rota) -> None:
    traces = Traces()

    traces.instrumentor.instrument(app)
    traces.instrumentor.instrument(app)
    app.enqueue("once")
    traces.instrumentor.uninstrument(app)
    traces.instrumentor.uninstrument(app)
    app.enqueue("never")

    assert len(traces.spans("send once")) == 1
    assert traces.spans("send never") == []
    assert app.middleware is None
