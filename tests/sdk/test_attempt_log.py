"""What a worker logs about its attempts, and about the coordinator's absence."""

import asyncio
import contextvars
import io
import logging
import os
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import structlog
from msgspec import Raw
from structlog.testing import capture_logs

from rota.errors import Invalid, Unavailable
from rota.messages import LeaseView, ResultItem
from rota.sdk.outcomes import Discard, Retry, Snooze, item_of_error, item_of_value
from rota.sdk.timing import now_s
from rota.sdk.worker import attempt_log, contact
from rota.sdk.worker.attempt_log import AttemptLog
from rota.sdk.worker.contact import CoordinatorContact
from tests.sdk.listening import PATIENCE_S

WORDS = ("task_started", "task_succeeded", "of the handler", "of a thread")


@pytest.fixture(autouse=True)
def at_info() -> Iterator[None]:
    """Log as a program that has set up nothing; a command that ran here may have set a level."""
    logger = logging.getLogger("rota.worker")
    level, configured = logger.level, structlog.get_config()
    structlog.reset_defaults()
    logger.setLevel(logging.INFO)
    yield
    logger.setLevel(level)
    structlog.configure(**configured)


def lease(attempt: int = 1, max_attempts: int = 2) -> LeaseView:
    return LeaseView(
        task_id="t1",
        fence=1,
        name="charge",
        payload=Raw(b"{}"),
        attempt=attempt,
        max_attempts=max_attempts,
    )


def raised(error: Exception) -> Exception:
    """The error, with a traceback."""
    try:
        raise error
    except type(error) as caught:
        return caught


async def lines_of(leased: LeaseView, item: ResultItem) -> list[Any]:
    with capture_logs() as lines:
        log = AttemptLog()
        log.note_begun(leased)
        log.note_ended(leased, item, began_at=0.0)
        log.close()
    return lines


async def test_start_and_success_are_logged() -> None:
    lines = await lines_of(lease(), item_of_value(lease(), 1))

    assert [line["event"] for line in lines] == ["task_started", "task_succeeded"]
    assert all(line["task"] == "charge" and line["task_id"] == "t1" for line in lines)
    assert all(line["attempt"] == "1/2" and line["log_level"] == "info" for line in lines)


async def test_a_failed_attempt_that_is_retried_is_a_warning_with_its_traceback() -> None:
    lines = await lines_of(lease(), item_of_error(lease(), raised(ValueError("no card"))))

    line = lines[-1]
    assert (line["event"], line["log_level"]) == ("task_retrying", "warning")
    assert line["error"] == "ValueError: no card"
    assert "in raised" in line["exception"]
    assert line["exception"].endswith("ValueError: no card")


@pytest.mark.parametrize(
    ("attempt", "error"), [(2, ValueError("no card")), (1, Discard("no card"))]
)
async def test_the_last_failure_of_a_task_is_an_error(attempt: int, error: Exception) -> None:
    leased = lease(attempt)

    lines = await lines_of(leased, item_of_error(leased, raised(error)))

    assert (lines[-1]["event"], lines[-1]["log_level"]) == ("task_failed", "error")
    assert "no card" in lines[-1]["error"]


async def test_a_snooze_and_an_asked_for_retry_say_when_the_task_runs_again() -> None:
    (_, snoozed) = await lines_of(lease(), item_of_error(lease(), Snooze(500)))
    (_, retried) = await lines_of(lease(), item_of_error(lease(), Retry("later", in_ms=700)))

    assert (snoozed["event"], snoozed["again_in_ms"]) == ("task_snoozed", 500)
    assert (retried["event"], retried["again_in_ms"]) == ("task_retrying", 700)


async def test_a_failure_that_is_a_plain_text_is_logged() -> None:
    item = ResultItem(task_id="t1", fence=1, ok=False, error="it broke")

    lines = await lines_of(lease(2), item)

    assert lines[-1]["event"] == "task_failed"
    assert "it broke" in lines[-1]["error"]


async def test_lines_beyond_the_limit_are_counted_and_failures_are_not_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attempt_log, "MAX_LINES_PER_S", 3)
    monkeypatch.setattr(attempt_log, "now_s", lambda: 100.0)
    loop = asyncio.get_running_loop()
    later: list[Any] = []
    monkeypatch.setattr(loop, "call_later", lambda _delay, *call: later.append(call))

    with capture_logs() as lines:
        log = AttemptLog()
        for _ in range(5):
            log.note_begun(lease())
        log.note_ended(lease(2), item_of_error(lease(2), ValueError("x")), began_at=0.0)
        for call, *given in later:
            call(*given)

    assert [line["event"] for line in lines] == [
        *["task_started"] * 3,
        "task_failed",
        "task_lines_omitted",
    ]
    assert lines[-1]["count"] == 2


