"""What do all tasks and runs look like from afar? Counts, and the failures among them."""

from typing import NamedTuple

import msgspec
from msgspec import Struct

from rota.core.ids import TaskId
from rota.core.tasks import TaskError, TaskState
from rota.store.database import Transaction

_decode_error = msgspec.json.Decoder(TaskError).decode


class Cause(Struct, frozen=True):
    """What of an error tells one failure from another. The rest is long, and not read."""

    type: str = ""
    message: str = ""


_decode_cause = msgspec.json.Decoder(Cause).decode


class Failure(NamedTuple):
    id: TaskId
    lane: int
    cause: Cause | None
    error: bytes | None  # as it is stored
    finished_at_ms: int


def whole_error(failure: Failure) -> TaskError | None:
    return None if failure.error is None else _decode_error(failure.error)


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

    def failures(self, *, most: int) -> list[Failure]:
        """The newest failed tasks, with no more of each than what it failed of."""
        return [
            Failure(number, lane, None if error is None else _decode_cause(error), error, at_ms)
            for number, lane, error, at_ms in self._tx.rows("board.failures", most)
        ]

    def size_bytes(self) -> int:
        return int(self._tx.rows("board.size")[0][0])
