"""Errors and traces in Sentry, from real workers; its transport keeps what it is given."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

import rota
from rota import Rota, Run
from rota.contrib.sentry import SentryMiddleware
from rota.sdk.client import calls
from tests.sdk.conftest import app, server
from tests.sdk.serving import PATIENCE_S, working

__all__ = ["app", "server"]  # fixtures


class Inbox(Transport):
    """Keeps the envelopes that Sentry's client sends."""

    def __init__(self) -> None:
        super().__init__()
        self._events: list[Any] = []
        self._lock = threading.Lock()

    def capture_envelope(self, envelope: Envelope) -> None:
        with self._lock:
            self._events += [item.payload.json for item in envelope.items if item.payload.json]

    def errors(self) -> list[Any]:
        return [one for one in self._events if "exception" in one]

    def messages(self) -> list[Any]:
        return [one for one in self._events if "message" in one]

    def transactions(self) -> list[Any]:
        return [one for one in self._events if one.get("type") == "transaction"]


@pytest.fixture
def sentry() -> Iterator[Inbox]:
    inbox = Inbox()
    sentry_sdk.init(
        dsn="http://key@127.0.0.1:1/1",
        transport=inbox,
        traces_sample_rate=1.0,
        default_integrations=False,
        auto_enabling_integrations=False,
    )
    yield inbox
    sentry_sdk.get_client().close(timeout=0)
    sentry_sdk.get_global_scope().set_client(None)


def told(event: Any) -> tuple[str, str]:
    last = event["exception"]["values"][-1]
    return last["type"], last["value"]


def test_an_error_is_reported_when_the_last_attempt_has_failed(app: Rota, sentry: Inbox) -> None:
    app.use_middleware(SentryMiddleware())

    @app.task(queue="mail", max_attempts=2, backoff={"kind": "none"})
    def send() -> None:
        raise ValueError(f"attempt {rota.current().attempt}")

    with working(app):
        handle = send.enqueue()
        with pytest.raises(rota.TaskFailed):
            handle.result(PATIENCE_S)

    (event,) = sentry.errors()
    assert told(event) == ("ValueError", "attempt 2")
    assert event["tags"] == {
        "rota.task": "send",
        "rota.queue": "mail",
        "rota.task_id": handle.id,
        "rota.attempt": "2",
    }
    assert event["contexts"]["rota"]["task_ids"] == [handle.id]
    frames = event["exception"]["values"][-1]["stacktrace"]["frames"]
    assert frames[-1]["function"] == "send"


def test_every_attempt_is_reported_if_asked(app: Rota, sentry: Inbox) -> None:
    app.use_middleware(SentryMiddleware(every_attempt=True))

    @app.task(max_attempts=2, backoff={"kind": "none"})
    async def send() -> None:
        raise ValueError(f"attempt {rota.current().attempt}")

    with working(app), pytest.raises(rota.TaskFailed):
        send.enqueue().result(PATIENCE_S)

    assert [told(one)[1] for one in sentry.errors()] == ["attempt 1", "attempt 2"]


def test_a_discarded_task_is_reported_at_once_and_a_snooze_never(app: Rota, sentry: Inbox) -> None:
    app.use_middleware(SentryMiddleware(every_attempt=True))
    asked: list[int] = []

    @app.task
    def refuse() -> None:
        raise rota.Discard(cause=PermissionError("no"))

    @app.task
    def later() -> None:
        asked.append(1)
        if len(asked) == 1:
            raise rota.Snooze(0)

    with working(app):
        later.enqueue().result(PATIENCE_S)
        with pytest.raises(rota.TaskFailed):
            refuse.enqueue().result(PATIENCE_S)

    assert [told(one) for one in sentry.errors()] == [("PermissionError", "no")]
    statuses = [
        one["contexts"]["trace"].get("status")
        for one in sentry.transactions()
        if one["transaction"] == "later"
    ]
    assert "internal_error" not in statuses
    assert len(statuses) == 2


def test_a_task_that_ran_past_its_time_is_reported_and_a_cancelled_one_is_not(
    app: Rota, sentry: Inbox
) -> None:
    app.use_middleware(SentryMiddleware())
    running = threading.Event()

    @app.task(max_attempts=1, timeout_ms=50)
    async def slow() -> None:
        await asyncio.Event().wait()

    @app.task(max_attempts=1)
    async def endless() -> None:
        running.set()
        await asyncio.Event().wait()

    with working(app):
        with pytest.raises(rota.TaskFailed):
            slow.enqueue().result(PATIENCE_S)
        handle = endless.enqueue()
        assert running.wait(PATIENCE_S)
        handle.cancel()
        with pytest.raises(rota.TaskCancelled):
            handle.result(PATIENCE_S)

    assert [told(one) for one in sentry.errors()] == [
        ("TimeoutError", "task 'slow' ran past its time")
    ]


