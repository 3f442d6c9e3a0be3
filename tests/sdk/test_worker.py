"""A worker runs handlers of every kind and tells what became of them."""

import asyncio
import threading
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from msgspec import Raw

from rota import (
    Discard,
    Rate,
    RateLimited,
    Retry,
    Rota,
    Snooze,
    StopReason,
    TaskCancelled,
    TaskFailed,
    TaskState,
    current,
)
from rota.sdk.client import calls, limit_calls
from tests.sdk.serving import PATIENCE_S, Server, working

pytestmark = pytest.mark.usefixtures("transport")


@dataclass
class Box:
    width: int
    packed_at: datetime


def test_an_async_handler_returns_its_result(app: Rota) -> None:
    @app.task
    async def double(number: int) -> int:
        await asyncio.sleep(0)
        return number * 2

    with working(app):
        assert double.enqueue(21).result(PATIENCE_S) == 42


def test_a_plain_handler_runs_in_a_thread_and_returns_its_result(app: Rota) -> None:
    @app.task
    def where() -> str:
        return threading.current_thread().name

    with working(app):
        assert where.enqueue().result(PATIENCE_S).startswith("rota-handler")


def test_results_come_back_as_what_the_handler_is_annotated_to_return(app: Rota) -> None:
    @app.task
    def pack(width: int) -> Box:
        return Box(width, datetime(2026, 1, 1, tzinfo=UTC))

    with working(app):
        assert pack.enqueue(3).result(PATIENCE_S) == Box(3, datetime(2026, 1, 1, tzinfo=UTC))


async def test_async_programs_enqueue_and_wait_without_blocking(app: Rota) -> None:
    @app.task
    async def echo(text: str) -> str:
        return text

    with working(app):
        handles = await asyncio.gather(*(echo.aenqueue(str(number)) for number in range(20)))
        results = await asyncio.gather(*(handle.aresult(PATIENCE_S) for handle in handles))

    assert results == [str(number) for number in range(20)]
    assert await handles[0].astatus() == "succeeded"


def test_many_calls_are_enqueued_at_once_and_all_run(app: Rota) -> None:
    @app.task
    async def square(number: int) -> int:
        return number * number

    with working(app, concurrency=100):
        handles = app.enqueue_many(square.bind(number) for number in range(500))

        assert [handle.result(PATIENCE_S) for handle in handles] == [n * n for n in range(500)]


def test_a_failed_handler_s_error_reaches_the_submitter(app: Rota) -> None:
    @app.task(max_attempts=1)
    def divide(by: int) -> float:
        return 1 / by

    with working(app):
        handle = divide.enqueue(0)
        with pytest.raises(TaskFailed) as caught:
            handle.result(PATIENCE_S)

    assert caught.value.error.type == "ZeroDivisionError"
    assert caught.value.error.message == "division by zero"
    assert "in divide" in caught.value.error.details["traceback"]
    assert "rota/sdk" not in caught.value.error.details["traceback"]


def test_a_failing_handler_is_tried_again(app: Rota) -> None:
    attempts: list[int] = []

    @app.task(max_attempts=3, backoff={"kind": "none"})
    def flaky() -> str:
        attempts.append(current().attempt)
        if len(attempts) < 3:
            raise RuntimeError("not yet")
        return "at last"

    with working(app):
        assert flaky.enqueue().result(PATIENCE_S) == "at last"

    assert attempts == [1, 2, 3]


@pytest.mark.parametrize("how", ["raise", "return"])
def test_a_snoozed_task_is_called_again_and_the_attempt_does_not_count(app: Rota, how: str) -> None:
    attempts: list[int] = []

    @app.task(max_attempts=1)
    async def patient() -> str | Snooze:
        attempts.append(current().attempt)
        if len(attempts) == 1:
            if how == "raise":
                raise Snooze(1)
            return Snooze(1)
        return "awake"

    with working(app):
        assert patient.enqueue().result(PATIENCE_S) == "awake"

    assert attempts == [1, 1]


