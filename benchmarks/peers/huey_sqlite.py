"""Huey on SQLite: a consumer that polls one file.

Three variants. `tuned` syncs every commit, as Rota does, and polls every millisecond; `default` is
what one gets without choosing anything; `unsynced` is `tuned` without syncs: its fastest, and a
power cut may cost it what it had accepted. One thread drains more than several do: with several,
they wait for each other's lock on the file.
"""

import os
import time
from importlib.metadata import version
from typing import Any

from huey import SqliteHuey

from benchmarks import witness
from benchmarks.peers import measuring

POLLING = ("--delay=0.001", "--max-delay=0.001", "--backoff=1", "--no-periodic")
VARIANTS: dict[str, tuple[bool | None, tuple[str, ...]]] = {
    "tuned": (True, POLLING),
    "default": (None, ()),
    "unsynced": (False, POLLING),
}
fsync, consumer_flags = VARIANTS[os.environ.get(measuring.VARIANT_VARIABLE, "tuned")]

folder = witness.folder()
app = SqliteHuey("benchmark", filename=str(folder / "huey.db"), fsync=fsync)
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
        synchronous = app.storage.conn.execute("PRAGMA synchronous").fetchone()[0]
        return {
            "version": version("huey"),
            "settings": {
                "store": f"SQLite, WAL, fsync={fsync} (synchronous={synchronous})",
                "worker": " ".join(("huey_consumer", *self._flags())),
            },
        }

    def worker(self) -> list[str]:
        place = f"{__name__}.app"
        return measuring.python("-m", "huey.bin.huey_consumer", place, *self._flags())

    def submit(self) -> None:
        noop()

    def submit_call(self, submitted_ns: int) -> None:
        call(submitted_ns)

    def _flags(self) -> tuple[str, ...]:
        return ("--workers=1", "--worker-type=thread", "--quiet", *consumer_flags)
