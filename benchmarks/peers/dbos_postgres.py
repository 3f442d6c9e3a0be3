"""DBOS on PostgreSQL: queued workflows without steps, started by a process that polls.

The queue is polled every 10 ms instead of every second, and the worker's concurrency is bounded,
as with DBOS on SQLite. In bulk means many calls in one transaction: it has no call for many.
"""

import os
import signal
import threading
import time
from importlib.metadata import version
from typing import Any

import sqlalchemy
from dbos import DBOS, DBOSClient, DBOSConfig

from benchmarks import witness
from benchmarks.peers import measuring
from benchmarks.peers.measuring import Submitted

QUEUE = "benchmark"
POLL_S = 0.01
CONCURRENCY = 100
POOL = 20
APP_VERSION = "1"
NOOP: Any = {"queue_name": QUEUE, "workflow_name": "noop", "app_version": APP_VERSION}
CALL: Any = {"queue_name": QUEUE, "workflow_name": "call", "app_version": APP_VERSION}

url = os.environ[measuring.POSTGRES_VARIABLE]
folder = witness.folder()
config: DBOSConfig = {
    "name": "benchmark",
    "system_database_url": url,
    "application_version": APP_VERSION,
    "sys_db_pool_size": POOL,
    "log_level": "ERROR",
}
tally = witness.Tally(folder)
caller = witness.Caller(folder)


@DBOS.workflow()
def noop() -> None:
    tally.count()


@DBOS.workflow()
def call(submitted_ns: int) -> None:
    caller.call(submitted_ns, time.monotonic_ns())


def work() -> None:
    """The worker process: run what is queued until told to stop."""
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    DBOS(config=config)
    DBOS.launch()
    stopped.wait()
    DBOS.destroy()


class Peer:
    def __init__(self) -> None:
        DBOS(config=config)
        DBOS.launch()
        DBOS.register_queue(QUEUE, polling_interval_sec=POLL_S, worker_concurrency=CONCURRENCY)
        DBOS.destroy()
        self._client = DBOSClient(system_database_url=url)
        driver_url = sqlalchemy.make_url(url).set(drivername="postgresql+psycopg")
        self._engine = sqlalchemy.create_engine(driver_url)

    def describe(self) -> dict[str, Any]:
        return {
            "version": version("dbos"),
            "settings": {
                "store": os.environ[measuring.POSTGRES_SETTINGS_VARIABLE],
                "worker": f"polling_interval_sec={POLL_S}, worker_concurrency={CONCURRENCY}, "
                f"sys_db_pool_size={POOL}",
            },
        }

    def worker(self) -> list[str]:
        return measuring.python("-c", f"import {__name__} as peer; peer.work()")

    def submit_one_by_one(self, tasks: int, limit_s: float) -> Submitted:
        return measuring.at_own_pace(lambda _: self._client.enqueue(NOOP), 1, tasks, limit_s)

    def submit_in_bulk(self, tasks: int, limit_s: float) -> Submitted:
        return measuring.at_own_pace(self._submit_many, measuring.BULK, tasks, limit_s)

    def _submit_many(self, size: int) -> None:
        with self._engine.begin() as connection:
            for _ in range(size):
                self._client.enqueue_in_transaction(connection, NOOP)

    def call(self) -> int:
        submitted_ns = time.monotonic_ns()
        self._client.enqueue(CALL, submitted_ns)
        return submitted_ns
