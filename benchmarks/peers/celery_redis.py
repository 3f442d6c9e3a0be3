"""Celery on Redis: no results kept, the extras of its worker off, hiredis as the parser.

The `solo` pool, one process that runs its tasks itself, is the one that drains and picks up
no-op tasks fastest: prefork and threads hand each task over once more.
"""

import os
import time
from importlib.metadata import version
from typing import Any

from celery import Celery

from benchmarks import witness
from benchmarks.peers import measuring

FLAGS = (
    "--pool=solo",
    "--without-gossip",
    "--without-mingle",
    "--without-heartbeat",
    "--loglevel=ERROR",
)
PREFETCH = 128

folder = witness.folder()
app = Celery("benchmark", broker=os.environ[measuring.REDIS_VARIABLE])
app.conf.update(task_ignore_result=True, worker_prefetch_multiplier=PREFETCH)
tally = witness.Tally(folder)
caller = witness.Caller(folder)


@app.task
def noop() -> None:
    tally.count()


@app.task
def call(submitted_ns: int) -> None:
    caller.call(submitted_ns, time.monotonic_ns())


class Peer:
    def describe(self) -> dict[str, Any]:
        return {
            "version": version("celery"),
            "settings": {
                "store": os.environ[measuring.REDIS_SETTINGS_VARIABLE],
                "worker": f"celery worker {' '.join(FLAGS)}, task_ignore_result, "
                f"worker_prefetch_multiplier={PREFETCH}, early acknowledgement",
            },
        }

    def worker(self) -> list[str]:
        return measuring.python("-m", "celery", "-A", __name__, "worker", *FLAGS)

    def submit(self) -> None:
        noop.delay()

    def submit_call(self, submitted_ns: int) -> None:
        call.delay(submitted_ns)
