"""What handlers log is kept with their attempts, from wherever they run."""

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from rota import Retry, Rota, Run, TaskFailed, Worker, current
from rota.core import limits
from rota.errors import Invalid
from rota.messages import LogLineView, LogPage
from rota.sdk.client import calls
from rota.sdk.client.client import Client, open_transport
from rota.sdk.transport.transport import Response, TransportRequest
from rota.sdk.worker import log_reporting
from tests.sdk.serving import PATIENCE_S, Server, working

pytestmark = pytest.mark.usefixtures("transport")


def log_of(app: Rota, task_id: str, **query: Any) -> LogPage:
    return app.client.run(calls.get_logs(task_id, **query))


def messages(page: LogPage) -> list[str]:
    return [one.message for one in page.items]


def fields_of(line: LogLineView) -> Any:
    return None if line.fields is None else msgspec.json.decode(line.fields)


@contextmanager
def level_of(logger: logging.Logger, level: int) -> Iterator[None]:
    before = logger.level
    logger.setLevel(level)
    yield
    logger.setLevel(before)


# --- what is kept ---------------------------------------------------------------------------------


def test_lines_are_there_with_the_result_whatever_the_program_logs(app: Rota) -> None:
    @app.task
    def resize(path: str) -> None:
        log = current().log
        log.debug("not kept")
        log.info("resized %s", path, extra={"bytes": 3, "path": object})
        log.warning("password=hunter2 %d%%", 50)
        try:
            int(path)
        except ValueError:
            log.exception("failed, going on")

    with working(app):
        handle = resize.enqueue("a.png")
        handle.result(PATIENCE_S)
        page = log_of(app, handle.id)

    info, warning, error = page.items
    assert (info.level, info.message, info.logger, info.attempt) == (
        "info",
        "resized a.png",
        "rota.task",
        1,
    )
    assert fields_of(info) == {"bytes": 3, "path": "<class 'object'>"}
    assert (warning.level, warning.message) == ("warning", "password=[covered] 50%")
    assert error.message.startswith("failed, going on\nTraceback (most recent call last)")
    assert error.message.endswith("invalid literal for int() with base 10: 'a.png'")
    assert page.state == "succeeded"
    assert [(one.lines, one.dropped) for one in page.attempts] == [(3, 0)]


class OtherLogger(logging.Logger):
    """As the loggers of structlog, it finds callers in its own way."""

    def findCaller(self, *_: object, **__: object) -> tuple[str, int, str, None]:  # noqa: N802 - as `logging` has it
        return "elsewhere.py", 1, "elsewhere", None


@pytest.mark.parametrize("kind", [logging.Logger, OtherLogger])
def test_lines_are_passed_on_to_the_program_s_own_logs(
    app: Rota,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    kind: type[logging.Logger],
) -> None:
    monkeypatch.setattr(logging.getLogger("rota.task"), "__class__", kind)

    @app.task
    def resize() -> None:
        current().log.info("resized %s", "a.png", extra={"bytes": 3})

    with working(app), caplog.at_level(logging.INFO, "rota.task"):
        handle = resize.enqueue()
        handle.result(PATIENCE_S)

    (record,) = [one for one in caplog.records if one.name == "rota.task"]
    assert record.getMessage() == "resized a.png"
    assert (record.task_id, record.attempt, record.bytes) == (handle.id, 1, 3)  # type: ignore[attr-defined]  # given as extra
    assert record.funcName == "resize"


def test_the_structured_logger_is_kept_as_well(app: Rota) -> None:
    @app.task
    async def pay() -> None:
        current().logger.info("paid", amount=3)
        current().logger.bind(shop=1).error("refused", reason=None)

    with working(app):
        handle = pay.enqueue()
        handle.result(PATIENCE_S)
        first, second = log_of(app, handle.id).items

    assert (first.level, first.message, fields_of(first)) == ("info", "paid", {"amount": 3})
    assert (second.level, fields_of(second)) == ("error", {"shop": 1, "reason": None})


