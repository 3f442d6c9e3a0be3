"""DBOS on SQLite: queued workflows, started by a process that polls one file.

A task is a workflow without steps; runs of one step and of three are measured as well.

The file is switched to WAL before DBOS opens it, which it keeps to and which makes it much
faster; queue and results are polled every 10 ms instead of every second. The bound on concurrency
keeps the count honest: without it thousands of handlers run before their ends are written.
"""

import signal
import sqlite3
import threading
import time
from importlib.metadata import version
from typing import Any

from dbos import DBOS, DBOSClient, DBOSConfig

from benchmarks import witness
from benchmarks.peers import measuring

QUEUE = "benchmark"
POLL_S = 0.01
CONCURRENCY = 100
APP_VERSION = "1"

folder = witness.folder()
file = folder / "dbos.db"
config: DBOSConfig = {
    "name": "benchmark",
    "system_database_url": f"sqlite:///{file}",
    "application_version": APP_VERSION,
    "log_level": "ERROR",
}
tally = witness.Tally(folder)
caller = witness.Caller(folder)
RUNS = {1: "one_step", 3: "three_steps"}
run_tallies = {steps: witness.Tally(measuring.tally_of(folder, steps)) for steps in RUNS}


@DBOS.workflow()
def noop() -> None:
    tally.count()


@DBOS.workflow()
def call(submitted_ns: int) -> None:
    caller.call(submitted_ns, time.monotonic_ns())


@DBOS.step()
def step() -> None:
    """Nothing: what is measured is everything around it."""


@DBOS.workflow()
def one_step() -> None:
    step()
    run_tallies[1].count()


@DBOS.workflow()
def three_steps() -> None:
    step()
    step()
    step()
    run_tallies[3].count()


def work() -> None:
    """The worker process: run what is queued until told to stop."""
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    DBOS(config=config)
    DBOS.launch()
    stopped.wait()
    DBOS.destroy()


def call_runs(steps: int, runs: int) -> None:
    """A process without a queue: call the workflow again and again."""
    DBOS(config=config)
    DBOS.launch()
    workflow = {1: one_step, 3: three_steps}[steps]
    for _ in range(runs):
        workflow()
    DBOS.destroy()


class Peer:
    def __init__(self) -> None:
        for steps in RUNS:
            measuring.tally_of(folder, steps).mkdir()
        with sqlite3.connect(file) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
        connection.close()
        DBOS(config=config)
        DBOS.launch()
        DBOS.register_queue(QUEUE, polling_interval_sec=POLL_S, worker_concurrency=CONCURRENCY)
        DBOS.destroy()
        self._client = DBOSClient(system_database_url=config["system_database_url"])

    def describe(self) -> dict[str, Any]:
        with sqlite3.connect(file) as connection:
            journal = connection.execute("PRAGMA journal_mode").fetchone()[0]
            synchronous = connection.execute("PRAGMA synchronous").fetchone()[0]
        connection.close()
        return {
            "version": version("dbos"),
            "settings": {
                "store": f"SQLite, journal_mode={journal}, synchronous={synchronous}",
                "worker": f"polling_interval_sec={POLL_S}, worker_concurrency={CONCURRENCY}",
            },
        }

    def worker(self) -> list[str]:
        return measuring.python("-c", f"import {__name__} as peer; peer.work()")

    def caller(self, steps: int, runs: int) -> list[str]:
        program = f"import {__name__} as peer; peer.call_runs({steps}, {runs})"
        return measuring.python("-c", program)

    def submit(self) -> None:
        self._client.enqueue(
            {"queue_name": QUEUE, "workflow_name": "noop", "app_version": APP_VERSION}
        )

    def submit_call(self, submitted_ns: int) -> None:
        self._client.enqueue(
            {"queue_name": QUEUE, "workflow_name": "call", "app_version": APP_VERSION},
            submitted_ns,
        )

    def submit_run(self, steps: int) -> None:
        self._client.enqueue(
            {"queue_name": QUEUE, "workflow_name": RUNS[steps], "app_version": APP_VERSION}
        )

    def ask_run(self, steps: int) -> None:
        handle: Any = self._client.enqueue(
            {"queue_name": QUEUE, "workflow_name": RUNS[steps], "app_version": APP_VERSION}
        )
        handle.get_result(polling_interval_sec=POLL_S)
