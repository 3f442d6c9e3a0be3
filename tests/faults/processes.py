"""Coordinators and workers as processes that can be killed, and what is true afterwards."""

import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.cli.processes import MODULE, Running
from tests.faults.callers import (
    PATIENCE_S,
    PLAIN,
    Book,
    Caller,
    CallingThread,
    Client,
    NoAnswer,
    PlainWorker,
    known_id,
)
from tests.faults.pacing import usual_rate
from tests.faults.places import Place, SqlitePlace
from tests.faults.proxy import Proxy

ROOT = Path(__file__).parents[2]
UNCLAIMED_MS = 1_000
PACE_S = 0.25
PACED_MOST = 64  # tasks that a worker takes at once, so that it is never what is waited for
LOOK_AGAIN_S = 0.1
SHIFT = "FAULTS_CLOCK_SHIFT_MS"


class Scene:
    """Coordinators on one store, each with its port, their callers, and what those were told."""

    def __init__(
        self,
        folder: Path,
        place: Place | None = None,
        *,
        replicas: int = 1,
        flags: Sequence[str] = (),
        shifts_ms: Sequence[int] = (),
        has_link_proxies: bool = False,
    ) -> None:
        """`shifts_ms`: by how much the clock of each coordinator is wrong.

        `has_link_proxies`: the coordinators reach each other through a proxy before each of them.
        """
        self.folder = folder
        self.place = place or SqlitePlace(folder)
        self.record = folder / "record.jsonl"
        self.book = Book()
        self.processes: list[Running] = []
        self._callers: list[CallingThread] = []
        self._flags = flags
        self._shifts_ms = shifts_ms
        self._ports = [reserved_port() for _ in range(replicas)]
        self.urls = [f"http://127.0.0.1:{port.getsockname()[1]}" for port in self._ports]
        self.link_proxies = [
            Proxy(("127.0.0.1", port.getsockname()[1]))
            for port in (self._ports if has_link_proxies else ())
        ]
        self.coordinators: list[Running] = []
        for replica in range(replicas):
            self.coordinators.append(self._start_replica(replica))
        for process in self.coordinators:
            process.wait_for('"url"')

    # --- the coordinators -----------------------------------------------------------------------

    @property
    def url(self) -> str:
        return self.urls[0]

    @property
    def coordinator(self) -> Running:
        return self.coordinators[0]

    def _start_replica(self, replica: int) -> Running:
        flags = {
            "--port": str(self._ports[replica].getsockname()[1]),
            "--store": self.place.url(replica),
            "--unclaimed-lease-ms": str(UNCLAIMED_MS),
            "--log-level": "warning",
        }
        if self.link_proxies:
            flags["--advertise"] = urlsplit(self.addresses[replica]).netloc
        arguments = [part for flag in flags.items() for part in flag]
        shift_ms = self._shifts_ms[replica] if self._shifts_ms else 0
        variables = {"PYTHONPATH": str(ROOT), SHIFT: str(shift_ms)} if shift_ms else {}
        module = "tests.faults.shifted" if shift_ms else MODULE
        return self._start("up", *arguments, *self._flags, "--json", module=module, **variables)

    @property
    def addresses(self) -> list[str]:
        """Where the coordinators reach each other."""
        if not self.link_proxies:
            return self.urls
        return [f"http://{one.host}:{one.port}" for one in self.link_proxies]

    def start_coordinator(self, replica: int = 0) -> None:
        """Returns when it serves, on the port it had before."""
        self.coordinators[replica] = self._start_replica(replica)
        self.coordinators[replica].wait_for('"url"')

    def restart_coordinator(self, number: signal.Signals, replica: int = 0) -> Running:
        """End it by a signal and start another; the answer is the one that has ended."""
        ended = self.coordinators[replica]
        ended.signal(number)
        ended.ends()
        self.start_coordinator(replica)
        return ended

    def kill_coordinator(self, replica: int) -> None:
        """Kill one and start it again; the others go on meanwhile, so this does not wait for it."""
        self.wait_serves(replica)
        self.coordinators[replica].signal(signal.SIGKILL)
        self.coordinators[replica].ends()
        self.coordinators[replica] = self._start_replica(replica)

    def wait_serves(self, replica: int) -> None:
        self.coordinators[replica].wait_for('"url"')

    def wait_all_serve(self) -> None:
        for replica in range(len(self.coordinators)):
            self.wait_serves(replica)

    def wait_for_trouble(self, make: Callable[[], None]) -> None:
        """Make trouble again and again, until a coordinator says that it cannot serve."""

        def is_in_trouble() -> bool:
            make()
            return any(not self.is_ready(url) for url in self.urls)

        self.wait(is_in_trouble)

    def wait_all_ready(self) -> None:
        self.wait(lambda: all(self.is_ready(url) for url in self.urls))

    def is_ready(self, url: str) -> bool:
        caller = Caller([url])
        try:
            status, _ = caller.call("GET", "/health/ready")
        except NoAnswer:
            return False
        finally:
            caller.close()
        return status == 200

    def wait(self, is_so: Callable[[], bool]) -> None:
        ends_at = time.monotonic() + PATIENCE_S
        while not is_so():
            assert time.monotonic() < ends_at, "it does not come to pass"
            self.book.wait_until(time.monotonic() + LOOK_AGAIN_S)

    # --- those who call it ----------------------------------------------------------------------

    def start_worker(
        self,
        *,
        heartbeat_ms: int,
        worker_id: str | None = None,
        transport: str = "auto",
        urls: Sequence[str] = (),
        queues: str = "",
    ) -> Running:
        """A worker of the SDK, in a process of its own, that has registered.

        `urls`: the coordinators that it calls, all by default. `queues`: those it works on.
        """
        arguments = ["--heartbeat-interval-ms", str(heartbeat_ms), "--concurrency", "4"]
        arguments += ["--transport", transport]
        if worker_id is not None:
            arguments += ["--worker-id", worker_id]
        if queues:
            arguments += ["--queues", queues]
        variables = {
            "ROTA_URL": ",".join(urls or self.urls),
            "PYTHONPATH": str(ROOT),
            "FAULTS_RECORD": str(self.record),
        }
        process = self._start(
            "worker", "tests.faults.worker_app:app", *arguments, "--json", **variables
        )
        process.wait_for('"worker_id"')
        return process

    def _start(self, *arguments: str, module: str = MODULE, **variables: str) -> Running:
        process = Running(*arguments, folder=self.folder, module=module, **variables)
        self.processes.append(process)
        return process

    def load(self) -> float:
        """Callers that come at a pace of their own; the answer is how much gets done a second."""
        self.start_plain_worker("plain", most=PACED_MOST)
        self.start_clients(3, PLAIN, pace_s=PACE_S)
        return usual_rate(self.book)

    def start_clients(self, number: int, *names: str, pace_s: float = 0.0) -> None:
        """Clients that submit tasks of these names in turn."""
        for seed in range(1, number + 1):
            self.start_caller(Client(self._from(seed), self.book, seed, names, pace_s=pace_s))

    def _from(self, number: int) -> list[str]:
        """All coordinators, each caller beginning with another."""
        start = number % len(self.urls)
        return self.urls[start:] + self.urls[:start]

    def start_plain_worker(self, worker_id: str, *, most: int = 4) -> None:
        self.start_plain_worker_at(worker_id, self._from(len(self._callers)), most=most)

    def start_plain_worker_at(self, worker_id: str, urls: Sequence[str], *, most: int = 4) -> None:
        self.start_caller(PlainWorker(urls, self.book, worker_id, most=most))

    def start_caller(self, caller: CallingThread) -> None:
        self._callers.append(caller)
        caller.start()

    def stop_clients(self) -> None:
        """Stop all that submit; the workers go on."""
        self._stop([one for one in self._callers if not isinstance(one, PlainWorker)])

    def _stop(self, callers: Sequence[CallingThread]) -> None:
        for caller in callers:
            caller.stop()
        for caller in callers:
            caller.join(PATIENCE_S)
            assert not caller.is_alive()

    # --- at the end -----------------------------------------------------------------------------

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        caller = Caller(self.urls)
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
        ends_at = time.monotonic() + 2 * PATIENCE_S
        while True:
            try:
                task = self.call("GET", f"/api/tasks/{task_id}?wait_ms=10000")
            except NoAnswer:
                assert time.monotonic() < ends_at, "nobody answers"
                continue
            if task["finished_at_ms"] is not None or time.monotonic() > ends_at:
                break
        assert task["state"] == "succeeded", task
        assert isinstance(task, dict)
        return task

    def finish(self) -> None:
        """As `drain`, without looking at those whose end was answered already."""
        self.stop_clients()
        for task_id in self.book.task_ids:
            if known_id(task_id) not in self.book.ledger.ends:
                self.wait_until_finished(task_id)

    def drain(self) -> list[dict[str, Any]]:
        """No more submissions; every task that was acknowledged comes to its end."""
        self.stop_clients()
        return [self.wait_until_finished(task_id) for task_id in self.book.task_ids]

    def recorded(self, kind: str) -> list[list[Any]]:
        if not self.record.exists():  # no worker of the SDK has run anything
            return []
        lines = [json.loads(line) for line in self.record.read_text().splitlines()]
        return [line[1:] for line in lines if line[0] == kind]

    def stop(self) -> None:
        """Everything ends; what was started and is still there is killed, by its id."""
        with ExitStack() as stack:
            for port in self._ports:
                stack.callback(port.close)
            for process in self.processes:
                stack.callback(process.stop)
            for proxy in self.link_proxies:
                stack.callback(proxy.close)
            stack.callback(self._stop, self._callers)

    def problems(self) -> list[str]:
        """After the end: what the file does not say as the answers did, and what came twice."""
        for task_id, outcome, result in self.recorded("outcome"):
            self.book.reported(task_id, outcome, result)
        return self.place.problems(self.book.ledger)


def reserved_port() -> socket.socket:
    """A port that stays ours between two coordinators that listen on it.

    While it is bound here and nobody listens on this socket, another that is ready to share may
    listen on the port, and the system gives it to nobody else.
    """
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    return holder


@contextmanager
def scene(folder: Path, place: Place | None = None, **options: Any) -> Iterator[Scene]:
    staged = Scene(folder, place, **options)
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
