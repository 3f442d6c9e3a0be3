"""The rate of a steady load while another connection holds a transaction open.

While the snapshot of that transaction exists, PostgreSQL cannot remove rows that were deleted after
it. A queue deletes rows all the time, so each search for the next task has to skip the deleted
ones. The benchmark measures the rate before, during and after such a transaction.
"""

import time
from threading import Event, Thread
from typing import Any, NamedTuple, Self

import psycopg

from benchmarks import coordinators, processor, witness
from benchmarks.coordinators import Coordinator, wait_for_worker, worker
from benchmarks.processes import Failed
from benchmarks.wire import Connection

CONCURRENCY = 2_000
DEPTH = 20_000  # tasks that are waiting at any time
BATCH = 500
WARM_UP_S = 5.0
STRETCH_S = 10.0  # the time over which each rate is taken
POLL_S = 0.01

Facts = dict[str, Any]


class Stretch(NamedTuple):
    per_s: float
    server_us: float  # processor time of the server for each task; other work does not change it


def endured(one: Coordinator, store: str, server_id: int, *, held_s: float) -> Facts:
    stretch_s = min(STRETCH_S, held_s / 2)
    with worker(one, concurrency=CONCURRENCY) as process, _Load(one, server_id) as load:
        wait_for_worker(one, process)
        load.stretch(WARM_UP_S)
        before = load.stretch(stretch_s)
        with psycopg.connect(store) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.execute("SELECT pg_current_xact_id()")
            during = [load.stretch(stretch_s) for _ in range(round(held_s / stretch_s))]
        after = load.stretch(stretch_s)
    return {
        "before_per_s": before.per_s,
        "during_per_s": [one.per_s for one in during],
        "after_per_s": after.per_s,
        "held_s": held_s,
        "held_ratio": min(one.per_s for one in during) / before.per_s,
        "server_us": [stretch.server_us for stretch in (before, *during, after)],
    }


class _Load:
    """Keeps `DEPTH` tasks waiting, from a thread of its own."""

    def __init__(self, one: Coordinator, server_id: int) -> None:
        self._one = one
        self._server_id = server_id
        self._stopped = Event()
        self._problem: Exception | None = None
        self._thread = Thread(target=self._keep_filled, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def stretch(self, seconds: float) -> Stretch:
        """Measure the rate of handlers over this many seconds from now."""
        start_s, runs, spent_s = time.perf_counter(), self._runs(), self._spent_s()
        time.sleep(seconds)
        if self._problem is not None:
            raise Failed(f"the load broke off: {self._problem}")
        done = self._runs() - runs
        return Stretch(
            done / (time.perf_counter() - start_s),
            (self._spent_s() - spent_s) / max(done, 1) * 1e6,
        )

    def _spent_s(self) -> float:
        return processor.spent_s(self._server_id)

    def _keep_filled(self) -> None:
        submission = coordinators.submission(BATCH, name="counted")
        submitted = 0
        try:
            connection = Connection(self._one.port)
            while not self._stopped.is_set():
                if submitted - self._runs() < DEPTH:
                    connection.send(submission)
                    submitted += BATCH
                else:
                    time.sleep(POLL_S)
            connection.close()
        except (OSError, Failed) as error:
            self._problem = error

    def _runs(self) -> int:
        return witness.tallied(self._one.folder).runs