@pytest.mark.parametrize("how", ["raise", "return"])
def test_a_rate_limited_task_closes_its_rate_and_the_attempt_does_not_count(
    app: Rota, how: str
) -> None:
    has_started = threading.Event()

    @app.task(max_attempts=1, rate=Rate("api:{host}", limit=1_000))
    def call(host: str) -> RateLimited | None:
        has_started.set()
        if how == "raise":
            raise RateLimited(3_600_000)
        return RateLimited(3_600_000)

    with working(app):
        handle = call.enqueue("a")
        assert has_started.wait(PATIENCE_S)

    limit = app.client.run(limit_calls.get_limit("api:a"))
    waiting = app.client.run(calls.get_task(handle.id))
    assert limit.opens_at_ms == waiting.run_at_ms
    assert (waiting.state, waiting.attempt) == (TaskState.SCHEDULED, 0)


@pytest.mark.parametrize("ms", [-1, 10**15])
def test_a_rate_is_limited_for_a_time_that_can_be(ms: int) -> None:
    with pytest.raises(ValueError, match="a rate is limited for"):
        RateLimited(ms)


def test_a_handler_chooses_when_to_be_tried_again(app: Rota) -> None:
    attempts: list[int] = []

    @app.task(max_attempts=2, backoff={"initial_ms": 3_600_000})
    def choosy() -> str:
        attempts.append(current().attempt)
        if len(attempts) == 1:
            raise Retry("too early", in_ms=0)
        return "fine"

    with working(app):
        assert choosy.enqueue().result(PATIENCE_S) == "fine"

    assert attempts == [1, 2]


def test_a_discarded_task_fails_whatever_attempts_it_has_left(app: Rota) -> None:
    @app.task(max_attempts=5)
    def hopeless() -> None:
        raise Discard("no such customer")

    with working(app):
        handle = hopeless.enqueue()
        with pytest.raises(TaskFailed, match="no such customer"):
            handle.result(PATIENCE_S)

    assert handle.view().attempt == 1


def test_a_payload_that_does_not_fit_fails_at_once_and_says_why(app: Rota) -> None:
    @app.task(max_attempts=5)
    def resize(path: str, width: int) -> None:
        raise AssertionError("must not be called")

    with working(app):
        handle = app.enqueue("resize", {"path": "a.png", "width": "wide"}, max_attempts=5)
        with pytest.raises(TaskFailed, match="'width': Expected `int`, got `str`") as caught:
            handle.result(PATIENCE_S)

    assert caught.value.error.type == "invalid_arguments"
    assert handle.view().attempt == 1


def test_a_result_that_is_not_json_fails_at_once_and_says_so(app: Rota) -> None:
    @app.task(max_attempts=5)
    def odd() -> object:
        return object()

    with working(app):
        handle = odd.enqueue()
        with pytest.raises(TaskFailed, match="cannot be written as JSON") as caught:
            handle.result(PATIENCE_S)

    assert caught.value.error.type == "unreadable_result"
    assert handle.view().attempt == 1


