"""What Django asks of a backend: enqueueing, results, attempts, errors, signals."""

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rota import Discard, Invalid, TaskState
from rota.contrib.django import task_options
from rota.contrib.django.backend import RotaBackend
from rota.contrib.django.task_api import (
    InvalidTaskError,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_finished,
    task_started,
)
from rota.contrib.django.worker import DjangoWorker
from rota.messages import TokenRequest
from rota.sdk.client import calls
from tests.contrib.django.conftest import working
from tests.contrib.django.site import tasks as tasks_of_site
from tests.contrib.django.waiting import PATIENCE_S, finished

tasks: Any = tasks_of_site  # the backport's types know neither results nor coroutines
READY = TaskResultStatus.READY
SUCCESSFUL = TaskResultStatus.SUCCESSFUL
FAILED = TaskResultStatus.FAILED


def view_of(backend: RotaBackend, result: Any) -> Any:
    (view,) = backend.rota.client.run(calls.list_tasks(key=result.id)).items
    return view


# --- enqueueing ---------------------------------------------------------------------------------


def test_a_task_runs_and_its_value_is_returned(backend: RotaBackend, worker: DjangoWorker) -> None:
    result = tasks.add.enqueue(1, b=2)
    assert (result.status, result.args, result.kwargs) == (READY, [1], {"b": 2})
    assert result.attempts == 0

    finished(backend, result)

    assert (result.status, result.return_value) == (SUCCESSFUL, 3)
    assert (result.attempts, result.worker_ids) == (1, ["django-worker"])
    assert result.enqueued_at <= result.started_at <= result.finished_at
    assert result.errors == []


async def test_async_code_enqueues_and_reads_results(
    backend: RotaBackend, worker: DjangoWorker
) -> None:
    result = await tasks.aadd.aenqueue(20, 22)

    while not result.is_finished:
        await result.arefresh()

    assert result.return_value == 42
    assert (await tasks.aadd.aget_result(result.id)).return_value == 42


def test_a_result_is_found_by_its_id_with_its_arguments(
    backend: RotaBackend, worker: DjangoWorker
) -> None:
    made = finished(backend, tasks.echo.enqueue([1, {"a": None}], x="ä"))

    found = tasks.echo.get_result(made.id)

    assert found.return_value == {"args": [[1, {"a": None}]], "kwargs": {"x": "ä"}}
    assert (found.args, found.kwargs) == ([[1, {"a": None}]], {"x": "ä"})
    assert (found.id, found.backend, found.task) == (made.id, "default", tasks.echo)


@pytest.mark.parametrize("result_id", ["123", "", "x" * 501, "../../health"])
def test_an_unknown_id_has_no_result(backend: RotaBackend, result_id: str) -> None:
    with pytest.raises(TaskResultDoesNotExist):
        backend.get_result(result_id)


def test_the_result_of_another_task_is_a_mismatch(
    backend: RotaBackend, worker: DjangoWorker
) -> None:
    result = tasks.add.enqueue(1)

    with pytest.raises(Exception, match="Task does not match"):
        tasks.echo.get_result(result.id)


def test_a_deferred_task_waits_for_its_time(backend: RotaBackend, worker: DjangoWorker) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)

    result = tasks.add.using(run_after=later).enqueue(1)

    view = view_of(backend, result)
    assert view.state is TaskState.SCHEDULED
    assert abs(view.run_at_ms - later.timestamp() * 1000) <= 1
    found = tasks.add.get_result(result.id)
    assert (found.status, found.started_at) == (READY, None)
    assert abs(found.task.run_after - later) < timedelta(seconds=1)


def test_queue_and_priority_are_those_of_the_coordinator(
    backend: RotaBackend, worker: DjangoWorker
) -> None:
    result = finished(backend, tasks.mail.enqueue("a@example.com"))
    lowest = tasks.mail.using(priority=-100).enqueue("b@example.com")

    view = view_of(backend, result)
    assert (view.queue, view.priority, view.name) == ("mail", 7, tasks.mail.module_path)
    assert view_of(backend, lowest).priority == -100
    assert backend.get_result(lowest.id).task.priority == -100


@pytest.mark.parametrize(
    "options",
    [
        {"priority": 101},
        {"priority": -101},
        {"priority": 1.5},
        {"queue_name": "none"},
        {"run_after": datetime(2030, 1, 1)},  # noqa: DTZ001 - that is what is refused
    ],
)
def test_options_that_django_refuses_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidTaskError):
        tasks.add.using(**options)


