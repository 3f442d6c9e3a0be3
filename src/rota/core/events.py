"""Everything that can happen to a coordinator: what callers ask, and what time brings.

An event is a value. It says what somebody wants or what came to pass, never what follows from
it: that is `rota.core.decide`.
"""

from typing import Annotated

from msgspec import Meta, Raw, Struct

from rota.core import limits
from rota.core.access import AccessToken
from rota.core.ids import TaskId
from rota.core.tasks import NewTask, TaskError, TaskState
from rota.core.workers import WorkerState

TaskNumber = Annotated[TaskId, Meta(ge=0, le=2**63 - 1)]
FenceNumber = Annotated[int, Meta(ge=0, le=2**53)]
DelayMs = Annotated[int, Meta(ge=0, le=limits.MAX_DELAY_MS)]


class TaskFilter(Struct, frozen=True, kw_only=True):
    """Which tasks are meant. Empty fields let everything through."""

    states: tuple[TaskState, ...] = ()
    queue: str | None = None
    name: str | None = None
    label: str | None = None


# --- tasks --------------------------------------------------------------------------------------


class SubmitTasks(Struct, frozen=True, tag=True):
    tasks: list[NewTask]
    session_id: str | None = None  # who is told how they stand, and later how they ended


class CancelTasks(Struct, frozen=True, tag=True):
    ids: tuple[TaskId, ...]


class RetryTasks(Struct, frozen=True, tag=True):
    """An operator sends finished tasks round again, or a waiting one at once."""

    ids: tuple[TaskId, ...]


class PauseQueue(Struct, frozen=True, tag=True):
    queue: str
    paused: bool


# --- workers ------------------------------------------------------------------------------------


class RegisterWorker(Struct, frozen=True, kw_only=True, tag=True):
    worker_id: str
    node_id: str
    incarnation: int | None = None  # goes on as this one, with all it holds, if it is current
    capabilities: tuple[str, ...] = ()
    max_concurrent_tasks: int = 1
    tasks: tuple[str, ...] | None = None
    queues: tuple[str, ...] | None = None
    heartbeat_interval_ms: int = 5_000
    group: str | None = None
    labels: dict[str, str] | list[str] | None = None


class Heartbeat(Struct, frozen=True, kw_only=True, tag=True):
    worker_id: str
    incarnation: int
    running: tuple[TaskId, ...] | None = None  # None: the worker did not say
    load: dict[str, float] | None = None


class LeaseWork(Struct, frozen=True, kw_only=True, tag=True):
    worker_id: str
    incarnation: int
    most: int  # tasks at once


class ShardClaim(Struct, frozen=True):
    """In whose name something was done: as the owner of a shard under an epoch."""

    service: str
    shard: int
    epoch: int


# Streaming workers send these two just so, as arrays in this order: new fields go to the end.
class Result(Struct, frozen=True, gc=False, array_like=True):
    """What a worker says of one task: finished, failed, or to be called again later."""

    task_id: TaskNumber
    fence: FenceNumber
    ok: bool = True
    result: bytes | None = None  # JSON; of a success that has none, null
    error: TaskError | None = None
    retry_in_ms: DelayMs | None = None
    snooze_ms: DelayMs | None = None
    claim: ShardClaim | None = None  # refused when the epoch is old


class ReportResults(Struct, frozen=True, kw_only=True, tag=True):
    worker_id: str
    incarnation: int
    results: list[Result]


class Progress(Struct, frozen=True, array_like=True):
    task_id: TaskNumber
    fence: FenceNumber
    progress: bytes | None = None  # JSON, as the partial result
    partial: bytes | None = None


class ReportProgress(Struct, frozen=True, kw_only=True, tag=True):
    worker_id: str
    incarnation: int | None
    items: list[Progress]


class ReturnLeases(Struct, frozen=True, kw_only=True, tag=True):
    """Leases whose answer never reached the worker: they go back as if never given."""

    worker_id: str
    incarnation: int
    leases: tuple[tuple[TaskId, int], ...]  # task and fence


class LeaveWorker(Struct, frozen=True, kw_only=True, tag=True):
    worker_id: str
    incarnation: int | None = None


class SetWorkerState(Struct, frozen=True, kw_only=True, tag=True):
    worker_id: str
    state: WorkerState


# --- jobs: tasks by their other name ------------------------------------------------------------


class StartJob(Struct, frozen=True, kw_only=True, tag=True):
    task_id: TaskId
    holder: str


class CompleteJob(Struct, frozen=True, kw_only=True, tag=True):
    task_id: TaskId
    result: Raw


class FailJob(Struct, frozen=True, kw_only=True, tag=True):
    task_id: TaskId
    error: TaskError


# --- access -------------------------------------------------------------------------------------


class AddToken(Struct, frozen=True, tag=True):
    token: AccessToken


class RevokeToken(Struct, frozen=True, tag=True):
    token_id: str


# --- what time brings: one event a duty ---------------------------------------------------------


class QueueDueTasks(Struct, frozen=True, tag=True):
    """Scheduled tasks whose moment has come may run."""


class ExpireAttempts(Struct, frozen=True, tag=True):
    """Attempts past their deadline, and tasks that did not start in time, are at their end."""


class SweepWorkers(Struct, frozen=True, tag=True):
    """Workers that have not been heard of for too long are gone."""


class TakeInbox(Struct, frozen=True, tag=True):
    """Tasks that came with transactions of others' are accepted, now that those are committed."""

    max_payload_bytes: int


class PruneHistory(Struct, frozen=True, tag=True):
    """Finished tasks past their keeping time are forgotten."""

    finished_before_ms: int


Event = (
    SubmitTasks
    | CancelTasks
    | RetryTasks
    | PauseQueue
    | RegisterWorker
    | Heartbeat
    | LeaseWork
    | ReportResults
    | ReportProgress
    | ReturnLeases
    | LeaveWorker
    | SetWorkerState
    | StartJob
    | CompleteJob
    | FailJob
    | AddToken
    | RevokeToken
    | QueueDueTasks
    | ExpireAttempts
    | SweepWorkers
    | TakeInbox
    | PruneHistory
)
