"""PgQueuer on PostgreSQL with asyncpg: one asyncio worker, woken by LISTEN/NOTIFY.

Two variants, both on uvloop. `default` is what one gets without choosing anything, which is batches
of 10; `tuned` takes batches of 500.
"""

import asyncio
import os
import signal
import time
from importlib.metadata import version
from typing import Any

import asyncpg
import uvloop
from pgqueuer import AsyncpgDriver, Job, PgQueuer, Queries

from benchmarks import witness
from benchmarks.peers import measuring
from benchmarks.peers.measuring import Submitted

VARIANTS: dict[str, dict[str, int]] = {"default": {}, "tuned": {"batch_size": 500}}
flags = VARIANTS[os.environ.get(measuring.VARIANT_VARIABLE, "default")]

url = os.environ[measuring.POSTGRES_VARIABLE]
folder = witness.folder()
tally = witness.Tally(folder)
caller = witness.Caller(folder)


async def work() -> None:
    """The worker process: run what is queued until told to stop."""
    queuer = PgQueuer.from_asyncpg_connection(await asyncpg.connect(url))

    @queuer.entrypoint("noop")
    async def noop(_: Job) -> None:
        tally.count()

    @queuer.entrypoint("call")
    async def call(job: Job) -> None:
        caller.call(int(job.payload or b"0"), time.monotonic_ns())

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, queuer.shutdown.set)
    await queuer.run(**flags)


class Peer:
    def __init__(self) -> None:
        self._loop = uvloop.new_event_loop()
        self._queries = self._loop.run_until_complete(self._open())

    async def _open(self) -> Queries:
        queries = Queries(AsyncpgDriver(await asyncpg.connect(url)))
        await queries.install()
        return queries

    def describe(self) -> dict[str, Any]:
        said = ", ".join(f"{name}={value}" for name, value in flags.items())
        return {
            "version": version("pgqueuer"),
            "settings": {
                "store": os.environ[measuring.POSTGRES_SETTINGS_VARIABLE],
                "worker": f"run({said}), asyncpg {version('asyncpg')}, uvloop",
            },
        }

    def worker(self) -> list[str]:
        return measuring.python("-c", f"import uvloop, {__name__} as peer; uvloop.run(peer.work())")

    def submit_one_by_one(self, tasks: int, limit_s: float) -> Submitted:
        return self._loop.run_until_complete(
            measuring.at_own_pace_async(
                lambda _: self._queries.enqueue("noop", None), 1, tasks, limit_s
            )
        )

    def submit_in_bulk(self, tasks: int, limit_s: float) -> Submitted:
        return self._loop.run_until_complete(
            measuring.at_own_pace_async(
                lambda size: self._queries.enqueue(["noop"] * size, [None] * size, [0] * size),
                measuring.BULK,
                tasks,
                limit_s,
            )
        )

    def call(self) -> int:
        submitted_ns = time.monotonic_ns()
        self._loop.run_until_complete(self._queries.enqueue("call", str(submitted_ns).encode()))
        return submitted_ns
