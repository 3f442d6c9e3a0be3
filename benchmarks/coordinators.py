"""A coordinator process on a fresh file, worker processes, and calls to the coordinator.

They are started by the commands that a user types, with their default settings, which are durable.
"""

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread
from typing import NamedTuple

import msgspec
from msgspec import Struct

from benchmarks import witness
from benchmarks.processes import Failed, Process, free_port, running
from benchmarks.wire import Connection, request

COMMAND = str(Path(sys.executable).with_name("rota"))
START_LIMIT_S = 30.0
FILL_BATCH = 5_000
PAGE = 1_000
POLL_S = 0.05


class Coordinator(NamedTuple):
    process: Process
    folder: Path
    port: int
    connection: Connection

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def coordinator(
    folder: Path,
    *,
    store: str | None = None,
    flags: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    program: Sequence[str] = (COMMAND,),
) -> Iterator[Coordinator]:
    """Run a coordinator, on a fresh SQLite file unless another store is named."""
    folder.mkdir()
    port = free_port()
    store = store or f"sqlite:///{folder / 'rota.db'}"
    command = [*program, "up", "--store", store, "--port", str(port), *flags]
    log = folder / "coordinator.log"
    with running(command, log=log, environment=environment) as process:
        connection = connect_when_ready(process, port)
        try:
            yield Coordinator(process, folder, port, connection)
            process.check()
        finally:
            connection.close()


@contextmanager
def replicas(
    size: int, folder: Path, store: str, *, environment: Mapping[str, str] | None = None
) -> Iterator[list[Coordinator]]:
    """Run several coordinators on one store, each with a name."""
    folder.mkdir()
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                coordinator(
                    folder / str(number),
                    store=store,
                    flags=["--replica-name", f"replica-{number}"],
                    environment=environment,
                )
            )
            for number in range(size)
        ]


def connect_when_ready(process: Process, port: int, *, poll_s: float = POLL_S) -> Connection:
    end_s = time.monotonic() + START_LIMIT_S
    ready = request("GET", "/health/ready")
    while time.monotonic() < end_s:
        process.check()
        try:
            connection = Connection(port)
            if connection.exchange(ready).is_success:
                return connection
            connection.close()
        except (OSError, Failed):
            pass  # it does not listen yet
        time.sleep(poll_s)
    raise Failed(f"the coordinator was not ready within {START_LIMIT_S:.0f} s")


@contextmanager
def worker(of: Coordinator, *, concurrency: int) -> Iterator[Process]:
    """Run one worker process, which may not have registered yet when the block begins."""
    command = [COMMAND, "worker", "benchmarks.app:app", "--url", of.url]
    command += ["--concurrency", str(concurrency)]
    environment = {witness.FOLDER_VARIABLE: str(of.folder), "ROTA_URL": of.url}
    with running(command, log=of.folder / "worker.log", environment=environment) as process:
        yield process
        process.check()


def wait_for_worker(of: Coordinator, process: Process) -> None:
    while not of.connection.ask("GET", "/api/workers")["items"]:
        process.check()
        time.sleep(POLL_S)


# --- submitting --------------------------------------------------------------------------------


def fill(of: Coordinator, tasks: int, *, batch: int = FILL_BATCH) -> tuple[str, str]:
    """Queue no-op tasks in large batches; return the ids of the first and the last."""
    answers = [of.connection.send(submission(size)) for size in sizes(tasks, batch)]
    return json.loads(answers[0])[0]["id"], json.loads(answers[-1])[-1]["id"]


def submission(size: int, *, name: str = "noop") -> bytes:
    return request("POST", "/api/tasks", json.dumps([{"name": name}] * size).encode())


def sizes(tasks: int, batch: int) -> list[int]:
    whole, rest = divmod(tasks, batch)
    return [batch] * whole + ([rest] if rest else [])


def submit_at_once(of: Coordinator, tasks: int, *, batch: int, connections: int) -> float:
    """Submit in batches over several connections at once; return the seconds it took."""
    written = {size: submission(size) for size in set(sizes(tasks, batch))}
    waiting = sizes(tasks, batch)
    problems: list[Exception] = []

    def submit(connection: Connection) -> None:
        try:
            while waiting:
                connection.send(written[waiting.pop()])
        except IndexError:
            pass  # another thread took the last
        except (OSError, Failed) as error:
            problems.append(error)
        finally:
            connection.close()

    threads = [
        Thread(target=submit, args=(Connection(of.port),), daemon=True) for _ in range(connections)
    ]
    start_s = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed_s = time.perf_counter() - start_s
    if problems:
        raise Failed(f"submitting failed: {problems[0]}")
    return elapsed_s


# --- results ------------------------------------------------------------------------------------


class TaskTimes(Struct):
    state: str
    created_at_ms: int
    started_at_ms: int | None = None
    finished_at_ms: int | None = None


class TaskPage(Struct):
    items: list[TaskTimes]
    next_cursor: str | None = None


class LeaseItem(Struct):
    task_id: str
    fence: int


class LeaseAnswer(Struct):
    leases: list[LeaseItem]


def leases(answer: bytes) -> list[LeaseItem]:
    return msgspec.json.decode(answer, type=LeaseAnswer).leases


class Times(NamedTuple):
    """The first and last times of all tasks, by the coordinator's own clock."""

    first_created_ms: int
    first_started_ms: int
    last_finished_ms: int


def wait_until_finished(of: Coordinator, *workers: Process) -> None:
    """Wait until nothing is queued or running; poll seldom, so as not to disturb."""
    while unfinished(of):
        for process in (of.process, *workers):
            process.check()
        time.sleep(2 * POLL_S)


def unfinished(of: Coordinator) -> int:
    queues = of.connection.ask("GET", "/api/queues")["items"]
    return sum(queue["depth"] + queue["running"] + queue["scheduled"] for queue in queues)


def wait_for_task(of: Coordinator, task_id: str, *workers: Process) -> None:
    """Wait until this task has succeeded; reading one task disturbs less than counting all."""
    while of.connection.ask("GET", f"/api/tasks/{task_id}")["state"] != "succeeded":
        for process in (of.process, *workers):
            process.check()
        time.sleep(POLL_S)


def times(of: Coordinator, expected: int) -> Times:
    """Read every task back, check that all have succeeded, and return their times."""
    decoder = msgspec.json.Decoder(TaskPage)
    found: list[TaskTimes] = []
    path: str | None = f"/api/tasks?limit={PAGE}"
    while path is not None:
        page = decoder.decode(of.connection.send(request("GET", path)))
        found += page.items
        path = f"/api/tasks?limit={PAGE}&cursor={page.next_cursor}" if page.next_cursor else None
    unfinished = sum(task.state != "succeeded" for task in found)
    if len(found) != expected or unfinished:
        raise Failed(f"of {expected} tasks {len(found)} were found, {unfinished} did not succeed")
    return Times(
        min(task.created_at_ms for task in found),
        min(task.started_at_ms or 0 for task in found),
        max(task.finished_at_ms or 0 for task in found),
    )