# --- arguments ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (datetime(2030, 1, 1, tzinfo=UTC), "datetime.datetime"),
        (object(), "'object'"),
        ({1: "a"}, "keys of a JSON object"),
        (float("nan"), "no number nan"),
        (2**70, "64 bits"),
        (b"\xff", "utf-8"),
        ("\ud800", "surrogates"),
        ([{"deep": {1, 2}}], "'set'"),
    ],
)
def test_what_json_cannot_hold_is_refused_with_the_name_of_its_argument(
    value: Any, problem: str
) -> None:
    with pytest.raises(TypeError, match=rf"site\.tasks\.add', argument 'b': .*{problem}"):
        tasks.add.enqueue(1, value)
    with pytest.raises(TypeError, match="argument 'x'"):
        tasks.echo.enqueue(1, x=value)
    with pytest.raises(TypeError, match="argument 'args'"):
        tasks.echo.enqueue(1, 2, value)


def test_arguments_nested_without_end_are_refused() -> None:
    value: list[Any] = []
    value.append(value)

    with pytest.raises(TypeError, match="nested more than"):
        tasks.add.enqueue(value)


def test_a_call_that_the_function_does_not_take_is_refused() -> None:
    with pytest.raises(TypeError, match=r"site\.tasks\.add': missing a required argument: 'a'"):
        tasks.add.enqueue()


def test_a_context_is_no_argument_of_the_call(backend: RotaBackend) -> None:
    with pytest.raises(TypeError, match="too many positional arguments"):
        tasks.second_time.enqueue(1)


# --- attempts and errors ------------------------------------------------------------------------


def test_a_failure_has_its_class_and_its_traceback(
    backend: RotaBackend, worker: DjangoWorker
) -> None:
    result = finished(backend, tasks.fails.enqueue("too big"))

    (error,) = result.errors
    assert result.status == FAILED
    assert error.exception_class is tasks.Refused
    assert "Refused: too big" in error.traceback
    assert "rota/contrib" not in error.traceback
    with pytest.raises(ValueError, match="Task failed"):
        _ = result.return_value


@pytest.mark.parametrize("task", [tasks.second_time, tasks.asecond_time])
def test_a_second_attempt_knows_the_first(
    backend: RotaBackend, worker: DjangoWorker, task: Any
) -> None:
    result = finished(backend, task.enqueue())

    assert result.status == SUCCESSFUL
    assert result.worker_ids == ["django-worker", "django-worker"]
    assert [one.exception_class for one in result.errors] == [ValueError]
    assert result.started_at <= result.last_attempted_at
    if task is tasks.second_time:
        assert result.return_value == [2, result.id, ["builtins.ValueError"]]


def test_a_worker_that_may_not_read_runs_second_attempts_all_the_same(
    backend: RotaBackend,
) -> None:
    asked = TokenRequest(name="worker", scopes=["worker"])
    token = backend.rota.client.run(calls.create_token(asked)).token
    bound = RotaBackend("default", {"QUEUES": ["other"], "OPTIONS": {"token": token}})
    registered = threading.Event()
    worker = DjangoWorker(bound, worker_id="bound", say=lambda _: registered.set())

    with working(worker, registered):
        result = finished(backend, tasks.second_time.using(queue_name="other").enqueue())

    assert result.worker_ids == ["bound", "bound"]
    assert result.return_value == [2, result.id, []]


def test_a_value_that_json_cannot_hold_fails_the_task_at_once(
    backend: RotaBackend, worker: DjangoWorker
) -> None:
    result = finished(backend, tasks.returns_object.enqueue())

    (error,) = result.errors
    assert (result.status, result.attempts) == (FAILED, 1)
    assert error.exception_class is TypeError
    assert "a value of type 'object' cannot be written as JSON" in error.traceback


def test_a_cancelled_task_has_failed(backend: RotaBackend) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    result = tasks.add.using(run_after=later).enqueue(1)

    backend.rota.handle(view_of(backend, result).id).cancel()

    result.refresh()
    (error,) = result.errors
    assert result.status == FAILED
    assert error.exception_class.__name__ == "TaskCancelled"


def test_options_of_rota_are_given_below_the_decorator(backend: RotaBackend) -> None:
    result = tasks.fails.enqueue("x")

    view = view_of(backend, result)
    assert (view.max_attempts, view.backoff.kind) == (1, "none")  # of the task, of the settings
    with pytest.raises(Invalid, match="queue_name"):
        task_options(queue="mail")
    with pytest.raises(Invalid, match="did you mean 'max_attempts'"):
        task_options(max_atempts=1)(lambda: None)  # type: ignore[call-arg]  # the mistake
    with pytest.raises(Invalid, match="below @task"):
        task_options(max_attempts=1)(tasks.add)


# --- names from the wire ------------------------------------------------------------------------


