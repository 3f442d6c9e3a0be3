"""What stands in the store at a moment? Read whole, by SQL of the simulation's own."""

from typing import NamedTuple, TypeVar

import apsw
import msgspec

from rota.core.tasks.model import EndedAttempt, Lane, TaskOptions
from rota.core.tasks.unique import Unique
from rota.core.workers.model import WorkerRecord
from tests.simulation.trace import Violation

_decode_options = msgspec.json.Decoder(TaskOptions).decode
_decode_worker = msgspec.json.Decoder(WorkerRecord).decode
_decode_requires = msgspec.json.Decoder(tuple[str, ...]).decode
_decode_log = msgspec.json.Decoder(tuple[EndedAttempt, ...]).decode


class LiveRow(NamedTuple):
    lane: int
    priority: int
    options: bytes | None
    key: str | None
    log: bytes | None

    @property
    def max_attempts(self) -> int:
        options = TaskOptions() if self.options is None else _decode_options(self.options)
        return options.max_attempts

    @property
    def unique(self) -> Unique | None:
        if self.options is None or b'"unique"' not in self.options:
            return None
        return _decode_options(self.options).unique

    @property
    def ended(self) -> tuple[EndedAttempt, ...]:
        return () if self.log is None else _decode_log(self.log)


class ReadyRow(NamedTuple):
    lane: int
    rank: int
    fence: int
    attempt: int


class ScheduledRow(NamedTuple):
    due_at_ms: int
    fence: int
    attempt: int


class LeaseRow(NamedTuple):
    lane: int
    incarnation: int
    fence: int
    attempt: int
    started_at_ms: int
    holder: str | None


class FinishedRow(NamedTuple):
    state: str
    fence: int
    attempt: int
    incarnation: int | None
    finished_at_ms: int
    lane: int
    key: str | None
    result: bytes | None


class WorkerRow(NamedTuple):
    incarnation: int
    state: str
    registration: bytes

    @property
    def worker(self) -> WorkerRecord:
        return _decode_worker(self.registration)


Row = TypeVar("Row", LiveRow, ReadyRow, ScheduledRow, LeaseRow, FinishedRow)


class Picture(NamedTuple):
    live: dict[int, LiveRow]
    ready: dict[int, ReadyRow]
    scheduled: dict[int, ScheduledRow]
    leases: dict[int, LeaseRow]
    history: dict[int, FinishedRow]
    workers: dict[str, WorkerRow]
    keys: dict[tuple[str, str], int]  # by queue and key
    held: dict[tuple[str, str], tuple[int, str]]  # by queue and key: who is unique, until when
    notices: set[int]  # incarnations that are to be told of a cancelled task
    lanes: dict[int, Lane]
    paused: set[str]  # queues

    def state_of(self, task_id: int) -> str | None:
        """Where a task stands; None when there is no such task."""
        if task_id in self.leases:
            return "running"
        if task_id in self.ready:
            return "queued"
        if task_id in self.scheduled:
            return "scheduled"
        finished = self.history.get(task_id)
        return None if finished is None else finished.state

    def fence_of(self, task_id: int) -> int:
        """The highest fence a task has had; 0 when it is new."""
        for place in (self.leases, self.ready, self.scheduled, self.history):
            if task_id in place:
                return place[task_id].fence
        return 0


EMPTY = Picture({}, {}, {}, {}, {}, {}, {}, {}, set(), {}, set())


def take(connection: apsw.Connection) -> Picture:
    workers = connection.execute("SELECT id, incarnation, state, registration FROM worker")
    lanes = connection.execute("SELECT number, queue, name, requires FROM lane")
    keys = connection.execute("SELECT key, queue, id FROM task_key")
    held = connection.execute("SELECT key, queue, id, release FROM unique_key")
    notices = connection.execute("SELECT DISTINCT incarnation FROM cancelled")
    paused = connection.execute("SELECT name FROM queue WHERE paused = 1")
    return Picture(
        live=_rows(connection, "task", LiveRow),
        ready=_rows(connection, "ready", ReadyRow),
        scheduled=_rows(connection, "scheduled", ScheduledRow),
        leases=_rows(connection, "lease", LeaseRow),
        history=_rows(connection, "history", FinishedRow),
        workers={worker_id: WorkerRow._make(row) for worker_id, *row in workers},
        keys={(queue, key): task_id for key, queue, task_id in keys},
        held={(queue, key): (task_id, release) for key, queue, task_id, release in held},
        notices={incarnation for (incarnation,) in notices},
        lanes={
            number: Lane(queue, name, _decode_requires(requires))
            for number, queue, name, requires in lanes
        },
        paused={queue for (queue,) in paused},
    )


def _rows(connection: apsw.Connection, table: str, kind: type[Row]) -> dict[int, Row]:
    """A table by task id; a row has the columns its type names."""
    columns = ", ".join(kind._fields)
    found: dict[int, Row] = {}
    for task_id, *row in connection.execute(f"SELECT id, {columns} FROM {table}"):
        if task_id in found:
            raise Violation(f"task {task_id:x} stands twice in {table}")
        found[task_id] = kind._make(row)
    return found
