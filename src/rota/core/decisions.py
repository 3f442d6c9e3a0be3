"""The decisions of the core: every change, written by `rota.engine.commit.applier`.

A kind that is added here makes mypy point at the applier.

Decisions are grouped by kind and written in the order of the union below: what frees comes before
what takes, so leases are last. Progress is first, since the end of an attempt takes along what the
attempt has reported.

Those that come by the thousand are left out of garbage collection (`gc=False`), as are the values
they are made from: they are in no cycle, and collecting them would cost as much as deciding them.
"""

from typing import Literal

from msgspec import Struct

from rota.core.access import AccessToken
from rota.core.ids import TaskId
from rota.core.tasks.logs import LogLine, LogUsage
from rota.core.tasks.model import (
    Acknowledgement,
    EndedAttempt,
    NewTask,
    TaskError,
    TaskOptions,
    TaskRecord,
    TaskState,
)
from rota.core.tasks.unique import HeldKey
from rota.core.workers.circuit_breaker import Breaker
from rota.core.workers.eviction_guards import HoldReason, SweepState
from rota.core.workers.model import WorkerRecord, WorkerState
from rota.core.workers.statistics import Statistics


class AddTask(Struct, frozen=True, tag="AddTask", gc=False):
    """Add a task: queued when `due_at_ms` is None, scheduled otherwise."""

    id: TaskId
    task: NewTask
    created_at_ms: int
    due_at_ms: int | None = None
    owner: str = ""  # the binding of the submitter, which owns the limits that the task names first
    holds: HeldKey | None = None  # of a unique or debounced task


class ReplaceTask(Struct, frozen=True, tag="ReplaceTask"):
    """Give a waiting task the contents of a new one. It keeps its id, its key and its fences.

    A queued task stays queued. A scheduled one is due at `due_at_ms`; a `QueueTask` beside this
    decision queues it.
    """

    id: TaskId
    before: TaskRecord
    task: NewTask
    options: TaskOptions
    due_at_ms: int | None
    at_ms: int


class FinishTask(Struct, frozen=True, tag="FinishTask", gc=False):
    """Move a live task to history. `fence` is that of the lease when it was running."""

    id: TaskId
    was: TaskState
    state: TaskState
    fence: int
    attempt: int
    finished_at_ms: int
    worker_id: str | None = None
    result: bytes | None = None
    error: TaskError | None = None
    queue: str = ""
    traceparent: str | None = None  # the span that has executed it, which only its run keeps


class AcknowledgeTask(Struct, frozen=True, tag="AcknowledgeTask"):
    """Store the acknowledgement of a failed task; None: it asks for attention again."""

    id: TaskId
    acknowledgement: Acknowledgement | None


class RequeueTask(Struct, frozen=True, tag="RequeueTask"):
    """End a lease without finishing the task: queued again, or scheduled for `due_at_ms`."""

    id: TaskId
    fence: int
    attempt: int  # how many are used up now
    ended: EndedAttempt
    due_at_ms: int | None = None


class CloseRates(Struct, frozen=True, tag="CloseRates"):
    """Let no task of these rates start before `until_ms`."""

    keys: tuple[str, ...]
    until_ms: int


class QueueTask(Struct, frozen=True, tag="QueueTask"):
    """Queue a scheduled task."""

    id: TaskId


class ReviveTask(Struct, frozen=True, tag="ReviveTask"):
    """Bring a finished task back from history, with all its attempts before it."""

    id: TaskId
    options: TaskOptions | None = None  # those that the retry changes them to; None: as they are


class NoteProgress(Struct, frozen=True, tag="NoteProgress"):
    id: TaskId
    fence: int
    progress: bytes | None
    partial: bytes | None


class KeepLines(Struct, frozen=True, tag="KeepLines"):
    """Keep lines of the log of one attempt. They are the newest of the task."""

    id: TaskId
    fence: int
    lines: list[LogLine]
    usage: LogUsage  # of the attempt, after these lines


class ForgetLogs(Struct, frozen=True, tag="ForgetLogs"):
    """Delete the logs of the older attempts of a task."""

    id: TaskId
    before_fence: int


class PutWorker(Struct, frozen=True, tag="PutWorker"):
    """Write the row of a worker, in place of that of an earlier incarnation."""

    worker: WorkerRecord


class NoteHeartbeat(Struct, frozen=True, tag="NoteHeartbeat"):
    worker_id: str
    at_ms: int
    load: dict[str, float] | None = None


class ChangeWorkerState(Struct, frozen=True, tag="ChangeWorkerState"):
    """Set the state of this incarnation; the next one starts active."""

    worker_id: str
    incarnation: int
    state: WorkerState


class RemoveWorker(Struct, frozen=True, tag="RemoveWorker"):
    worker_id: str
    incarnation: int
    reason: Literal["left", "unhealthy"]
    queues: tuple[str, ...] | None = None  # that it served; callers of these see the event


class NoteQuality(Struct, frozen=True, tag="NoteQuality"):
    """Write the quality of a worker for one task name."""

    worker_id: str
    name: str
    statistics: Statistics
    breaker: Breaker


class TellCancelled(Struct, frozen=True, tag="TellCancelled"):
    """Keep the notification that a task which a worker runs was cancelled."""

    incarnation: int
    task_id: TaskId


class ForgetCancelled(Struct, frozen=True, tag="ForgetCancelled"):
    """Drop the notification: the worker knows, or need not."""

    incarnation: int
    task_id: TaskId


class NoteWatch(Struct, frozen=True, tag="NoteWatch"):
    """Keep the state of the sweep, and the reason why it held evictions back, if it did."""

    watch: SweepState
    held_because: HoldReason | None = None


class ChangeQueue(Struct, frozen=True, tag="ChangeQueue"):
    queue: str
    paused: bool
    at_ms: int


class LeaseTask(Struct, frozen=True, tag="LeaseTask", gc=False):
    """Give a task to a worker, or to a caller of the jobs API."""

    id: TaskId
    was: TaskState
    incarnation: int
    fence: int
    attempt: int
    started_at_ms: int
    deadline_ms: int | None = None
    holder: str | None = None
    owner: str | None = None  # of a job: the binding that started it


class ForgetHistory(Struct, frozen=True, tag="ForgetHistory"):
    finished_before_ms: int
    most: int


class PutToken(Struct, frozen=True, tag="PutToken"):
    token: AccessToken


class DropToken(Struct, frozen=True, tag="DropToken"):
    token_id: str


Decision = (
    NoteProgress
    | KeepLines
    | ForgetLogs
    | AddTask
    | ReplaceTask
    | FinishTask
    | AcknowledgeTask
    | RequeueTask
    | CloseRates
    | QueueTask
    | ReviveTask
    | PutWorker
    | NoteHeartbeat
    | ChangeWorkerState
    | NoteQuality
    | TellCancelled
    | ForgetCancelled
    | RemoveWorker
    | ChangeQueue
    | PutToken
    | DropToken
    | LeaseTask
    | ForgetHistory
    | NoteWatch
)
