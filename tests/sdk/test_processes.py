"""Handlers in processes: found by name, stopped for good, crashing alone."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota import Client, Rota, TaskFailed
from rota.core import limits
from rota.errors import Invalid
from rota.sdk.client import calls
from tests.sdk import process_tasks
from tests.sdk.serving import PATIENCE_S, Server, working

pytestmark = pytest.mark.slow  # each starts an interpreter


@pytest.fixture
def app(server: Server) -> Iterator[Rota]:
    with Client.connect(server.url) as client:
        process_tasks.app.use(client)
        yield process_tasks.app
        process_tasks.app.reset()


def test_a_process_is_kept_for_the_next_attempt(app: Rota) -> None:
    with working(app, concurrency=1):
        first = process_tasks.process_id.enqueue().result(PATIENCE_S)
        second = process_tasks.process_id.enqueue().result(PATIENCE_S)

    assert first == second
    assert first != os.getpid()


def test_handlers_in_processes_have_their_context_arguments_and_errors(app: Rota) -> None:
    with working(app, concurrency=1):
        assert process_tasks.doubled.enqueue(21).result(PATIENCE_S) == 42
        told = process_tasks.attempt_told.enqueue().result(PATIENCE_S)
        assert told == {"attempt": 1, "name": "attempt_told"}
        with pytest.raises(TaskFailed, match="LookupError: nothing here"):
            process_tasks.fail.enqueue().result(PATIENCE_S)


def test_a_crash_costs_the_attempt_and_nothing_else(app: Rota) -> None:
    with working(app, concurrency=1):
        with pytest.raises(TaskFailed, match="exit code 3") as caught:
            process_tasks.crash.enqueue(3).result(PATIENCE_S)
        assert caught.value.error.type == "process_died"

        assert process_tasks.doubled.enqueue(1).result(PATIENCE_S) == 2


def test_a_cancelled_handler_s_process_is_ended(app: Rota, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    with working(app, concurrency=1):
        handle = process_tasks.endless.enqueue(str(pid_file))
        while not (pid_file.exists() and pid_file.read_text()):
            handle.status()  # each look is a round trip
        handle.cancel()
        # There is one place only, so this runs when the other process is gone.
        process_tasks.doubled.enqueue(1).result(PATIENCE_S)

    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)


def test_handlers_in_processes_attach_artifacts_through_their_worker(app: Rota) -> None:
    flow = app.workflow("from_processes", output={"run": "nodes.plain.result"})
    flow.node("plain", task="attach_from_process", input={"name": "'a.txt'"})
    flow.node("on_loop", task="attach_from_async_process", input={"name": "'b.txt'"})
    flow.transition("plain", "on_loop")

    with working(app, concurrency=1):
        run = flow.start()
        output = run.result(PATIENCE_S)

    assert output == {"run": run.id}
    assert {one.name: run.artifact(one.name) for one in run.artifacts()} == {
        "a.txt": b"from a process",
        "b.txt": b"from a loop in a process",
    }


def test_only_functions_that_can_be_imported_run_in_processes() -> None:
    app = Rota()

    with pytest.raises(Invalid, match="top level of a module"):

        @app.task(run_in="process")
        def local() -> None: ...


def lines_of(app: Rota, task_id: str) -> list[tuple[str, str]]:
    page = app.client.run(calls.get_logs(task_id))
    return [(one.logger, one.message) for one in page.items]


def test_lines_from_a_process_are_kept_even_if_it_crashes(app: Rota) -> None:
    with working(app, concurrency=1, capture_logs=["shop"]):
        crashed = process_tasks.log_and_crash.enqueue()
        with pytest.raises(TaskFailed, match="exit code 3"):
            crashed.result(PATIENCE_S)
        logged = process_tasks.log_from_process.enqueue(2)
        logged.result(PATIENCE_S)

        assert lines_of(app, crashed.id) == [("rota.task", "about to crash")]
        assert lines_of(app, logged.id) == [
            ("rota.task", "line 0"),
            ("rota.task", "line 1"),
            ("shop.mail", "by another logger"),
        ]


def test_a_flood_of_lines_from_a_process_is_cut_and_counted(app: Rota) -> None:
    with working(app, concurrency=1, capture_logs=["shop"]):
        handle = process_tasks.log_from_process.enqueue(5_000)
        handle.result(PATIENCE_S)

        page = app.client.run(calls.get_logs(handle.id, level="warning"))

    assert [one.message for one in page.items] == ["by another logger"]
    (attempt,) = page.attempts
    assert attempt.lines + attempt.dropped == 5_001
    assert attempt.lines <= limits.MAX_LOG_LINES
