"""What is said on the wire: one schema for the gateways, the SDK and the reference page.

Requests refuse fields they do not know, and name them. Answers may grow.
"""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Raw, Struct

from rota.core import limits
from rota.core.tasks import Backoff, Labels, Name, NewTask, TaskError, TaskState
from rota.core.workers import Health, WorkerState

__all__ = ["Backoff", "Labels", "Name", "NewTask", "TaskError", "TaskState"]

Fence = Annotated[int, Meta(ge=0, le=2**53)]
Incarnation = Annotated[int, Meta(ge=0, le=2**53)]
WaitMs = Annotated[int, Meta(ge=0, le=limits.MAX_WAIT_MS)]
IdText = Annotated[str, Meta(max_length=limits.MAX_NAME_LENGTH)]

# A JSON value kept as it came; None when the field was left out, and `null` when it said so.
if TYPE_CHECKING:
    Value = Raw | None
else:
    Value = Raw  # of `Raw | None` the decoder would take nothing but null


class Request(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of what clients send."""


class NoFields(Request, frozen=True, kw_only=True):
    """A body that says nothing: an empty object, null, or no body at all."""


class Answer(Struct, frozen=True, kw_only=True):
    """Base of what the coordinator answers."""


# --- tasks -----------------------------------------------------------------------------------


class TaskView(Answer, frozen=True, kw_only=True):
    """A task as clients see it."""

    id: str
    name: str
    state: TaskState
    queue: str
    priority: int
    payload: Raw
    requires: tuple[str, ...]
    attempt: int  # attempts used up, with the one that runs
    max_attempts: int
    worker_id: str | None = None  # who runs it, or finished it
    result: Value = None
    error: TaskError | None = None  # of the last failed attempt
    progress: Value = None  # what the handler reported last, a share from 0 to 1 or any JSON
    partial: Value = None  # the partial result that the handler reported last
    position: int | None = None  # from 1, while queued and near enough to the head
    delay_ms: int | None = None
    run_at_ms: int | None = None  # when it is due, also after a failed attempt
    timeout_ms: int | None = None
    start_within_ms: int | None = None
    backoff: Backoff | None = None
    key: str | None = None
    labels: Labels | None = None
    created_at_ms: int
    started_at_ms: int | None = None  # of the attempt that runs, or finished it
    finished_at_ms: int | None = None
    run_id: str | None = None  # null for now
    token_id: str | None = None  # null for now
    duplicate: bool = False  # its key was known: this is the earlier task


class TaskPage(Answer, frozen=True, kw_only=True):
    items: list[TaskView]
    next_cursor: str | None = None  # give it as `cursor` for the next page; null on the last one


class TaskSelection(Request, frozen=True, kw_only=True):
    """Which tasks a bulk cancel or retry means."""

    state: TaskState | None = None
    queue: Name | None = None
    name: Name | None = None
    label: Name | None = None
    # These, as far as they match the rest.
    ids: Annotated[list[IdText], Meta(max_length=limits.MAX_TASKS_PER_SUBMISSION)] | None = None
    dry_run: bool = False  # count, and change nothing


class TaskCount(Answer, frozen=True, kw_only=True):
    count: int  # tasks changed, or that would be
    dry_run: bool = False


class QueueView(Answer, frozen=True, kw_only=True):
    name: str
    paused: bool
    depth: int  # queued now
    scheduled: int  # waiting for their time
    running: int  # leased to workers
    oldest_age_ms: int | None = None  # how long the oldest has been queued
    submitted_per_s: float = 0.0  # over the last minute, as the two below
    finished_per_s: float = 0.0
    failed_per_s: float = 0.0


class QueuePage(Answer, frozen=True, kw_only=True):
    items: list[QueueView]
    next_cursor: str | None = None


# --- workers ---------------------------------------------------------------------------------

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
    worker_id: Name | None = None  # absent: given
    group: Name | None = None  # to find it by
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
    """A task name this worker is kept from, because it keeps failing it."""

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
    incarnation: int  # number of this registration; shown with every call of the worker
    heartbeat_interval_ms: int  # the one that counts; longer than asked for in very large fleets
    lease_ms: int  # silence after which its work moves on
    metrics: WorkerMetrics
    tasks: tuple[str, ...] | None = None
    queues: tuple[str, ...] | None = None
    group: str | None = None
    labels: Labels | None = None
    load: dict[str, float] = {}  # as it said with its last beat
    breakers: list[BreakerView] = []
    priority: float | None = None  # its score; with `rank` only, as `success_rate` and `score`
    available_capacity: int | None = None  # tasks it has room for
    success_rate: float | None = None
    score: ScoreView | None = None


class WorkerPage(Answer, frozen=True, kw_only=True):
    items: list[WorkerView]
    next_cursor: str | None = None


class WorkerLeft(Answer, frozen=True, kw_only=True):
    id: str
    released: int  # leases given back


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


class LeaseView(Answer, frozen=True, kw_only=True):
    task_id: str
    fence: int  # rises with each lease of the task; goes with every word about it
    name: str
    payload: Raw
    attempt: int  # which one this is, from 1
    max_attempts: int
    deadline_ms: int | None = None  # when the attempt runs out of time; null: never
    timeout_ms: int | None = None  # the same bound, for workers whose clock differs from ours
    queue: str = "default"
    priority: int = 0
    key: str | None = None
    labels: Labels | None = None
    created_at_ms: int = 0
    run_id: str | None = None  # null for now


class LeaseAnswer(Answer, frozen=True, kw_only=True):
    leases: list[LeaseView]


class ResultItem(Request, frozen=True, kw_only=True):
    """What became of one leased task: a result, an error, or a snooze."""

    task_id: IdText
    fence: Fence
    ok: bool | None = None  # true with a result, false with an error; absent with `snooze_ms`
    result: Value = None
    error: TaskError | str | None = None
    # Instead of the back-off.
    retry_in_ms: Annotated[int, Meta(ge=0, le=limits.MAX_DELAY_MS)] | None = None
    # Run it again after this; uses up no attempt.
    snooze_ms: Annotated[int, Meta(ge=0, le=limits.MAX_DELAY_MS)] | None = None


class ResultReport(Request, frozen=True, kw_only=True):
    incarnation: Incarnation
    results: Annotated[list[ResultItem], Meta(max_length=limits.MAX_RESULTS_PER_REPORT)]


class ResultOutcome(Answer, frozen=True, kw_only=True):
    task_id: str
    outcome: Literal["accepted", "duplicate", "stale", "unknown"]


class ResultAnswer(Answer, frozen=True, kw_only=True):
    outcomes: list[ResultOutcome]


class ProgressItem(Request, frozen=True, kw_only=True):
    task_id: IdText
    fence: Fence
    progress: Value = None  # a share from 0 to 1, or any JSON
    partial: Value = None  # a result so far


class ProgressReport(Request, frozen=True, kw_only=True):
    """The object form of a progress call; a bare array of items is taken as well."""

    items: Annotated[list[ProgressItem], Meta(max_length=limits.MAX_RESULTS_PER_REPORT)]
    incarnation: Incarnation | None = None


# --- jobs ------------------------------------------------------------------------------------


class JobStart(Request, frozen=True, kw_only=True):
    worker_id: Name | None = None  # who starts it; the same again gets the same answer


class JobFailure(Request, frozen=True, kw_only=True):
    error: TaskError | str = "failed"


class JobEvent(Answer, frozen=True, kw_only=True):
    event_type: str
    from_state: str | None
    to_state: str
    created_at_ms: int


class JobView(TaskView, frozen=True, kw_only=True):
    fence: int
    events: list[JobEvent] = []


class JobAnswer(Answer, frozen=True, kw_only=True):
    success: bool
    job: JobView


class JobRefusal(Answer, frozen=True, kw_only=True):
    success: Literal[False] = False
    error: str
    code: str


# --- operations ------------------------------------------------------------------------------


class Check(Answer, frozen=True, kw_only=True):
    component: str
    isHealthy: bool  # noqa: N815 - the seed wire's spelling
    detail: str | None = None


class HealthAnswer(Answer, frozen=True, kw_only=True):
    status: Literal["healthy", "unhealthy"]
    checks: list[Check]
    components: list[Check]  # the same as `checks`
    uptime: float  # seconds
    timestamp: int  # Unix time in ms
    version: str
    warnings: list[str] = []  # such as being open to everybody


class Problem(Answer, frozen=True, kw_only=True):
    """`application/problem+json`; the facts of an error stand beside these fields."""

    code: str
    title: str
    status: int
    detail: str


class TokenRequest(Request, frozen=True, kw_only=True):
    scopes: Annotated[
        list[Literal["admin", "submit", "read", "worker"]], Meta(min_length=1, max_length=4)
    ]
    name: Name = "unnamed"
    queues: Names | None = None  # bound to these; absent: not bound
    worker_id: Name | None = None  # bound to this one; absent: not bound
    expires_in_ms: Annotated[int, Meta(ge=1_000, le=2**53)] | None = None


class TokenView(Answer, frozen=True, kw_only=True):
    id: str
    name: str
    scopes: tuple[str, ...]
    queues: tuple[str, ...] | None = None
    worker_id: str | None = None
    created_at_ms: int
    expires_at_ms: int | None = None


class NewTokenAnswer(TokenView, frozen=True, kw_only=True):
    token: str  # shown once; only its hash is kept


class TokenRevoked(Answer, frozen=True, kw_only=True):
    id: str


class TokenPage(Answer, frozen=True, kw_only=True):
    items: list[TokenView]
    next_cursor: str | None = None


JsonValue = Any
