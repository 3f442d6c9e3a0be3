"""The replies to commands, and the base of all commands: a command's type names its reply."""

from typing import Generic, Literal, TypeVar

from msgspec import Struct

from rota.core.decisions import AddTask
from rota.core.ids import TaskId
from rota.core.tasks.model import TaskError, TaskRecord
from rota.core.workers.model import Health, WorkerRecord, WorkerState
from rota.errors import RotaError

R_co = TypeVar("R_co", covariant=True)


class CommandBase(Struct, Generic[R_co], frozen=True):
    """A request to a coordinator; `R_co` is the type of the reply to it."""


OutcomeName = Literal["accepted", "duplicate", "stale", "stale_epoch", "unknown"]


class Submitted(Struct, frozen=True):
    """The added tasks, or the existing task of a known key, in the order of the submission."""

    items: list[AddTask | TaskRecord]


class SubmissionStatus(Struct, frozen=True, kw_only=True):
    """The state of a submitted task at the end of the transaction."""

    task: TaskRecord
    position: int | None = None  # of a queued task: its place, from 1, up to the counting limit
    is_duplicate: bool = False  # its key was already known


class SubmissionStatuses(Struct, frozen=True):
    """The standings of submitted tasks, in the order of the submission."""

    items: list[SubmissionStatus]


class Changed(Struct, frozen=True):
    """The named tasks that have changed, and the reasons why the others have not."""

    changed: tuple[TaskId, ...]
    refused: dict[TaskId, RotaError]


class Registered(Struct, frozen=True):
    worker: WorkerRecord
    lease_ms: int


class Beat(Struct, frozen=True, kw_only=True):
    health: Health
    state: WorkerState
    cancel: tuple[TaskId, ...]
    lost: tuple[TaskId, ...]
    heartbeat_interval_ms: int
    lease_ms: int


class Granted(Struct, frozen=True):
    """The tasks leased to a worker; `fence` and `attempt` of each are those of the lease."""

    leases: list[TaskRecord]


class Outcomes(Struct, frozen=True):
    """The outcome of each reported item, in order."""

    outcomes: list[OutcomeName]


class Done(Struct, frozen=True):
    """The command has been executed. `count` is the number of changes, where the rule counts."""

    count: int = 0


class Taken(Struct, frozen=True, kw_only=True):
    """The number of rows taken from the inbox, with the duplicates and the refused ones."""

    count: int
    duplicates: int = 0  # rows whose keys were already known
    refused: tuple[tuple[str | None, TaskError], ...] = ()  # by key; stored as failed tasks


class JobChanged(Struct, frozen=True):
    task: TaskRecord


Reply = (
    Submitted
    | SubmissionStatuses
    | Changed
    | Registered
    | Beat
    | Granted
    | Outcomes
    | Done
    | Taken
    | JobChanged
)
