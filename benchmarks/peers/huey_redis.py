"""Huey on Redis: a consumer that waits in a blocking pop, so that nothing is polled for.

No results are kept, and what Redis keeps depends on which one it is. One thread drains more than
several do.
"""

import os
import time
from importlib.metadata import version
from typing import Any

from huey import RedisHuey

from benchmarks import witness
from benchmarks.peers import measuring

FLAGS = ("--workers=1", "--worker-type=thread", "--quiet", "--no-periodic")

folder = witness.folder()
app = RedisHuey("benchmark", url=os.environ[measuring.REDIS_VARIABLE], results=False)
tally = witness.Tally(folder)
caller = witness.Caller(folder)


@app.task()
def noop() -> None:
    tally.count()


@app.task()
def call(submitted_ns: int) -> None:
    caller.call(submitted_ns, time.monotonic_ns())


class Peer:
    def describe(self) -> dict[str, Any]:
        return {
            "version": version("huey"),
            "settings": {
                "store": os.environ[measuring.REDIS_SETTINGS_VARIABLE],
                "worker": f"huey_consumer {' '.join(FLAGS)}, blocking pop, no results",
            },
        }

    def worker(self) -> list[str]:
        return measuring.python("-m", "huey.bin.huey_consumer", f"{__name__}.app", *FLAGS)

    def submit(self) -> None:
        noop()

    def submit_call(self, submitted_ns: int) -> None:
        call(submitted_ns)
