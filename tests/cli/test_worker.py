"""Do workers work, recycle, and end cleanly? Real processes, from the command line on."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.cli.render.output import ExitCode
from rota.core.tasks.model import NewTask, TaskState
from rota.messages import TaskView
from rota.sdk.client import calls
from rota.sdk.client.client import Client
from tests.cli.processes import coordinator, run, running

pytestmark = pytest.mark.slow

APP = """
import os
from pathlib import Path

from rota import Rota

app = Rota()


@app.task
def add(a: int, b: int) -> int:
    return a + b


@app.task(max_attempts=1)
async def fail() -> None:
    raise ValueError("no such luck")


@app.task
def whoami() -> int:
    return os.getpid()


@app.task
def wait() -> str:
    print("in the handler", flush=True)
    return Path("gate").read_text()  # a pipe: this takes until the test writes into it
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "work.py").write_text(APP)
    os.mkfifo(tmp_path / "gate")
    return tmp_path


@pytest.fixture
def url(folder: Path) -> Iterator[str]:
    with coordinator(folder) as (_process, url):
        yield url


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client.connect(url) as client:
        yield client


def submit(client: Client, name: str) -> str:
    (task,) = client.run(calls.submit([NewTask(name=name)]))
    return task.id


def finished(client: Client, task_id: str) -> TaskView:
    task = client.run(calls.get_task(task_id, wait_ms=60_000))
    assert task.finished_at_ms is not None
    return task


def test_a_task_goes_from_shell_to_worker_and_back(folder: Path, url: str) -> None:
    with running("worker", "work:app", "--url", url, folder=folder) as worker:
        assert f"at {url} runs: add, fail, wait, whoami" in worker.wait_for("worker ")

        add = ("submit", "add", "--payload", '{"a": 1, "b": 2}', "--wait", "--url", url)
        good = run(*add, folder=folder)
        bad = run("submit", "fail", "--wait", folder=folder, ROTA_URL=url)

        assert (good.returncode, good.stdout) == (ExitCode.OK, "3\n")
        assert bad.returncode == ExitCode.FAILED
        assert "ValueError: no such luck" in bad.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_running_tasks_finish(
    folder: Path, url: str, client: Client, number: signal.Signals
) -> None:
    with running("worker", "-A", "work:app", folder=folder, ROTA_URL=url) as worker:
        task_id = submit(client, "wait")
        worker.wait_for("in the handler")

        worker.signal(number)
        worker.wait_for("worker_stopping")
        (folder / "gate").write_text("done")

        assert worker.ends() == ExitCode.OK
        assert "Traceback" not in worker.output
    assert bytes(finished(client, task_id).result or b"") == b'"done"'
    assert client.run(calls.list_workers()).items == []


def test_a_second_signal_hands_running_tasks_back(folder: Path, url: str, client: Client) -> None:
    with running("worker", "work:app", "--url", url, folder=folder) as worker:
        task_id = submit(client, "wait")
        worker.wait_for("in the handler")

        worker.signal(signal.SIGTERM)
        worker.wait_for("worker_stopping")
        worker.signal(signal.SIGTERM)

        assert worker.ends() == ExitCode.OK
        assert "Traceback" not in worker.output
    task = client.run(calls.get_task(task_id))
    assert (task.state, task.attempt) == (TaskState.QUEUED, 0)


def test_after_so_many_tasks_the_process_begins_anew(
    folder: Path, url: str, client: Client
) -> None:
    flags = ("--url", url, "--max-tasks", "1", "--worker-id", "w1", "--json")
    with running("worker", "work:app", *flags, folder=folder) as worker:
        tasks = [finished(client, submit(client, "whoami")) for _ in range(2)]
        worker.wait_for('"worker_id":"w1"', times=3)

        worker.signal(signal.SIGTERM)

        assert worker.ends() == ExitCode.OK
        assert "Traceback" not in worker.output
    assert [int(bytes(task.result or b"")) for task in tasks] == [worker.pid] * 2


def test_a_worker_about_to_begin_anew_heeds_a_stop(folder: Path, url: str, client: Client) -> None:
    with running("worker", "work:app", "--url", url, "--max-tasks", "1", folder=folder) as worker:
        submit(client, "wait")
        worker.wait_for("in the handler")

        worker.signal(signal.SIGTERM)
        worker.wait_for("worker_stopping")
        (folder / "gate").write_text("done")

        assert worker.ends() == ExitCode.OK
        assert len(worker.find("runs: ")) == 1