def test_lines_that_cannot_be_written_do_not_fail_the_handler(app: Rota) -> None:
    class Unshown:
        def __str__(self) -> str:
            raise ValueError("no")

        __repr__ = __str__

    @app.task
    def clumsy() -> str:
        log = current().log
        log.info("%d of %d", *[1])  # one too few
        log.info(Unshown())
        log.info("half of a character: \ud800")
        log.info("odd", extra={"it": Unshown()})
        return "done"

    with working(app):
        handle = clumsy.enqueue()
        assert handle.result(PATIENCE_S) == "done"
        lines = messages(log_of(app, handle.id))

    assert lines == [
        "%d of %d (1,)",
        "<Unshown that cannot be shown: ValueError>",
        "half of a character: ?",
        "odd",
    ]


def test_a_handle_reads_all_lines_of_its_task(app: Rota) -> None:
    @app.task
    async def talk() -> None:
        for number in range(3):
            current().log.info("line %d", number)

    with working(app):
        handle = talk.enqueue()
        handle.result(PATIENCE_S)

        read = [one.message for one in handle.logs()]
        awaited = [one.message for one in asyncio.run(handle.alogs())]

    assert read == awaited == ["line 0", "line 1", "line 2"]


def test_each_attempt_has_its_lines_also_when_it_fails(app: Rota) -> None:
    @app.task(max_attempts=2)
    def fails() -> None:
        current().log.info("attempt %d", current().attempt)
        raise Retry(in_ms=0)

    with working(app):
        handle = fails.enqueue()
        with pytest.raises(TaskFailed):
            handle.result(PATIENCE_S)

        assert messages(log_of(app, handle.id)) == ["attempt 1", "attempt 2"]
        assert messages(log_of(app, handle.id, attempt=2)) == ["attempt 2"]


def test_lines_are_seen_while_the_handler_runs(app: Rota) -> None:
    go_on = threading.Event()

    @app.task
    def slow() -> None:
        current().log.info("begun")
        assert go_on.wait(PATIENCE_S)
        current().log.info("ended")

    with working(app):
        handle = slow.enqueue()
        first = log_of(app, handle.id, wait_ms=30_000)
        go_on.set()
        second = log_of(app, handle.id, after=first.next_after, wait_ms=30_000)

    assert (messages(first), first.state) == (["begun"], "running")
    assert messages(second) == ["ended"]


def test_a_flood_of_lines_is_cut_counted_and_does_not_hold_the_handler_up(app: Rota) -> None:
    @app.task
    def flood() -> None:
        for number in range(20_000):
            current().log.info("line %d", number)
        current().log.error("the reason")

    with working(app):
        handle = flood.enqueue()
        handle.result(PATIENCE_S)
        page = log_of(app, handle.id, level="error")

    assert messages(page) == ["the reason"]
    (attempt,) = page.attempts
    assert attempt.lines + attempt.dropped == 20_001
    assert attempt.lines <= limits.MAX_LOG_LINES


def test_many_large_lines_are_sent_in_several_reports_and_all_arrive(app: Rota) -> None:
    @app.task
    def large(task: int) -> None:
        for number in range(25):
            current().log.info("%d.%d %s", task, number, "x" * 8_000)

    with working(app):
        handles = [large.enqueue(number) for number in range(5)]
        for handle in handles:
            handle.result(PATIENCE_S)
        found = [[one.message.split()[0] for one in handle.logs()] for handle in handles]

    assert found == [[f"{task}.{number}" for number in range(25)] for task in range(5)]


def test_a_cancelled_handler_says_its_last_words(app: Rota) -> None:
    begun = threading.Event()

    @app.task
    async def endless() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            current().log.warning("cleaning up")

    with working(app):
        handle = endless.enqueue()
        assert begun.wait(PATIENCE_S)
        handle.cancel()
        lines: list[str] = []
        while not lines:  # each look is a round trip
            lines = [one.message for one in handle.logs()]

    assert lines == ["cleaning up"]


# --- concurrent handlers ------------------------------------------------------------------------