async def test_lines_are_logged_again_when_the_second_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attempt_log, "MAX_LINES_PER_S", 1)
    now = [100.0]
    monkeypatch.setattr(attempt_log, "now_s", lambda: now[0])
    later: list[tuple[float, Any]] = []
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "call_later", lambda delay, *call: later.append((delay, call)))

    with capture_logs() as lines:
        log = AttemptLog()
        log.note_begun(lease())
        now[0] = 100.25
        log.note_begun(lease())
        log.note_begun(lease())
        (delay, (call, *given)) = later[-1]
        now[0] += delay
        call(*given)
        log.note_begun(lease())
        log.close()

    assert now[0] == 101.0
    assert [line["event"] for line in lines] == [
        "task_started",
        "task_lines_omitted",
        "task_started",
    ]


async def test_a_start_is_written_after_the_handler_has_begun_and_with_the_time_of_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rota.sdk.worker.attempt_log.time.time", lambda: 1_700_000_000.25)
    written = asyncio.Event()

    with capture_logs() as lines:
        log = AttemptLog()
        log.note_begun(lease())
        before = [*lines]
        asyncio.get_running_loop().call_later(attempt_log.WRITE_AFTER_S, written.set)
        await written.wait()
        log.close()

    assert before == []
    assert [line["event"] for line in lines] == ["task_started"]
    assert lines[0]["timestamp"] == "2023-11-14T22:13:20.250000Z"


async def test_lines_that_wait_are_written_before_any_other_line_of_the_process() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        log = AttemptLog()
        log.note_begun(lease())
        logging.getLogger("app").warning("of the handler")
        log.note_ended(lease(), item_of_value(lease(), 1), began_at=0.0)
        await asyncio.to_thread(logging.getLogger("app").warning, "of a thread")
        log.close()
    finally:
        root.removeHandler(handler)

    found = [
        next(word for word in WORDS if word in line) for line in stream.getvalue().splitlines()
    ]
    assert found == ["task_started", "of the handler", "task_succeeded", "of a thread"]
    assert not handler.filters


async def test_many_lines_that_wait_are_written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt_log, "MAX_WAITING_LINES", 3)

    with capture_logs() as lines:
        log = AttemptLog()
        for _ in range(4):
            log.note_begun(lease())
        written = [*lines]
        log.close()

    assert len(written) == 3