def test_several_processes_work_and_end_together(folder: Path, url: str, client: Client) -> None:
    flags = ("--url", url, "--processes", "2", "--worker-id", "w", "--concurrency", "1")
    with running("worker", "work:app", *flags, folder=folder) as fleet:
        fleet.wait_for("worker w-1 ")
        fleet.wait_for("worker w-2 ")

        fleet.signal(signal.SIGINT)

        assert fleet.ends() == ExitCode.OK
        assert "Traceback" not in fleet.output
    assert client.run(calls.list_workers()).items == []


def test_one_process_that_is_killed_ends_the_others(folder: Path, url: str, client: Client) -> None:
    with running("worker", "work:app", "--url", url, "--processes", "2", folder=folder) as fleet:
        task = finished(client, submit(client, "whoami"))

        os.kill(int(bytes(task.result or b"")), signal.SIGKILL)

        assert fleet.ends() == ExitCode.FAILED
        assert "worker_process_failed" in fleet.output


def test_a_fleet_whose_parent_is_killed_ends(folder: Path, url: str, client: Client) -> None:
    flags = ("--url", url, "--processes", "2", "--worker-id", "w")
    with running("worker", "work:app", *flags, folder=folder) as fleet:
        fleet.wait_for("worker w-1 ")
        fleet.wait_for("worker w-2 ")

        fleet.signal(signal.SIGKILL)
        fleet.ends()

    assert client.run(calls.list_workers()).items == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["nowhere:app"], "there is no module 'nowhere'"),
        (["work:app", "--tasks", "add,nothing"], "the app has no task named 'nothing'"),
        ([], "name one app"),
    ],
)
def test_what_cannot_be_started_is_one_line(folder: Path, arguments: list[str], text: str) -> None:
    ended = run("worker", *arguments, folder=folder)

    assert ended.returncode == ExitCode.UNUSABLE
    assert text in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_a_worker_waits_for_a_coordinator_that_is_not_there_yet(folder: Path) -> None:
    with running("worker", "work:app", "--url", "http://127.0.0.1:1", folder=folder) as worker:
        worker.wait_for("coordinator_unreachable")

        worker.signal(signal.SIGTERM)

        assert worker.ends() == ExitCode.OK
        assert "Traceback" not in worker.output


def test_a_worker_logs_its_tasks_and_the_coordinators_absence(folder: Path) -> None:
    with (
        coordinator(folder) as (first, url),
        running("worker", "work:app", "--url", url, folder=folder) as worker,
    ):
        first.wait_for("worker_registered")
        with Client.connect(url) as client:
            submit(client, "whoami")
            worker.wait_for("task_succeeded")
            submit(client, "fail")
            failed = json.loads(worker.wait_for("task_failed"))
        first.signal(signal.SIGKILL)
        worker.wait_for("coordinator_unreachable")
        again = ("--port", url.rsplit(":", 1)[1], "--store", f"sqlite:///{folder}/rota.db")
        with running("up", *again, folder=folder):
            worker.wait_for("coordinator_reached")
            # Counted while the second coordinator runs: its own end is an absence, too.
            absences = len(worker.find("coordinator_unreachable"))

    assert (failed["task"], failed["level"]) == ("fail", "error")
    assert 'raise ValueError("no such luck")' in failed["exception"]
    assert absences == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_coordinator_and_worker_run_in_one_process(folder: Path, number: signal.Signals) -> None:
    flags = ("--port", "0", "--json")
    with running("dev", "work:app", *flags, folder=folder) as process:
        url = json.loads(process.wait_for('"url"'))["url"]
        process.wait_for('"worker_id"')

        add = ("submit", "add", "--payload", '{"a": 1, "b": 2}', "--wait", "--url", url)
        ended = run(*add, folder=folder)
        process.signal(number)

        assert (ended.returncode, ended.stdout) == (ExitCode.OK, "3\n")
        assert process.ends() == ExitCode.OK
        assert "Traceback" not in process.output


def test_dev_refuses_what_up_refuses(folder: Path, url: str) -> None:
    ended = run("dev", "work:app", "--port", "0", folder=folder)

    assert ended.returncode == ExitCode.UNUSABLE
    assert ended.stderr.endswith("(store_locked)\n")
    assert f"serves at {url}: use it with ROTA_URL={url}" in ended.stderr
    assert ended.stderr.count("\n") == 1
