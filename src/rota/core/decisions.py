"""Every change the core can ask for. Adding one here makes mypy point at `rota.engine.apply`.

Decisions are grouped by kind and applied in the order of the union below, so that what frees
something comes before what takes it: leases are given last. Progress comes first of all, since the
end of an attempt takes along what the attempt has reported.

Those that come by the thousand are left out of garbage collection (`gc=False`), as are the values
they are made from: they hold nothing that could lead back to them, and a collector that counts them
in would cost as much as deciding them.
"""

from msgspec import Struct

from rota.core.access import AccessToken
from rota.core.breakers import Breaker
from rota.core.ids import TaskId
from rota.core.statistics import Statistics
from rota.core.tasks import EndedAttempt, NewTask, TaskError, TaskState
from rota.core.valves import HoldReason, Watch
from rota.core.workers import Worker, WorkerState


class AddTask(Struct, frozen=True, tag=True, gc=False):
    """Accept a task: queued when `due_at_ms` is None, scheduled otherwise."""

    id: TaskId
    task: NewTask
    created_at_ms: int
    due_at_ms: int | None = None


class FinishTask(Struct, frozen=True, tag=True, gc=False):
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


class RequeueTask(Struct, frozen=True, tag=True):
    """End a lease without finishing the task: queued again, or scheduled for `due_at_ms`."""

    id: TaskId
    fence: int
    attempt: int  # how many are used up now
    ended: EndedAttempt
    due_at_ms: int | None = None


class QueueTask(Struct, frozen=True, tag=True):
    """A scheduled task's moment has come."""

    id: TaskId


class ReviveTask(Struct, frozen=True, tag=True):
    """Bring a finished task back from history, with all its attempts before it."""

    id: TaskId


class NoteProgress(Struct, frozen=True, tag=True):
    id: TaskId
    fence: int
    progress: bytes | None
    partial: bytes | None


class PutWorker(Struct, frozen=True, tag=True):
    """A registration: the row is new, or replaces that of an earlier incarnation."""

    worker: Worker


class NoteHeartbeat(Struct, frozen=True, tag=True):
    worker_id: str
    at_ms: int
    load: dict[str, float] | None = None


class ChangeWorkerState(Struct, frozen=True, tag=True):
    """What an operator wants of this incarnation; the next one starts active."""

    worker_id: str
    incarnation: int
    state: WorkerState


class RemoveWorker(Struct, frozen=True, tag=True):
    worker_id: str
    incarnation: int
    reason: str


class NoteQuality(Struct, frozen=True, tag=True):
    """How a worker does with tasks of one name, after a batch of results."""

    worker_id: str
    name: str
    statistics: Statistics
    breaker: Breaker


class TellCancelled(Struct, frozen=True, tag=True):
    """Remember to tell a worker that a task it runs was cancelled."""

    incarnation: int
    task_id: TaskId


class ForgetCancelled(Struct, frozen=True, tag=True):
    """The worker knows."""

    incarnation: int
    task_id: TaskId


class NoteWatch(Struct, frozen=True, tag=True):
    """What the sweep remembers until the next, and why it held evictions back, if it did."""

    watch: Watch
    held_because: HoldReason | None = None


class ChangeQueue(Struct, frozen=True, tag=True):
    queue: str
    paused: bool
    at_ms: int


class LeaseTask(Struct, frozen=True, tag=True, gc=False):
    """Give a task to a worker, or to a caller of the jobs API."""

    id: TaskId
    was: TaskState
    incarnation: int
    fence: int
    attempt: int
    started_at_ms: int
    deadline_ms: int | None = None
    holder: str | None = None


class ForgetHistory(Struct, frozen=True, tag=True):
    finished_before_ms: int
    most: int


class PutToken(Struct, frozen=True, tag=True):
    token: AccessToken


class DropToken(Struct, frozen=True, tag=True):
    token_id: str


Decision = (
    NoteProgress
    | AddTask
    | FinishTask
    | RequeueTask
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
