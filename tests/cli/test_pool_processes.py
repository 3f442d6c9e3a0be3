"""Does a pool of workers follow the work, and end cleanly? Real processes, real work."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rota.cli.render.output import ExitCode
from rota.core.tasks.model import NewTask, TaskState
from rota.sdk.client import calls
from rota.sdk.client.client import Client
from tests.cli.processes import Running, coordinator, run, running

pytestmark = pytest.mark.slow

APP = """
import asyncio
import os

from rota import Rota

app = Rota()
inside = Rota("sqlite:///inside.db")


@app.task
async def slow() -> None:
    await asyncio.sleep(0.4)


@app.task
def whoami() -> int:
    return os.getpid()


@inside.task
def nothing() -> None:
    pass
"""
QUICK = (
    *("--scale-interval-ms", "200", "--scale-target-ms", "1000"),
    *("--shrink-after-ms", "1000", "--cool-down-ms", "100"),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "work.py").write_text(APP)
    return tmp_path


@pytest.fixture
def url(folder: Path) -> Iterator[str]:
    with coordinator(folder) as (_process, url):
        yield url


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client.connect(url) as client:
        yield client


def changes(pool: Running) -> list[Any]:
    """What the pool has said, without what its workers say."""
    return [json.loads(line) for line in pool.find('{"pool":')]


def test_a_pool_grows_under_a_burst_and_shrinks_back(
    folder: Path, url: str, client: Client
) -> None:
    flags = ("--min", "1", "--max", "3", "--concurrency", "1", "--worker-id", "p", "--json")
    with running("worker", "work:app", "--url", url, *flags, *QUICK, folder=folder) as pool:
        pool.wait_for('"worker_id":"p-1"')
        tasks = client.run(calls.submit([NewTask(name="slow")] * 40))

        pool.wait_for('"size":3')
        pool.wait_for('"worker_id":"p-3"')
        last = client.run(calls.get_task(tasks[-1].id, wait_ms=60_000))
        pool.wait_for('{"pool":"shrunk","size":1')

        pool.signal(signal.SIGTERM)
        assert pool.ends() == ExitCode.OK
        assert "Traceback" not in pool.output
    said = changes(pool)
    assert last.state is TaskState.SUCCEEDED
    assert max(change["size"] for change in said) == 3
    grown = [change for change in said if change["pool"] == "grown"]
    assert all("waiting" in change["reason"] for change in grown)
    shrunk = [(change["was"], change["size"]) for change in said if change["pool"] == "shrunk"]
    assert shrunk == [(3, 2), (2, 1)]
    assert said[-1] == {"pool": "stopping", "size": 0, "was": 1}
    assert client.run(calls.list_workers()).items == []


def test_a_worker_that_is_killed_is_replaced(folder: Path, url: str, client: Client) -> None:
    flags = ("--max", "2", "--worker-id", "p")
    with running("worker", "work:app", "--url", url, *flags, folder=folder) as pool:
        (task,) = client.run(calls.submit([NewTask(name="whoami")]))
        done = client.run(calls.get_task(task.id, wait_ms=60_000))

        os.kill(int(bytes(done.result or b"")), signal.SIGKILL)
        said = pool.wait_for("pool ended")
        pool.wait_for("worker p-1 ", times=2)
        pool.signal(signal.SIGINT)

        assert "a worker process ended with signal 9" in said
        assert pool.ends() == ExitCode.OK


def test_a_pool_whose_parent_is_killed_ends(folder: Path, url: str, client: Client) -> None:
    flags = ("--url", url, "--min", "2", "--max", "3", "--worker-id", "p")
    with running("worker", "work:app", *flags, folder=folder) as pool:
        pool.wait_for("worker p-1 ")
        pool.wait_for("worker p-2 ")

        pool.signal(signal.SIGKILL)
        pool.ends()

    assert client.run(calls.list_workers()).items == []


def test_without_a_coordinator_a_pool_waits_as_it_is(folder: Path) -> None:
    flags = ("--url", "http://127.0.0.1:1", "--max", "2")
    with running("worker", "work:app", *flags, folder=folder) as pool:
        pool.wait_for("pool_demand_unknown")
        pool.wait_for("coordinator_unreachable")

        pool.signal(signal.SIGTERM)

        assert pool.ends() == ExitCode.OK
        assert "Traceback" not in pool.output


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["work:app", "--min", "2"], "--min needs --max"),
        (["work:app", "--min", "3", "--max", "2"], "--min 3 is above --max 2"),
        (["work:app", "--max", "2", "--processes", "2"], "--processes starts a fixed number"),
        (["work:app", "--max", "2", "--tasks", "none"], "the app has no task named 'none'"),
        (["work:inside", "--max", "2"], "the app embeds its coordinator"),
    ],
)
def test_a_pool_that_cannot_be_is_refused_in_one_line(
    folder: Path, arguments: list[str], text: str
) -> None:
    ended = run("worker", *arguments, folder=folder)

    assert ended.returncode == ExitCode.UNUSABLE
    assert text in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_a_pool_of_none_is_an_ordinary_worker(folder: Path, url: str) -> None:
    flags = ("--url", url, "--min", "2", "--max", "0", "--worker-id", "w")
    with running("worker", "work:app", *flags, folder=folder) as worker:
        worker.wait_for("worker w ")

        worker.signal(signal.SIGTERM)

        assert worker.ends() == ExitCode.OK
        assert worker.find("pool") == []
