"""What the core answers to an event. Gateways turn these into messages."""

from typing import Literal

from msgspec import Struct

from rota.core.decisions import AddTask
from rota.core.ids import TaskId
from rota.core.tasks import Task, TaskError
from rota.core.workers import Health, Worker, WorkerState
from rota.errors import RotaError

OutcomeName = Literal["accepted", "duplicate", "stale", "stale_epoch", "unknown"]


class Submitted(Struct, frozen=True):
    """In the order of the submission: what was added, or the task that had the key already."""

    items: list[AddTask | Task]


class Standing(Struct, frozen=True, kw_only=True):
    """How a submitted task stands at the end of the transaction."""

    task: Task
    position: int | None = None  # while it is queued: its place, from 1; no further than counted
    is_duplicate: bool = False  # its key was known


class Stood(Struct, frozen=True):
    """In the order of the submission."""

    items: list[Standing]


class Changed(Struct, frozen=True):
    """Which of the named tasks changed, and why the others did not."""

    changed: tuple[TaskId, ...]
    refused: dict[TaskId, RotaError]


class Registered(Struct, frozen=True):
    worker: Worker
    lease_ms: int


class Beat(Struct, frozen=True, kw_only=True):
    health: Health
    state: WorkerState
    cancel: tuple[TaskId, ...]
    lost: tuple[TaskId, ...]
    heartbeat_interval_ms: int
    lease_ms: int


class Granted(Struct, frozen=True):
    """A lease as its worker needs it; `task.fence` and `task.attempt` are those of the lease."""

    leases: list[Task]


class Outcomes(Struct, frozen=True):
    """What became of each reported item, in order."""

    outcomes: list[OutcomeName]


class Done(Struct, frozen=True):
    """Carried out; there is nothing more to say. `count` where something was counted."""

    count: int = 0


class Taken(Struct, frozen=True, kw_only=True):
    """How many rows were taken from the inbox, and what became of them."""

    count: int
    duplicates: int = 0  # their keys were known
    refused: tuple[tuple[str | None, TaskError], ...] = ()  # by key; they are failed tasks now


class JobChanged(Struct, frozen=True):
    task: Task


Reply = (
    Submitted | Stood | Changed | Registered | Beat | Granted | Outcomes | Done | Taken | JobChanged
)
