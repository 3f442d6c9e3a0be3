"""Coordinator and workers as processes that can be killed, and what is true afterwards."""

import json
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rota.store.sqlite import SqliteDatabase
from tests.cli.processes import Running
from tests.faults.callers import PATIENCE_S, Book, Caller, CallingThread, Client, PlainWorker

ROOT = Path(__file__).parents[2]
UNCLAIMED_MS = 1_000


class Scene:
    """A coordinator on one file and one port, its callers, and what they were told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / "rota.db"
        self.record = folder / "record.jsonl"
        self.book = Book()
        self.processes: list[Running] = []
        self._callers: list[CallingThread] = []
        self._port = 0
        self.start_coordinator()

    # --- the coordinator ------------------------------------------------------------------------

    def start_coordinator(self) -> None:
        """On the first start a free port is taken; the later ones keep it."""
        flags = {
            "--port": str(self._port),
            "--store": f"sqlite:///{self.store}",
            "--unclaimed-lease-ms": str(UNCLAIMED_MS),
            "--log-level": "warning",
        }
        arguments = [part for flag in flags.items() for part in flag]
        self.coordinator = self._start("up", *arguments, "--json")
        self.url = json.loads(self.coordinator.wait_for('"url"'))["url"]
        self._port = urlsplit(self.url).port or 0

    def restart_coordinator(self, number: signal.Signals) -> Running:
        """End it by a signal and start another; the answer is the one that has ended."""
        ended = self.coordinator
        ended.signal(number)
        ended.ends()
        self.start_coordinator()
        return ended

    # --- those who call it ----------------------------------------------------------------------

    def start_worker(self, *, heartbeat_ms: int, worker_id: str | None = None) -> Running:
        """A worker of the SDK, in a process of its own, that has registered."""
        arguments = ["--heartbeat-interval-ms", str(heartbeat_ms), "--concurrency", "4"]
        if worker_id is not None:
            arguments += ["--worker-id", worker_id]
        variables = {
            "ROTA_URL": self.url,
            "PYTHONPATH": str(ROOT),
            "FAULTS_RECORD": str(self.record),
        }
        process = self._start(
            "worker", "tests.faults.worker_app:app", *arguments, "--json", **variables
        )
        process.wait_for('"worker_id"')
        return process

    def _start(self, *arguments: str, **variables: str) -> Running:
        process = Running(*arguments, folder=self.folder, **variables)
        self.processes.append(process)
        return process

    def start_clients(self, number: int, *names: str) -> None:
        """Clients that submit tasks of these names in turn."""
        for seed in range(1, number + 1):
            self._start_caller(Client(self.url, self.book, seed, names))

    def start_plain_worker(self, worker_id: str) -> None:
        self._start_caller(PlainWorker(self.url, self.book, worker_id))

    def _start_caller(self, caller: CallingThread) -> None:
        self._callers.append(caller)
        caller.start()

    def stop_clients(self) -> None:
        self._stop([caller for caller in self._callers if isinstance(caller, Client)])

    def _stop(self, callers: Sequence[CallingThread]) -> None:
        for caller in callers:
            caller.stop()
        for caller in callers:
            caller.join(PATIENCE_S)
            assert not caller.is_alive()

    # --- at the end -----------------------------------------------------------------------------

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        caller = Caller(self.url)
        try:
            return caller.call(method, path, body)
        finally:
            caller.close()

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """As `ask`, when nothing but success is expected."""
        status, answer = self.ask(method, path, body)
        assert status in {200, 201}, answer
        return answer

    def wait_until_finished(self, task_id: str) -> dict[str, Any]:
        task = self.call("GET", f"/api/tasks/{task_id}?wait_ms=60000")
        assert task["state"] == "succeeded", task
        assert isinstance(task, dict)
        return task

    def drain(self) -> list[dict[str, Any]]:
        """No more submissions; every task that was acknowledged comes to its end."""
        self.stop_clients()
        return [self.wait_until_finished(task_id) for task_id in self.book.task_ids]

    def recorded(self, kind: str) -> list[list[Any]]:
        lines = [json.loads(line) for line in self.record.read_text().splitlines()]
        return [line[1:] for line in lines if line[0] == kind]

    def stop(self) -> None:
        """Everything ends; what was started and is still there is killed, by its id."""
        with ExitStack() as stack:
            for process in self.processes:
                stack.callback(process.stop)
            stack.callback(self._stop, self._callers)

    def problems(self) -> list[str]:
        """After the end: what the file does not say as the answers did, and what came twice."""
        for task_id, outcome, result in self.recorded("outcome"):
            self.book.reported(task_id, outcome, result)
        database = SqliteDatabase(str(self.store))
        try:
            return self.book.ledger.problems(database)
        finally:
            database.close()


@contextmanager
def scene(folder: Path) -> Iterator[Scene]:
    staged = Scene(folder)
    try:
        yield staged
    finally:
        staged.stop()


def pause(process: Running) -> None:
    """Stop a process where it stands; returns when the system has done so."""
    process.signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)


def stop(process: Running) -> int:
    """Ask a process to end, as a service manager would; gives its exit code."""
    process.signal(signal.SIGTERM)
    return process.ends()
