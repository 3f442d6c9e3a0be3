"""Procrastinate on PostgreSQL: one asyncio worker, woken by LISTEN/NOTIFY.

It fetches jobs one by one, so its concurrency is what keeps it busy meanwhile: 20 was faster than 4
and than 1.
"""

import asyncio
import itertools
import os
import time
from importlib.metadata import version
from typing import Any

from procrastinate import App, PsycopgConnector

from benchmarks import witness
from benchmarks.peers import measuring
from benchmarks.peers.measuring import Submitted

CONCURRENCY = 20

folder = witness.folder()
app = App(connector=PsycopgConnector(conninfo=os.environ[measuring.POSTGRES_VARIABLE]))
tally = witness.Tally(folder)
keyed_tally = witness.Tally(measuring.keyed_tally(folder))
caller = witness.Caller(folder)


@app.task(name="noop")
async def noop() -> None:
    tally.count()


@app.task(name="call")
async def call(submitted_ns: int) -> None:
    caller.call(submitted_ns, time.monotonic_ns())


@app.task(name="keyed")
async def keyed() -> None:
    keyed_tally.count()


async def work() -> None:
    """The worker process: run what is queued until told to stop."""
    async with app.open_async():
        await app.run_worker_async(concurrency=CONCURRENCY)


class Peer:
    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(self._open())

    async def _open(self) -> None:
        await app.open_async()
        await app.schema_manager.apply_schema_async()

    def describe(self) -> dict[str, Any]:
        return {
            "version": version("procrastinate"),
            "settings": {
                "store": os.environ[measuring.POSTGRES_SETTINGS_VARIABLE],
                "worker": f"run_worker_async(concurrency={CONCURRENCY}), listen_notify",
            },
        }

    def worker(self) -> list[str]:
        program = f"import asyncio, {__name__} as peer; asyncio.run(peer.work())"
        return measuring.python("-c", program)

    def submit_one_by_one(self, tasks: int, limit_s: float) -> Submitted:
        return self._loop.run_until_complete(
            measuring.at_own_pace_async(lambda _: noop.defer_async(), 1, tasks, limit_s)
        )

    def submit_in_bulk(self, tasks: int, limit_s: float) -> Submitted:
        return self._loop.run_until_complete(
            measuring.at_own_pace_async(
                lambda size: noop.batch_defer_async(*({} for _ in range(size))),
                measuring.BULK,
                tasks,
                limit_s,
            )
        )

    def submit_keyed(self, tasks: int, limit_s: float) -> Submitted:
        """Jobs with the same `lock` run one after the other; a batch can have only one lock."""
        keys = itertools.cycle(range(measuring.KEYS))
        return self._loop.run_until_complete(
            measuring.at_own_pace_async(
                lambda _: keyed.configure(lock=f"key {next(keys)}").defer_async(),
                1,
                tasks,
                limit_s,
            )
        )

    def keyed_worker(self) -> list[str]:
        return self.worker()

    def call(self) -> int:
        submitted_ns = time.monotonic_ns()
        self._loop.run_until_complete(call.defer_async(submitted_ns=submitted_ns))
        return submitted_ns