def test_the_trace_of_the_sender_goes_on_in_the_worker(app: Rota, sentry: Inbox) -> None:
    app.use_middleware(SentryMiddleware())

    @app.task
    def greet() -> None: ...

    with working(app):
        with sentry_sdk.start_transaction(op="http", name="request"):
            handle = greet.enqueue()
        handle.result(PATIENCE_S)

    headers = app.client.run(calls.get_task(handle.id)).headers or {}
    request, processed = sorted(
        sentry.transactions(), key=lambda one: one["transaction"] == "greet"
    )
    (published,) = request["spans"]
    assert set(headers) == {"sentry-trace", "sentry-baggage"}
    assert processed["contexts"]["trace"]["trace_id"] == request["contexts"]["trace"]["trace_id"]
    assert processed["contexts"]["trace"]["parent_span_id"] == published["span_id"]
    assert (published["op"], processed["contexts"]["trace"]["op"]) == (
        "queue.publish",
        "queue.process",
    )


def test_scopes_of_concurrent_handlers_do_not_mix(app: Rota, sentry: Inbox) -> None:
    app.use_middleware(SentryMiddleware())
    met = threading.Barrier(2)

    @app.task(max_attempts=1)
    def both(name: str) -> None:
        sentry_sdk.set_tag("own", name)
        met.wait(PATIENCE_S)
        raise ValueError(name)

    with working(app):
        for handle in app.enqueue_many([both.bind("a"), both.bind("b")]):
            with pytest.raises(rota.TaskFailed):
                handle.result(PATIENCE_S)

    assert sorted((told(one)[1], one["tags"]["own"]) for one in sentry.errors()) == [
        ("a", "a"),
        ("b", "b"),
    ]
    sentry_sdk.capture_message("outside of both")
    assert "own" not in sentry.messages()[0].get("tags", {})


def test_items_of_a_batch_that_failed_are_reported_each(app: Rota, sentry: Inbox) -> None:
    app.use_middleware(SentryMiddleware())

    @app.task(max_attempts=1, batch=rota.Batch(size=2, wait_ms=5_000))
    def halve(items: list[int]) -> list[Any]:
        return [one // 2 if one % 2 == 0 else ValueError(f"{one} is odd") for one in items]

    with working(app):
        even, odd = app.enqueue_many([halve.bind(4), halve.bind(5)])
        assert even.result(PATIENCE_S) == 2
        with pytest.raises(rota.TaskFailed):
            odd.result(PATIENCE_S)

    (event,) = sentry.errors()
    assert (told(event)[1], event["tags"]["rota.task_id"]) == ("5 is odd", odd.id)


def test_a_step_belongs_to_the_task_that_runs_its_function_then(app: Rota, sentry: Inbox) -> None:
    app.use_middleware(SentryMiddleware())

    @app.task
    def double(number: int) -> int:
        return number * 2

    def tell(number: int) -> int:
        sentry_sdk.capture_message(f"got {number}")
        return number

    @app.workflow
    async def order(ctx: Run) -> int:
        number = await ctx.step(tell, 1)
        number = await ctx.call(double, number)  # the function is suspended meanwhile
        return await ctx.step(tell, number)

    with working(app):
        assert order.start().result(PATIENCE_S) == 2

    tasks = [one for one in sentry.transactions() if one["transaction"] == "workflow:order"]
    assert len(tasks) == 2
    for task, message in zip(tasks, sentry.messages(), strict=True):
        assert [one["description"] for one in task["spans"]] == ["tell"]
        assert message["tags"]["rota.task_id"] == task["tags"]["rota.task_id"]


def test_a_failed_function_is_reported_once_with_the_stack_of_its_step(
    app: Rota, sentry: Inbox
) -> None:
    app.use_middleware(SentryMiddleware())

    def charge() -> None:
        raise ConnectionError("the bank is closed")

    @app.workflow
    async def order(ctx: Run) -> None:
        await ctx.using(max_attempts=2, backoff={"kind": "none"}).step(charge)

    @app.workflow
    async def broken(_: Run) -> None:
        raise LookupError("no such order")

    with working(app):
        run = order.start()
        with pytest.raises(rota.RunFailed):
            run.result(PATIENCE_S)
        with pytest.raises(rota.RunFailed):
            broken.start().result(PATIENCE_S)

    bank, missing = sentry.errors()
    assert told(bank) == ("ConnectionError", "the bank is closed")
    assert bank["tags"]["rota.run_id"] == run.id
    assert bank["exception"]["values"][-1]["stacktrace"]["frames"][-1]["function"] == "charge"
    assert told(missing) == ("LookupError", "no such order")
