"""Workers on the wire: registration, heartbeats, leases, reports, views and demand."""

from typing import Annotated, Literal

from msgspec import Meta, Raw

from rota.core import limits
from rota.core.dispatch.autoscaling import Term
from rota.core.tasks.headers import Headers
from rota.core.tasks.logs import LogLevel, TimeMs
from rota.core.tasks.model import Labels, Name, TaskError
from rota.core.workers.model import Health, WorkerState
from rota.messages.base import Answer, Fence, IdText, Incarnation, Request, Value, WaitMs
from rota.messages.shards import ShardClaim

Names = Annotated[list[Name], Meta(max_length=limits.MAX_WORKER_NAMES)]


class WorkerRegistration(Request, frozen=True, kw_only=True):
    node_id: Name = "unnamed"  # the machine or process it runs on, for people
    # What it has, for tasks that require it.
    capabilities: Annotated[list[Name], Meta(max_length=limits.MAX_CAPABILITIES)] = []
    max_concurrent_tasks: Annotated[int, Meta(ge=1, le=limits.MAX_CONCURRENT_TASKS)] = 1
    tasks: Names | None = None  # names it can run; absent: any
    queues: Names | None = None  # queues it serves; absent: all
    heartbeat_interval_ms: Annotated[
        int,
        Meta(ge=limits.MIN_HEARTBEAT_INTERVAL_MS, le=limits.MAX_HEARTBEAT_INTERVAL_MS),
    ] = 5_000
    worker_id: Name | None = None  # absent: the coordinator chooses one
    group: Name | None = None  # for filters
    labels: Labels | None = None


class WorkerMetrics(Answer, frozen=True, kw_only=True):
    tasks_completed: int = 0  # ever, as `tasks_failed` and the average
    tasks_failed: int = 0
    average_task_duration_ms: float = 0.0
    p50_ms: float | None = None  # of recent tasks, as the others
    p95_ms: float | None = None
    p99_ms: float | None = None


class ScoreView(Answer, frozen=True, kw_only=True):
    """The parts of a worker's score; each in 0..1, weighted into `priority`."""

    capacity: float
    success: float
    speed: float
    slow_start: float


class BreakerView(Answer, frozen=True, kw_only=True):
    """A task name that this worker gets no tasks of, because it kept failing them."""

    task: str
    state: str
    until_ms: int | None = None  # when it is tried again


class WorkerView(Answer, frozen=True, kw_only=True):
    id: str
    node_id: str
    capabilities: tuple[str, ...]
    max_concurrent_tasks: int
    current_tasks: int  # leased to it now
    health: Health
    state: WorkerState
    last_heartbeat_ms: int
    started_at_ms: int
    incarnation: int  # number of this registration; sent with every call of the worker
    heartbeat_interval_ms: int  # the one to use; longer than requested in very large fleets
    lease_ms: int  # silence after which its tasks go to other workers
    metrics: WorkerMetrics
    tasks: tuple[str, ...] | None = None
    queues: tuple[str, ...] | None = None
    group: str | None = None
    labels: Labels | None = None
    load: dict[str, float] = {}  # as reported with its last heartbeat
    breakers: list[BreakerView] = []
    priority: float | None = None  # its score; only with `rank`, as `success_rate` and `score`
    available_capacity: int | None = None  # tasks it has room for
    success_rate: float | None = None
    score: ScoreView | None = None


class WorkerPage(Answer, frozen=True, kw_only=True):
    items: list[WorkerView]
    next_cursor: str | None = None


class WorkerLeft(Answer, frozen=True, kw_only=True):
    id: str
    released: int  # leases that were returned


class HeartbeatRequest(Request, frozen=True, kw_only=True):
    incarnation: Incarnation
    # Ids of the tasks it has; absent: it does not say.
    running: Annotated[list[IdText], Meta(max_length=limits.MAX_CONCURRENT_TASKS)] | None = None
    # Figures of its own, shown with the worker.
    load: Annotated[dict[Name, float], Meta(max_length=64)] | None = None


class HeartbeatAnswer(Answer, frozen=True, kw_only=True):
    health: Health
    state: WorkerState
    cancel: list[str] = []  # ids of tasks to stop: they were cancelled
    lost: list[str] = []  # ids of tasks that are no longer its own
    heartbeat_interval_ms: int
    lease_ms: int


class LeaseRequest(Request, frozen=True, kw_only=True):
    incarnation: Incarnation
    # Tasks at once; capacity bounds it too.
    max: Annotated[int, Meta(ge=1, le=limits.MAX_LEASES_PER_CALL)] = 1
    wait_ms: WaitMs = 0  # how long to wait for the first
    # All tasks that the worker holds: those of an answer that was lost are given to it again, under
    # the same fences. Only for a worker that has no other lease call under way.
    running: Annotated[list[IdText], Meta(max_length=limits.MAX_CONCURRENT_TASKS)] | None = None


class LeaseView(Answer, frozen=True, kw_only=True):
    task_id: str
    fence: int  # rises with each lease of the task; sent with every report about it
    name: str
    payload: Raw
    attempt: int  # which one this is, from 1
    max_attempts: int
    deadline_ms: int | None = None  # when the attempt runs out of time; null: never
    timeout_ms: int | None = None  # the same limit, for workers with another clock
    queue: str = "default"
    priority: int = 0
    key: str | None = None
    labels: Labels | None = None
    created_at_ms: int = 0
    run_id: str | None = None  # the run it belongs to, to attach artifacts to; null: none
    headers: Headers | None = None  # as the task was submitted with, or its run; null: none


class LeaseAnswer(Answer, frozen=True, kw_only=True):
    leases: list[LeaseView]


