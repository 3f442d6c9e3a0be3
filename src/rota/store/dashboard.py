"""Counts of tasks and runs, failures grouped by cause, and the minutes of the charts."""

import heapq
from collections.abc import Iterable

import msgspec
from msgspec import Struct

from rota.core.commands import KeepMinutes, KeptMinute
from rota.core.ids import TaskId
from rota.core.tasks import error_fingerprints
from rota.core.tasks.model import TaskError, TaskState
from rota.store.database import Transaction, decoding

CAUSES_PER_STEP = 1_000

_decode_error = msgspec.json.Decoder(TaskError).decode


class ErrorHead(Struct, frozen=True):
    """The fields of an error that its cause is made of. The rest is long and is not decoded."""

    type: str = ""
    message: str = ""


class Failures(Struct, frozen=True):
    """Failed tasks of one lane and one cause."""

    cause: str
    lane: int
    count: int
    first_failed_at_ms: int
    last_failed_at_ms: int


class RunWorkCount(Struct, frozen=True):
    """Live tasks of one run in one lane and state."""

    run: int
    lane: int
    state: TaskState
    count: int


_decode_error_head = msgspec.json.Decoder(ErrorHead).decode
_run_work_count = decoding(RunWorkCount, state=TaskState)


class DashboardStore:
    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def tasks_by_state(self) -> dict[str, int]:
        """Count the tasks by state, and the failed ones that nobody has acknowledged."""
        (counts,) = self._tx.records(dict[str, int], "dashboard.tasks_by_state")
        # Failed and cancelled tasks have an index; to count succeeded ones would read every row.
        succeeded = counts.pop("finished") - counts["failed"] - counts["cancelled"]
        return {**counts, TaskState.SUCCEEDED.value: succeeded}

    def runs_by_state(self) -> dict[str, int]:
        return dict(self._tx.rows("dashboard.runs_by_state"))

    def failures(self, *, acknowledged: bool = False) -> list[Failures]:
        """Count the failed tasks by cause and lane: the acknowledged ones, or the others."""
        query = "acknowledged_failures" if acknowledged else "failures"
        return self._tx.records(Failures, f"dashboard.{query}")

    def newest_failed(
        self, kinds: Iterable[Failures], *, limit: int, acknowledged: bool = False
    ) -> list[TaskId]:
        """The newest failed tasks of these causes and lanes, newest first."""
        query = "newest_acknowledged" if acknowledged else "newest_failed"
        found = (
            (failed_at_ms, number)
            for kind in kinds
            for failed_at_ms, number in self._tx.rows(
                f"dashboard.{query}", cause=kind.cause, lane=kind.lane, limit=limit
            )
        )
        return [TaskId(number) for _, number in heapq.nlargest(limit, found)]

    def errors(self, ids: list[TaskId]) -> dict[TaskId, TaskError | None]:
        return {
            TaskId(number): None if error is None else _decode_error(error)
            for number, error in (self._tx.rows("dashboard.errors", ids=[*ids]) if ids else ())
        }

    def backfill_causes(self) -> int:
        """Store the causes of tasks that failed before causes were stored; returns how many."""
        count = 0
        while rows := self._tx.rows("dashboard.without_cause", limit=CAUSES_PER_STEP):
            causes = [(_cause(error), number) for number, error in rows]
            self._tx.pipeline_many("dashboard.set_cause", ("cause", "id"), causes)
            count += len(rows)
        return count

    def run_work(self, ids: list[int]) -> list[RunWorkCount]:
        """Count the live tasks of these runs; a run that waits for something else has none."""
        return self._tx.records(_run_work_count, "dashboard.run_work", runs=ids) if ids else []

    def put_minutes(self, kept: KeepMinutes) -> int:
        """Write minutes of the charts and prune old ones; returns how many were written."""
        self._tx.pipeline("dashboard.prune_minutes", before_ms=kept.forget_before_ms)
        rows = [(one.started_at_ms, one.queue, one.slots) for one in kept.minutes]
        names = ("started_at_ms", "queue", "slots")
        self._tx.pipeline_many("dashboard.put_minute", names, rows)
        return len(rows)

    def minutes(self, since_ms: int) -> list[KeptMinute]:
        """The stored minutes since a time, the oldest first."""
        return self._tx.records(KeptMinute, "dashboard.minutes", since_ms=since_ms)

    def size_bytes(self) -> int:
        return int(self._tx.value("dashboard.size"))


def _cause(error: bytes | None) -> str:
    head = ErrorHead() if error is None else _decode_error_head(error)
    return error_fingerprints.cause(head.type, head.message)