def test_concurrent_async_handlers_and_threads_do_not_mix_their_lines(app: Rota) -> None:
    shop = logging.getLogger("shop.orders")
    barrier = threading.Barrier(4, timeout=PATIENCE_S)
    together = asyncio.Barrier(4)

    def say(kind: str, number: int, step: str) -> None:
        shop.warning("%s %d %s", kind, number, step)
        current().log.info("%s %d %s", kind, number, step)

    @app.task
    def in_thread(number: int) -> None:
        for step in "ab":
            barrier.wait()
            say("thread", number, step)

    @app.task
    async def on_loop(number: int) -> None:
        for step in "ab":
            await together.wait()
            say("loop", number, step)
            await asyncio.to_thread(say, "copied", number, step)

    with working(app, concurrency=8, capture_logs=["shop"]):
        threads = [in_thread.enqueue(number) for number in range(4)]
        loops = [on_loop.enqueue(number) for number in range(4)]
        for handle in (*threads, *loops):
            handle.result(PATIENCE_S)
        of_threads = [messages(log_of(app, one.id)) for one in threads]
        of_loops = [messages(log_of(app, one.id)) for one in loops]

    assert of_threads == [
        [f"thread {number} {step}" for step in "ab" for _ in range(2)] for number in range(4)
    ]
    assert of_loops == [
        [f"{kind} {number} {step}" for step in "ab" for kind in ("loop", "copied") for _ in "xx"]
        for number in range(4)
    ]


def test_only_the_loggers_that_were_named_are_captured_while_a_handler_runs(app: Rota) -> None:
    shop, other = logging.getLogger("shop"), logging.getLogger("other")

    @app.task
    def work() -> None:
        shop.getChild("mail").info("sent", extra={"to": "a"})
        shop.debug("too low")
        other.warning("not captured")
        logging.getLogger("rota.worker").warning("the library's own")

    with level_of(shop, logging.DEBUG), working(app, capture_logs=["shop", "shop.mail"]):
        shop.warning("outside of any handler")
        handle = work.enqueue()
        handle.result(PATIENCE_S)
        (line,) = log_of(app, handle.id).items

    assert (line.logger, line.message, fields_of(line)) == ("shop.mail", "sent", {"to": "a"})
    assert shop.handlers == []


def test_all_of_logging_can_be_captured(app: Rota) -> None:
    @app.task
    def work() -> None:
        logging.getLogger("a").warning("one")
        logging.getLogger().error("two")

    with working(app, capture_logs=True, task_log_level="error"):
        handle = work.enqueue()
        handle.result(PATIENCE_S)
        lines = messages(log_of(app, handle.id))

    assert lines == ["two"]


def test_lines_can_be_turned_off(app: Rota) -> None:
    @app.task
    def work() -> None:
        current().log.critical("not even this")

    with working(app, task_log_level="off"):
        handle = work.enqueue()
        handle.result(PATIENCE_S)
        page = log_of(app, handle.id)

    assert (page.items, page.attempts) == ([], [])


def test_options_that_make_no_sense_are_refused(app: Rota) -> None:
    @app.task
    def noop() -> None: ...

    with pytest.raises(Invalid, match="there is no level 'loud'"):
        Worker(app, task_log_level="loud")
    with pytest.raises(Invalid, match=r"\['shop'\], or True for all"):
        Worker(app, capture_logs="shop")


# --- durable functions ----------------------------------------------------------------------------


def test_steps_and_functions_log_to_the_task_that_runs_them(app: Rota) -> None:
    def price(items: int) -> int:
        current().log.info("priced in a thread")
        return items * 10

    async def pay(total: int) -> None:
        current().log.info("paid %d", total)

    @app.workflow(name="logging-order")
    async def order(ctx: Run, items: int) -> str:
        current().log.info("begun")
        total = await ctx.step(price, items)
        await ctx.event("go")
        current().log.info("resumed")
        await ctx.step(pay, total)
        return "done"

    with working(app):
        handle = order.start(2)
        first = _task_of(app, 0)
        seen = log_of(app, first, wait_ms=30_000)
        while seen.state == "running":
            seen = log_of(app, first)
        handle.signal("go", None)
        assert handle.result(PATIENCE_S) == "done"
        second = messages(log_of(app, _task_of(app, 1)))

    assert messages(log_of(app, first)) == ["begun", "priced in a thread"]
    assert second == ["resumed", "paid 20"]


def test_a_replay_does_not_log_again_what_an_earlier_task_has_logged(app: Rota) -> None:
    async def price(items: int) -> int:
        return items * 10

    @app.workflow(name="replayed-order")
    async def order(ctx: Run, items: int) -> str:
        current().log.info("begun")
        total = await ctx.step(price, items)
        current().log.info("priced at %d", total)
        await ctx.event("go")
        current().log.info("after the event")
        return "done"

    with working(app):
        handle = order.start(2)
        first = _task_of(app, 0)
        while log_of(app, first, wait_ms=30_000).state != "succeeded":
            pass
    with working(app):  # another worker, which has nothing of the function in memory
        handle.signal("go", None)
        assert handle.result(PATIENCE_S) == "done"
        second = messages(log_of(app, _task_of(app, 1)))

    assert messages(log_of(app, first)) == ["begun", "priced at 20"]
    assert second == ["after the event"]