class ResultItem(Request, frozen=True, kw_only=True):
    """The outcome of one leased task: a result, an error, or a snooze."""

    task_id: IdText
    fence: Fence
    ok: bool | None = None  # true with a result, false with an error; absent with `snooze_ms`
    result: Value = None
    error: TaskError | str | None = None
    # Instead of the back-off.
    retry_in_ms: Annotated[int, Meta(ge=0, le=limits.MAX_DELAY_MS)] | None = None
    # Run it again after this; uses up no attempt.
    snooze_ms: Annotated[int, Meta(ge=0, le=limits.MAX_DELAY_MS)] | None = None
    # With `snooze_ms`: no task of its rates starts in that time, at most a day.
    rate_limited: bool = False
    # The shard it was done for; refused with `stale_epoch` if the shard has moved since.
    shard: ShardClaim | None = None
    # W3C context of the span that has executed a task of a run. The task after a join gets those of
    # the joined tasks in its header `rota-links`. One that is malformed is ignored.
    traceparent: str | None = None


class ResultReport(Request, frozen=True, kw_only=True):
    incarnation: Incarnation
    results: Annotated[list[ResultItem], Meta(max_length=limits.MAX_RESULTS_PER_REPORT)]


class ResultOutcome(Answer, frozen=True, kw_only=True):
    task_id: str
    # stale_epoch: not accepted, and the lease is unchanged
    outcome: Literal["accepted", "duplicate", "stale", "stale_epoch", "unknown"]


class ResultAnswer(Answer, frozen=True, kw_only=True):
    outcomes: list[ResultOutcome]


class ProgressItem(Request, frozen=True, kw_only=True):
    task_id: IdText
    fence: Fence
    progress: Value = None  # a share from 0 to 1, or any JSON
    partial: Value = None  # a result so far


class ProgressReport(Request, frozen=True, kw_only=True):
    """The object form of a progress call; a bare array of items is accepted as well."""

    items: Annotated[list[ProgressItem], Meta(max_length=limits.MAX_RESULTS_PER_REPORT)]
    incarnation: Incarnation | None = None


class LogLineItem(Request, frozen=True, kw_only=True):
    """One line that a handler has logged."""

    at_ms: TimeMs  # by the clock of the worker
    level: LogLevel = "info"
    logger: str = ""  # the name of the logger
    message: str  # the middle of a long one is cut
    fields: Value = None  # an object; one that is too large is left out


class AttemptLogItem(Request, frozen=True, kw_only=True):
    """Lines that the handler of one leased task has logged since the last report."""

    task_id: IdText
    fence: Fence
    lines: Annotated[list[LogLineItem], Meta(max_length=limits.MAX_LOG_LINES)] = []
    # The number of the first line, counted over the lines sent of this attempt, from 1. With it, a
    # report may be repeated. Absent: the lines follow those before.
    first: Annotated[int, Meta(ge=0, le=2**53)] = 0
    # Lines of this attempt that the worker has not sent, in all.
    dropped: Annotated[int, Meta(ge=0, le=2**53)] = 0


class LogReport(Request, frozen=True, kw_only=True):
    """The object form of a call with log lines; a bare array of items is accepted as well."""

    items: Annotated[list[AttemptLogItem], Meta(max_length=limits.MAX_RESULTS_PER_REPORT)]
    incarnation: Incarnation | None = None


class OperationsItem(Request, frozen=True, kw_only=True):
    """What the function of one leased task has done since its last report."""

    task_id: IdText
    fence: Fence
    # Entries that functions of this run had reported before these, as of the task's payload.
    after: Annotated[int, Meta(ge=0, le=2**53)]
    operations: Raw  # a list of operations


class OperationsReport(Request, frozen=True, kw_only=True):
    incarnation: Incarnation
    items: Annotated[list[OperationsItem], Meta(max_length=limits.MAX_RESULTS_PER_REPORT)]


class OperationsOutcome(Answer, frozen=True, kw_only=True):
    task_id: str
    # stale: the task is not the worker's any more, or entries before these are missing
    outcome: Literal["accepted", "duplicate", "stale", "stale_epoch", "unknown"]
    cancelled: str | None = None  # why the function is to stop and undo what it has done


class OperationsAnswer(Answer, frozen=True, kw_only=True):
    outcomes: list[OperationsOutcome]


# --- the demand for workers --------------------------------------------------------------------


class ScaleView(Answer, frozen=True, kw_only=True):
    """The demand of one queue and capability set."""

    queue: str
    requires: tuple[str, ...]  # capabilities; a worker needs all of them
    paused: bool
    depth: int  # queued now
    oldest_age_ms: int | None = None  # how long the oldest has been queued
    running: int  # leased to workers
    submitted_per_s: float  # over the last minute, as the one below
    finished_per_s: float
    duration_ms: float | None = None  # of an attempt, on average; null: none has ended yet
    workers: int  # that can serve it: active and healthy
    capacity: int  # tasks that these can run at once
    available_capacity: int  # of that, free now
    utilisation: float | None = None  # share of the capacity in use; null: there is none
    drain_ms: float | None = None  # until the waiting tasks are done; null: no worker runs them
    wanted_capacity: float  # tasks that should run at once
    wanted_workers: int
    decided_by: Term  # the largest part of the wanted capacity
    explanation: str  # the same, with its figures


class ScalePage(Answer, frozen=True, kw_only=True):
    items: list[ScaleView]
    depth: int  # of all items, as the three below
    running: int
    wanted_capacity: float
    wanted_workers: int  # a worker that serves several items is wanted once
    next_cursor: str | None = None
