"""A wait without a timeout for a task that nobody can run says so once, and goes on."""

import asyncio
import logging
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import structlog

from rota import Rota, TaskHandle
from rota.messages.dashboard import TaskTimeline, WhyView
from rota.sdk.client import requests
from rota.sdk.client.client import Client
from rota.sdk.encoding import decoder_of
from rota.sdk.transport.transport import Response, TransportRequest
from tests.sdk.serving import PATIENCE_S, working

LOGGER = "rota.client"
STUCK = WhyView(code="no_workers", text="no worker is registered", is_stuck=True)
BUSY = WhyView(code="workers_busy", text="all 2 places of 1 worker are taken")


def task(state: str) -> Response:
    return Response(
        200,
        msgspec.json.encode(
            {
                "id": "t1",
                "name": "add",
                "state": state,
                "queue": "default",
                "priority": 0,
                "payload": None,
                "requires": [],
                "attempt": 0,
                "max_attempts": 1,
                "created_at_ms": 1,
                "result": 3,
            }
        ),
        {},
    )


def timeline(why: WhyView) -> Response:
    found = TaskTimeline(id="t1", state="queued", events=[], attempts=[], why=why, fence=0)
    return Response(200, msgspec.json.encode(found), {})


REFUSED = Response(403, b'{"code": "forbidden", "detail": "not yours"}', {})


class ScriptedTransport:
    """Gives these responses in turn, and keeps the requests."""

    address = "http://here"
    is_embedded = False

    def __init__(self, *responses: Response) -> None:
        self._responses = iter(responses)
        self.paths: list[str] = []

    def send(self, request: TransportRequest) -> Response:
        self.paths.append(request.path)
        return next(self._responses)

    async def asend(self, request: TransportRequest) -> Response:
        return self.send(request)

    def close(self) -> None: ...


def handle_on(transport: ScriptedTransport) -> TaskHandle[Any]:
    client = Client(transport)
    return TaskHandle("t1", lambda: client, decoder_of(Any))


@pytest.fixture(autouse=True)
def at_warning() -> Iterator[None]:
    """Log as a program that has set up nothing; a command that ran here may have set a level."""
    logger = logging.getLogger(LOGGER)
    level, configured = logger.level, structlog.get_config()
    structlog.reset_defaults()
    logger.setLevel(logging.WARNING)
    yield
    logger.setLevel(level)
    structlog.configure(**configured)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits that count as long from their beginning."""
    monkeypatch.setattr(requests, "REASON_AFTER_S", 0.0)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("is_async", [False, True], ids=["result", "aresult"])
def test_a_long_wait_logs_once_why_the_task_cannot_start_and_goes_on(
    caplog: pytest.LogCaptureFixture, *, is_async: bool
) -> None:
    transport = ScriptedTransport(
        task("queued"), timeline(STUCK), task("queued"), task("queued"), task("succeeded")
    )
    handle = handle_on(transport)

    result = asyncio.run(handle.aresult()) if is_async else handle.result()

    assert result == 3
    (record,) = caplog.records
    assert (record.name, record.levelno) == (LOGGER, logging.WARNING)
    assert "task_cannot_start" in record.getMessage()
    assert STUCK.text in record.getMessage()
    assert transport.paths == [
        "/api/tasks/t1",
        "/api/tasks/t1/timeline",
        *["/api/tasks/t1?wait_ms=30000"] * 3,
    ]


def test_a_wait_that_ends_soon_costs_one_call(caplog: pytest.LogCaptureFixture) -> None:
    transport = ScriptedTransport(task("succeeded"))

    assert handle_on(transport).result() == 3

    (path,) = transport.paths
    wait_ms = int(path.removeprefix("/api/tasks/t1?wait_ms="))
    assert wait_ms == requests.REASON_AFTER_S * 1000
    assert not caplog.records


def test_a_coordinator_that_answers_early_is_not_asked_for_a_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    transport = ScriptedTransport(task("queued"), task("queued"), task("succeeded"))

    assert handle_on(transport).result() == 3

    assert not any("timeline" in path for path in transport.paths)
    assert not caplog.records


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("answer", [REFUSED, timeline(BUSY)], ids=["refused", "workers are busy"])
def test_a_long_wait_goes_on_in_silence_if_there_is_nothing_to_do_about_it(
    caplog: pytest.LogCaptureFixture, answer: Response
) -> None:
    transport = ScriptedTransport(task("queued"), answer, task("succeeded"))

    assert handle_on(transport).result() == 3
    assert not caplog.records


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(("state", "timeout"), [("running", None), ("queued", 60)])
def test_a_running_task_and_a_wait_with_a_timeout_ask_for_no_reason(
    state: str, timeout: float | None
) -> None:
    transport = ScriptedTransport(task(state), task("succeeded"))

    assert handle_on(transport).result(timeout) == 3


class Signal(logging.Handler):
    """Signals the first record."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        self.came = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage()
        self.came.set()


@pytest.fixture
def signal() -> Iterator[Signal]:
    handler = Signal()
    logging.getLogger(LOGGER).addHandler(handler)
    yield handler
    logging.getLogger(LOGGER).removeHandler(handler)


@pytest.mark.usefixtures("at_once", "server")
def test_a_caller_learns_that_no_worker_is_there_and_gets_its_result_when_one_comes(
    app: Rota, signal: Signal
) -> None:
    @app.task
    def double(number: int) -> int:
        return 2 * number

    handle = double.enqueue(21)
    results: list[int] = []
    waiting = threading.Thread(target=lambda: results.append(handle.result()))
    waiting.start()
    assert signal.came.wait(PATIENCE_S)
    with working(app):
        waiting.join(PATIENCE_S)

    assert results == [42]
    assert "no worker is registered" in signal.text
