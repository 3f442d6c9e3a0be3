"""What do all tasks and runs look like from afar? Counts, and the failures among them."""

import heapq
from collections.abc import Iterable

import msgspec
from msgspec import Struct

from rota.core import fingerprints
from rota.core.charts import KeepMinutes, KeptMinute
from rota.core.ids import TaskId
from rota.core.tasks import TaskError, TaskState
from rota.store.database import Transaction

_decode_error = msgspec.json.Decoder(TaskError).decode


class Cause(Struct, frozen=True):
    """What of an error tells one failure from another. The rest is long, and not read."""

    type: str = ""
    message: str = ""


_decode_cause = msgspec.json.Decoder(Cause).decode

CAUSES_PER_STEP = 1_000


class Failures(Struct, frozen=True):
    """Failed tasks of one lane that failed of one cause."""

    cause: str
    lane: int
    count: int
    first_failed_at_ms: int
    last_failed_at_ms: int


class RunWork(Struct, frozen=True):
    """Live tasks of one run that are alike."""

    run: int
    lane: int
    state: TaskState
    count: int


class Board:
    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def tasks_by_state(self) -> dict[str, int]:
        (row,) = self._tx.rows("board.tasks_by_state")
        scheduled, queued, running, ended, failed, cancelled = row
        # Those that failed or were cancelled have an index; counting the rest by state would read
        # every row there is.
        return {
            TaskState.SCHEDULED.value: scheduled,
            TaskState.QUEUED.value: queued,
            TaskState.RUNNING.value: running,
            TaskState.SUCCEEDED.value: ended - failed - cancelled,
            TaskState.FAILED.value: failed,
            TaskState.CANCELLED.value: cancelled,
        }

    def runs_by_state(self) -> dict[str, int]:
        return dict(self._tx.rows("board.runs_by_state"))

    def failures(self) -> list[Failures]:
        """All failed tasks, counted by what they failed of and by lane."""
        return [Failures(row[0] or "", *row[1:]) for row in self._tx.rows("board.failures")]

    def failed_of(self, kinds: Iterable[Failures], *, most: int) -> list[TaskId]:
        """The newest failed tasks of these kinds, newest first."""
        found = (
            (failed_at_ms, number)
            for one in kinds
            for failed_at_ms, number in self._tx.rows("board.failed_of", one.cause, one.lane, most)
        )
        return [TaskId(number) for _, number in heapq.nlargest(most, found)]

    def errors(self, ids: list[TaskId]) -> dict[TaskId, TaskError | None]:
        return {
            TaskId(number): None if error is None else _decode_error(error)
            for number, error in (self._tx.rows("board.errors", [*ids]) if ids else ())
        }

    def fill_causes(self) -> int:
        """Work out what tasks failed of that failed before that was noted; how many there were."""
        count = 0
        while rows := self._tx.rows("board.without_cause", CAUSES_PER_STEP):
            self._tx.many("board.set_cause", [(_cause(error), number) for number, error in rows])
            count += len(rows)
        return count

    def work_of_runs(self, ids: list[int]) -> list[RunWork]:
        """The live tasks of these runs; one that waits for something else has none."""
        rows = self._tx.rows("board.work_of_runs", ids) if ids else []
        return [RunWork(run, lane, TaskState(state), count) for run, lane, state, count in rows]

    def keep_minutes(self, kept: KeepMinutes) -> int:
        """Write minutes of the charts; how many."""
        self._tx.run("board.drop_minutes", kept.forget_before_ms)
        rows = [(one.started_at_ms, one.queue, one.slots) for one in kept.minutes]
        self._tx.many("board.add_minute", rows)
        return len(rows)

    def minutes(self, since_ms: int) -> list[KeptMinute]:
        """The kept minutes from this moment on, the oldest first."""
        return [
            KeptMinute(started_at_ms=started_at_ms, queue=queue, slots=slots)
            for started_at_ms, queue, slots in self._tx.rows("board.minutes", since_ms)
        ]

    def size_bytes(self) -> int:
        return int(self._tx.rows("board.size")[0][0])


def _cause(error: bytes | None) -> str:
    known = Cause() if error is None else _decode_cause(error)
    return fingerprints.cause(known.type, known.message)