def forked(stream: io.StringIO) -> str:
    """What a child of this process has in the stream after it has logged a line."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            logging.getLogger("app").warning("of the handler")
            os.write(writer, stream.getvalue().encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as written:
        found = written.read()
    os.waitpid(child, 0)
    return found


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
async def test_a_process_that_a_handler_forks_does_not_write_the_lines_of_the_worker() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        log = AttemptLog()
        log.note_begun(lease())
        of_child = forked(stream)
        log.close()
    finally:
        root.removeHandler(handler)

    assert of_child == "of the handler\n"
    assert "task_started" in stream.getvalue()


class SlowHandler(logging.Handler):
    """Writes its first line only when it may, as a pipe that is full."""

    def __init__(self) -> None:
        super().__init__()
        self.is_writing, self.may_write = threading.Event(), threading.Event()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.is_writing.set()
        assert self.may_write.wait(PATIENCE_S)
        self.lines.append(next(word for word in WORDS if word in record.getMessage()))


@pytest.fixture
def slow() -> Iterator[SlowHandler]:
    logger, handler = logging.getLogger("rota.worker"), SlowHandler()
    structlog.configure(processors=[structlog.stdlib.render_to_log_kwargs])
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


async def test_a_line_is_written_that_comes_when_a_slow_thread_has_written_those_before_it(
    slow: SlowHandler, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = AttemptLog()
    log.note_begun(lease())
    thread = threading.Thread(target=log.write)
    thread.start()
    assert slow.is_writing.wait(PATIENCE_S)
    log.note_begun(lease())
    was_due = asyncio.Event()
    asyncio.get_running_loop().call_later(attempt_log.WRITE_AFTER_S, was_due.set)
    await was_due.wait()  # the thread still writes

    def copied_when_the_thread_has_ended() -> contextvars.Context:
        slow.may_write.set()
        thread.join(PATIENCE_S)
        return contextvars.copy_context()

    monkeypatch.setattr(attempt_log, "copy_context", copied_when_the_thread_has_ended)
    log.note_ended(lease(), item_of_value(lease(), 1), began_at=0.0)
    async with asyncio.timeout(PATIENCE_S):
        while len(slow.lines) < 3:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0)
    log.close()

    assert slow.lines == ["task_started", "task_started", "task_succeeded"]


async def test_lines_are_left_out_while_a_slow_thread_writes_and_too_many_wait(
    slow: SlowHandler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt_log, "MAX_WAITING_LINES", 3)
    later: list[Any] = []
    monkeypatch.setattr(
        asyncio.get_running_loop(), "call_later", lambda _delay, *call: later.append(call)
    )
    log = AttemptLog()
    log.note_begun(lease())
    thread = threading.Thread(target=log.write)
    thread.start()
    assert slow.is_writing.wait(PATIENCE_S)

    for _ in range(10):
        log.note_begun(lease())
    slow.may_write.set()
    thread.join(PATIENCE_S)
    with capture_logs() as lines:
        for call, *given in later:
            call(*given)
        log.note_begun(lease())
        log.close()

    written = [line["event"] for line in lines]
    assert written == [*["task_started"] * 3, "task_lines_omitted", "task_started"]
    assert (lines[3]["count"], lines[3]["hint"]) == (7, attempt_log.TOO_SLOW)


async def test_a_line_about_an_end_has_the_fields_that_the_handler_has_bound() -> None:
    def end() -> None:
        structlog.contextvars.bind_contextvars(order="o-7")
        log.note_ended(lease(), item_of_value(lease(), 1), began_at=0.0)

    with capture_logs(processors=[structlog.contextvars.merge_contextvars]) as lines:
        log = AttemptLog()
        contextvars.copy_context().run(end)
        log.close()

    assert lines[0]["order"] == "o-7"


async def test_a_program_that_has_not_set_up_logging_sees_failures_only(
    capfd: pytest.CaptureFixture[str],
) -> None:
    logging.getLogger("rota.worker").setLevel(logging.NOTSET)

    log = AttemptLog()
    log.note_begun(lease())
    log.note_ended(lease(), item_of_value(lease(), 1), began_at=0.0)

    assert capfd.readouterr().out == ""


def test_the_loss_of_the_coordinator_is_logged_once_and_its_return() -> None:
    with capture_logs() as lines:
        link = CoordinatorContact("http://rota")
        link.note_answer()
        link.note_failure("heartbeat_failed", Unavailable("refused"), sent_at=now_s())
        link.note_failure("lease_failed", Unavailable("refused"), sent_at=now_s())
        link.note_lost("the stream broke")
        link.note_answer()
        link.note_answer()

    told = [line for line in lines if line["log_level"] != "debug"]
    assert [line["event"] for line in told] == ["coordinator_unreachable", "coordinator_reached"]
    assert told[0]["reason"] == "refused"
    assert told[0]["url"] == "http://rota"


def test_a_call_of_an_absence_that_fails_after_its_end_is_no_second_absence() -> None:
    with capture_logs() as lines:
        link = CoordinatorContact("http://rota")
        before = now_s()
        link.note_lost("the stream broke", sent_at=before)
        link.note_answer()
        link.note_failure("lease_failed", Unavailable("refused"), sent_at=before)
        link.note_failure("lease_failed", Unavailable("refused"), sent_at=now_s())

    told = [line["event"] for line in lines if line["log_level"] != "debug"]
    assert told == ["coordinator_unreachable", "coordinator_reached", "coordinator_unreachable"]


def test_a_long_absence_is_logged_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(contact, "now_s", lambda: now[0])

    with capture_logs() as lines:
        link = CoordinatorContact("http://rota")
        link.note_lost("refused")
        now[0] += contact.REMINDER_S + 1
        link.note_lost("refused")

    assert [line["event"] for line in lines] == ["coordinator_unreachable"] * 2
    assert lines[1]["for_s"] == contact.REMINDER_S + 1


def test_an_answer_that_refuses_a_call_is_no_absence() -> None:
    with capture_logs() as lines:
        link = CoordinatorContact("http://rota")
        link.note_failure("lease_failed", Invalid("too many"), sent_at=now_s())

    assert [(line["event"], line["log_level"]) for line in lines] == [("lease_failed", "warning")]


def test_fields_of_lines_can_be_written_as_json() -> None:
    async def lines() -> list[Any]:
        return await lines_of(lease(), item_of_error(lease(), raised(ValueError("x"))))

    assert msgspec.json.encode(asyncio.run(lines()))