def _task_of(app: Rota, number: int) -> str:
    """The task by which a function was resumed; there is one run."""
    while len(tasks := app.client.run(calls.list_tasks()).items) <= number:
        pass
    return tasks[-1 - number].id


# --- a coordinator that is away -------------------------------------------------------------------


def test_lines_that_the_coordinator_could_not_take_follow_when_it_is_back(
    server: Server, app: Rota
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    @app.task
    def patient() -> None:
        current().log.info("before")
        begun.set()
        assert go_on.wait(PATIENCE_S)
        current().log.info("after")

    with working(app, heartbeat_interval_ms=5_000):
        handle = patient.enqueue()
        assert begun.wait(PATIENCE_S)
        log_of(app, handle.id, wait_ms=30_000)
        server.stop()
        go_on.set()
        server.start()
        handle.result(PATIENCE_S)
        page = log_of(app, handle.id)

    assert messages(page) == ["before", "after"]
    assert [one.dropped for one in page.attempts] == [0]


# --- a coordinator that does not answer -----------------------------------------------------------


class UnansweredLogs:
    """A network to the coordinator on which calls with log lines are never answered."""

    is_embedded = False

    def __init__(self, url: str) -> None:
        self._inner = open_transport(url, None)
        self.calls = 0  # with log lines

    @property
    def address(self) -> str:
        return self._inner.address

    def send(self, request: TransportRequest) -> Response:
        return self._inner.send(request)

    async def asend(self, request: TransportRequest) -> Response:
        if request.path.endswith("/logs"):
            self.calls += 1
            await asyncio.Event().wait()
        return await self._inner.asend(request)

    def close(self) -> None:
        self._inner.close()


@pytest.fixture
def unlogged(server: Server, app: Rota) -> Iterator[Rota]:
    client = Client(UnansweredLogs(server.url))
    app.use(client)
    yield app
    client.close()


@pytest.mark.slow
def test_results_wait_once_and_not_each_for_log_lines_that_are_not_taken(
    unlogged: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks, wait_s = 30, 2.0
    monkeypatch.setattr(log_reporting, "ENDED_WAIT_S", wait_s)
    assert tasks * wait_s > PATIENCE_S

    @unlogged.task
    def chatty(number: int) -> int:
        current().log.info("number %d", number)
        return number

    with working(unlogged, transport="http", concurrency=1):
        handles = [chatty.enqueue(number) for number in range(tasks)]
        ends_at = time.monotonic() + PATIENCE_S
        results = [one.result(ends_at - time.monotonic()) for one in handles]

    assert results == [*range(tasks)]


@pytest.mark.slow
def test_calls_with_log_lines_that_are_not_answered_are_few(
    unlogged: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has a connection of its own."""
    monkeypatch.setattr(log_reporting, "ENDED_WAIT_S", 0.01)
    monkeypatch.setattr(log_reporting, "MOST_UNANSWERED", 3)

    @unlogged.task
    def chatty() -> None:
        current().log.info("busy")

    with working(unlogged, transport="http", concurrency=1):
        for handle in [chatty.enqueue() for _ in range(30)]:
            handle.result(PATIENCE_S)

    transport = unlogged.client.transport
    assert isinstance(transport, UnansweredLogs)
    assert transport.calls <= 3 + 2  # beside the regular one, and the last one of the worker


def test_a_result_does_not_wait_for_the_log_lines_of_other_tasks(
    unlogged: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reporting, "ENDED_WAIT_S", 2 * PATIENCE_S)
    logged, may_end = threading.Event(), threading.Event()

    @unlogged.task
    def chatty() -> None:
        current().log.info("busy")
        logged.set()
        assert may_end.wait(PATIENCE_S)

    @unlogged.task
    def quiet() -> int:
        return 1

    with working(unlogged, transport="http", concurrency=2):
        chatty.enqueue()
        assert logged.wait(PATIENCE_S)
        assert quiet.enqueue().result(PATIENCE_S) == 1
        monkeypatch.setattr(log_reporting, "ENDED_WAIT_S", 0.0)
        may_end.set()