def test_a_name_from_the_wire_is_looked_up_and_never_imported(backend: RotaBackend) -> None:
    backend.rota.enqueue("antigravity.geohash", {"args": [], "kwargs": {}}, key="foreign")

    with pytest.raises(TaskResultDoesNotExist, match="no installed app"):
        backend.get_result("foreign")

    import sys  # noqa: PLC0415 - only here

    assert "antigravity" not in sys.modules


def test_the_class_of_an_error_is_not_imported_from_foreign_modules() -> None:
    from rota.contrib.django.results import ReportedError  # noqa: PLC0415 - only here

    def look_up(path: str) -> None:
        _ = ReportedError(exception_class_path=path, traceback="").exception_class

    for path in ("antigravity.Error", "nonsense", "tests.contrib.none.Error"):
        with pytest.raises(ImportError, match="has not loaded"):
            look_up(path)
    for path in ("os.system", "os.nothing"):
        with pytest.raises(ValueError, match="does not reference a valid exception"):
            look_up(path)


# --- signals ------------------------------------------------------------------------------------

SUCCESS = "SUCCESSFUL"


def of_worker(signals: list[Any], result: Any) -> list[tuple[str, str]]:
    """The signals that the worker sent; it may be quicker than the program that enqueued."""
    sent = [one[::2] for one in signals if one[1] == result.id]
    return [one for one in sent if one[0] != "task_enqueued"]


@pytest.mark.parametrize("task", [tasks.add, tasks.aadd])
def test_a_task_sends_all_its_signals(
    backend: RotaBackend, worker: DjangoWorker, signals: list[Any], task: Any
) -> None:
    result = finished(backend, task.enqueue(1, 2))

    assert ("task_enqueued", result.id, "READY") in signals
    assert of_worker(signals, result) == [("task_started", "RUNNING"), ("task_finished", SUCCESS)]


def test_only_the_last_attempt_is_the_end_of_a_task(
    backend: RotaBackend, worker: DjangoWorker, signals: list[Any]
) -> None:
    second = finished(backend, tasks.second_time.enqueue())
    failed = finished(backend, tasks.fails.enqueue("x"))
    discarded = finished(backend, tasks.discards.enqueue())

    started = ("task_started", "RUNNING")
    assert of_worker(signals, second) == [started, started, ("task_finished", SUCCESS)]
    ends = [one for one in signals if one[0] == "task_finished"]
    assert ("task_finished", failed.id, "FAILED") in ends
    assert ("task_finished", discarded.id, "FAILED") in ends


def test_a_signal_and_the_result_name_the_same_class_of_error(
    backend: RotaBackend, worker: DjangoWorker
) -> None:
    ended: list[Any] = []

    def note(task_result: Any, **_: Any) -> None:
        ended.append(task_result)

    task_finished.connect(note)
    try:
        for task, kind in (
            (tasks.returns_object, TypeError),
            (tasks.discards_for_a_cause, tasks.Refused),
            (tasks.discards, Discard),
        ):
            result = finished(backend, task.enqueue())

            (signalled,) = (one for one in ended if one.id == result.id)
            for one in (result, signalled):
                assert [error.exception_class for error in one.errors] == [kind]
    finally:
        task_finished.disconnect(note)


def test_a_task_that_ran_out_of_time_has_failed(
    backend: RotaBackend, worker: DjangoWorker, signals: list[Any]
) -> None:
    def is_ended() -> bool:
        return ("task_finished", "FAILED") in of_worker(signals, result)

    result = finished(backend, tasks.outlasts_its_time.enqueue())

    assert [one.exception_class for one in result.errors] == [TimeoutError]
    deadline = time.monotonic() + PATIENCE_S
    while not is_ended():  # the function ends after its task
        assert time.monotonic() < deadline
    assert ("task_finished", SUCCESS) not in of_worker(signals, result)


def test_a_receiver_that_fails_does_not_fail_the_task(
    backend: RotaBackend, worker: DjangoWorker
) -> None:
    def fail(**_: Any) -> None:
        raise RuntimeError("a defect of the receiver")

    task_started.connect(fail)
    try:
        result = finished(backend, tasks.add.enqueue(1))
    finally:
        task_started.disconnect(fail)

    assert result.status == SUCCESSFUL


# --- the database -------------------------------------------------------------------------------


def test_stale_connections_are_closed_between_tasks(
    backend: RotaBackend, worker: DjangoWorker
) -> None:
    results = [finished(backend, tasks.has_stale_connection.enqueue()) for _ in range(12)]

    assert [one.return_value for one in results] == [False] * 12


def test_an_async_task_reaches_the_database(backend: RotaBackend, worker: DjangoWorker) -> None:
    assert finished(backend, tasks.asks_database.enqueue()).return_value == 42