def test_a_result_the_coordinator_refuses_fails_alone_and_the_others_get_through(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with Server(tmp_path_factory.mktemp("s"), max_payload_bytes=1_000) as server:
        app = Rota(server.url)

        @app.task
        async def text(length: int) -> str:
            return "x" * length

        with app, working(app, concurrency=50):
            handles = app.enqueue_many(text.bind(2_000 if n == 7 else n) for n in range(20))
            with pytest.raises(TaskFailed, match="refused") as caught:
                handles[7].result(PATIENCE_S)
            assert caught.value.error.type == "refused_result"
            del handles[7]
            assert all(isinstance(handle.result(PATIENCE_S), str) for handle in handles)


def test_progress_is_seen_while_the_handler_runs(app: Rota) -> None:
    go_on = threading.Event()

    @app.task
    def slow() -> str:
        current().progress(0.5, partial={"rows": 10})
        assert go_on.wait(PATIENCE_S)
        return "done"

    with working(app):
        handle = slow.enqueue()
        view = handle.view()
        while view.progress == Raw(b"null"):  # each look is a round trip
            view = handle.view()
        go_on.set()

        assert view.progress == Raw(b"0.5")
        assert view.partial == Raw(b'{"rows":10}')
        assert handle.result(PATIENCE_S) == "done"


def test_a_cancelled_async_handler_is_interrupted(app: Rota) -> None:
    started, ended = threading.Event(), threading.Event()

    @app.task
    async def endless() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with working(app):
        handle = endless.enqueue()
        assert started.wait(PATIENCE_S)
        handle.cancel()

        assert ended.wait(PATIENCE_S)
        with pytest.raises(TaskCancelled):
            handle.result(PATIENCE_S)


def test_a_cancelled_handler_in_a_thread_stops_when_it_checks(app: Rota) -> None:
    started, ended = threading.Event(), threading.Event()
    reasons: list[str | None] = []

    @app.task
    def endless() -> None:
        started.set()
        context = current()
        try:
            while True:
                context.check_cancelled()
        except Exception:  # noqa: BLE001 - what a careless handler would write
            raise AssertionError("cancelling must pass through this") from None
        finally:
            reasons.append(context.cancel_reason)
            ended.set()

    with working(app):
        handle = endless.enqueue()
        assert started.wait(PATIENCE_S)
        handle.cancel()

        assert ended.wait(PATIENCE_S)

    assert reasons == ["cancelled"]


def test_an_attempt_that_runs_too_long_is_stopped_and_tried_again(app: Rota) -> None:
    attempts: list[int] = []
    interrupted: list[bool] = []

    @app.task(timeout_ms=50, max_attempts=2, backoff={"kind": "none"})
    async def sometimes_slow() -> str:
        attempts.append(current().attempt)
        if len(attempts) == 1:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                interrupted.append(True)
                raise
        return "quick"

    with working(app):
        assert sometimes_slow.enqueue().result(PATIENCE_S) == "quick"

    assert attempts == [1, 2]
    assert interrupted == [True]


def test_a_thread_that_does_not_stop_keeps_its_place_taken(app: Rota) -> None:
    release, started = threading.Event(), threading.Semaphore(0)

    @app.task(timeout_ms=50, max_attempts=1)
    def stubborn() -> None:
        started.release()
        assert release.wait(PATIENCE_S)

    @app.task
    async def other() -> str:
        return "ran"

    with working(app, concurrency=1):
        with pytest.raises(TaskFailed, match="ran past its"):
            stubborn.enqueue().result(PATIENCE_S)
        waiting = other.enqueue()
        app.client.run(calls.health())

        assert waiting.status() == "queued"
        release.set()
        assert waiting.result(PATIENCE_S) == "ran"


def test_handlers_may_exit_without_taking_the_worker_along(app: Rota) -> None:
    @app.task(max_attempts=1)
    async def leave() -> None:
        raise SystemExit(3)

    @app.task(max_attempts=1)
    def depart() -> None:
        raise SystemExit(4)

    with working(app) as running:
        for task in (leave, depart):
            with pytest.raises(TaskFailed, match="SystemExit"):
                task.enqueue().result(PATIENCE_S)

        assert running.stop() is StopReason.STOPPED


def test_a_worker_serves_only_the_tasks_and_queues_it_is_given(app: Rota) -> None:
    @app.task(queue="quick")
    async def ours() -> str:
        return "done"

    @app.task(queue="slow")
    async def theirs() -> str:
        return "done"

    with working(app, queues=["quick"]):
        left = theirs.enqueue()
        assert ours.enqueue().result(PATIENCE_S) == "done"
        assert left.status() == "queued"


def test_a_task_that_requires_a_capability_goes_to_a_worker_that_has_it(app: Rota) -> None:
    @app.task(requires=["gpu"])
    async def train() -> str:
        return "trained"

    handle = train.enqueue()
    with working(app, capabilities=["cpu"]):
        assert handle.status() == "queued"
        with working(app, capabilities=["cpu", "gpu"]):
            assert handle.result(PATIENCE_S) == "trained"


def test_handlers_enqueue_further_tasks(app: Rota) -> None:
    @app.task
    async def child(number: int) -> int:
        return number + 1

    @app.task
    async def parent() -> str:
        return (await child.aenqueue(1)).id

    with working(app):
        child_id = parent.enqueue().result(PATIENCE_S)
        assert app.handle(child_id).result(PATIENCE_S) == 2
