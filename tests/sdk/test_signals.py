"""A worker process heeds signals: the first drains, the second quits."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rota import Rota
from rota.core.tasks.model import TaskState
from tests.sdk.serving import PATIENCE_S, Server

pytestmark = pytest.mark.slow  # each starts an interpreter

PROGRAM = """
import sys
from rota import Rota, Worker

app = Rota(sys.argv[1])

@app.task
def work() -> str:
    print("started", flush=True)
    sys.stdin.readline()
    return "finished"

print(Worker(app).run(), flush=True)
"""


@contextmanager
def worker_process(server: Server) -> Iterator["subprocess.Popen[str]"]:
    """A worker at work on one task, which waits for a line on its standard input."""
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-c", PROGRAM, server.url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def next_line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip() in {"started", "stopped"}:
            return line.strip()
    return ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_lets_handlers_finish(
    server: Server, app: Rota, number: signal.Signals
) -> None:
    handle = app.enqueue("work")
    with worker_process(server) as process:
        assert next_line(process) == "started"
        process.send_signal(number)
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()

        assert next_line(process) == "stopped"
        assert process.wait(PATIENCE_S) == 0

    assert handle.result(PATIENCE_S) == "finished"


def test_the_second_signal_hands_the_work_back(server: Server, app: Rota) -> None:
    handle = app.enqueue("work")
    with worker_process(server) as process:
        assert next_line(process) == "started"
        process.send_signal(signal.SIGTERM)
        while process.poll() is None:
            process.send_signal(signal.SIGTERM)
            handle.status()  # a round trip

        assert process.returncode in {0, -signal.SIGTERM}

    view = handle.view()
    assert view.state is TaskState.QUEUED
    assert view.attempt == 0
