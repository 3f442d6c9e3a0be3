"""The task: its options, its states with their transition table, and its lease.

A task is accepted once, runs at least once, and finishes once. Each time a worker gets it, it is
leased under a fence that is one higher than the last; a write under an older fence is stale. How a
lease ends (`Ending`) decides whether its attempt is used up (`USED_UP`).
"""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal, assert_never

import msgspec
from msgspec import Meta, Raw, Struct

from rota.core import limits
from rota.core.flows.model import Concurrencies, FairKey, FlowSpec, Rates, flow_spec
from rota.core.ids import TaskId
from rota.core.schedules.durations import Duration, DurationFields
from rota.core.tasks.headers import Headers
from rota.core.tasks.unique import Debounce, Release, Unique, debounced_due_ms

Name = Annotated[str, Meta(min_length=1, max_length=limits.MAX_NAME_LENGTH)]
Labels = (
    Annotated[dict[Name, Name], Meta(max_length=limits.MAX_LABELS)]
    | Annotated[list[Name], Meta(max_length=limits.MAX_LABELS)]
)
NULL = Raw(b"null")


class TaskState(StrEnum):
    SCHEDULED = "scheduled"  # waits for its time: a delay, or the back-off after a failed attempt
    QUEUED = "queued"  # may be leased by any worker that can serve it
    RUNNING = "running"  # leased to one worker
    SUCCEEDED = "succeeded"  # finished with a result
    FAILED = "failed"  # no attempt left, or not worth another: the dead letter
    CANCELLED = "cancelled"  # cancelled by a caller

    def may_become(self, after: "TaskState") -> bool:
        return after in TASK_TRANSITIONS[self]

    def to(self, after: "TaskState") -> "TaskState":
        """Return `after`, which the table must list for this state."""
        assert after in TASK_TRANSITIONS[self], f"a task that is {self} cannot become {after}"
        return after


# A state changes only through `to`. Finished tasks come back only by an operator's retry.
TASK_TRANSITIONS: dict[TaskState, frozenset[TaskState]] = {
    TaskState.SCHEDULED: frozenset(
        {TaskState.QUEUED, TaskState.RUNNING, TaskState.FAILED, TaskState.CANCELLED}
    ),
    TaskState.QUEUED: frozenset({TaskState.RUNNING, TaskState.FAILED, TaskState.CANCELLED}),
    TaskState.RUNNING: frozenset(
        {
            TaskState.SCHEDULED,
            TaskState.QUEUED,
            TaskState.SUCCEEDED,
            TaskState.FAILED,
            TaskState.CANCELLED,
        }
    ),
    TaskState.SUCCEEDED: frozenset(),
    TaskState.FAILED: frozenset({TaskState.QUEUED}),
    TaskState.CANCELLED: frozenset({TaskState.QUEUED}),
}


def waiting_state(due_at_ms: int | None) -> TaskState:
    """The state of a waiting task: scheduled for a moment, or queued."""
    return TaskState.QUEUED if due_at_ms is None else TaskState.SCHEDULED


FINISHED = frozenset({TaskState.SUCCEEDED, TaskState.FAILED, TaskState.CANCELLED})


class Ending(StrEnum):
    """The way in which an attempt ended that did not finish its task."""

    FAILED = "failed"  # the handler failed; uses up an attempt
    TIMED_OUT = "timed_out"  # ran past its time; uses up an attempt
    LOST = "lost"  # its worker died or was replaced; uses up an attempt, or poison never ends
    RELEASED = "released"  # given back unstarted or by a leaving worker; uses up none
    SNOOZED = "snoozed"  # the handler asked to be called later; uses up none


USED_UP = frozenset({Ending.FAILED, Ending.TIMED_OUT, Ending.LOST})


class Backoff(
    Struct, metaclass=DurationFields, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """The wait between a failed attempt and the next."""

    # Doubles each time, grows by the same each time, or no wait at all.
    kind: Literal["exponential", "linear", "none"] = "exponential"
    # After the first failed attempt.
    initial_ms: Annotated[int, Meta(ge=0, le=limits.MAX_DELAY_MS)] = 1_000
    max_ms: Annotated[int, Meta(ge=0, le=limits.MAX_DELAY_MS)] = 300_000  # no wait is longer
    # The share by which a wait may be shortened at random; true: 1.
    jitter: bool | Annotated[float, Meta(ge=0, le=1)] = 0.2

    if TYPE_CHECKING:  # with durations; see `DurationFields`

        def __init__(
            self,
            *,
            kind: Literal["exponential", "linear", "none"] = ...,
            initial_ms: int = ...,
            initial: Duration = ...,
            max_ms: int = ...,
            max: Duration = ...,  # noqa: A002 - the field without its unit
            jitter: bool | float = ...,
        ) -> None: ...


def retry_delay_ms(backoff: Backoff, *, failed_attempts: int, dice: float) -> int:
    """The wait after `failed_attempts` failures; `dice` in [0, 1) spreads it downwards only.

    Jitter never lengthens a wait, so `max_ms` is a promise.
    """
    assert failed_attempts >= 1
    assert 0 <= dice < 1

    match backoff.kind:
        case "none":
            return 0
        case "linear":
            growth = failed_attempts
        case "exponential":
            # Past 2**40 every wait is capped anyway; the bound keeps the number small.
            growth = 2 ** min(failed_attempts - 1, 40)
        case _:
            assert_never(backoff.kind)
    full = backoff.initial_ms * growth
    spread = 1.0 if backoff.jitter is True else float(backoff.jitter)
    return round(min(full, backoff.max_ms) * (1 - spread * dice))


class TaskError(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The error of the handler, unchanged. Never replaced by a protocol's error."""

    type: str = "Error"  # the exception's class, or a code of Rota's own such as `timeout`
    message: str = ""
    retryable: bool = True  # false: no further attempt, however many are left
    details: Any = None  # any JSON; the SDK puts the traceback here


class NewTask(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A task as its submitter describes it."""

    name: Name  # workers know it by this
    # Any JSON; for tasks of the SDK an object with one field a parameter.
    payload: Raw = msgspec.field(default_factory=lambda: NULL)  # a Raw default has no schema
    queue: Name = "default"
    # Higher first; first come, first served inside one priority.
    priority: Annotated[int, Meta(ge=-limits.MAX_PRIORITY, le=limits.MAX_PRIORITY)] = 0
    # Capabilities that a worker must have, all of them.
    requires: Annotated[tuple[Name, ...], Meta(max_length=limits.MAX_REQUIRES)] = ()
    # From now; not together with `run_at_ms`.
    delay_ms: Annotated[int, Meta(ge=0, le=limits.MAX_DELAY_MS)] | None = None
    # Unix time; a moment that has passed means now.
    run_at_ms: Annotated[int, Meta(ge=0, le=2**53)] | None = None
    timeout_ms: Annotated[int, Meta(ge=1, le=limits.MAX_TIMEOUT_MS)] | None = None  # of one attempt
    # Fails when not started by then, or as `on_expiry` says.
    start_within_ms: Annotated[int, Meta(ge=1, le=limits.MAX_DELAY_MS)] | None = None
    # A task that was not started in time has failed, or is discarded: cancelled, no failure.
    on_expiry: Literal["fail", "discard"] = "fail"
    max_attempts: Annotated[int, Meta(ge=1, le=limits.MAX_ATTEMPTS)] = 3  # the first one counts
    backoff: Backoff | None = None
    # Idempotency, within the queue: the same key again gives the task it named first.
    key: Annotated[str, Meta(min_length=1, max_length=limits.MAX_KEY_LENGTH)] | None = None
    labels: Labels | None = None  # to search by
    concurrency: Concurrencies | None = None  # limits on how many tasks of a key run at once
    rate: Rates | None = None  # limits on how many tasks of a key start in a period
    # The tenant of the task: tenants of a queue that have work share its starts by their weights.
    fair_key: FairKey | None = None
    # One task at a time has the same key, or the same fields; not together with `debounce`.
    unique: Unique | None = None
    # Tasks in quick succession become one; not together with `delay_ms` and `run_at_ms`.
    debounce: Debounce | None = None
    # Texts beside the payload for middleware, such as `traceparent`; all attempts get them.
    headers: Headers | None = None


class TaskOptions(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The options that most tasks leave at their defaults; such a task stores none."""

    delay_ms: int | None = None
    run_at_ms: int | None = None
    timeout_ms: int | None = None
    start_within_ms: int | None = None
    max_attempts: int = 3
    backoff: Backoff | None = None
    labels: Labels | None = None
    retried_at_ms: int | None = None  # of a task with `start_within_ms`: when it was last retried
    concurrency: Concurrencies | None = None
    rate: Rates | None = None
    fair_key: str | None = None
    on_expiry: Literal["fail", "discard"] = "fail"
    unique: Unique | None = None
    debounce: Debounce | None = None
    headers: Headers | None = None


FAIL = "fail"  # the default of `on_expiry`
DEFAULT_OPTIONS = TaskOptions()
DEFAULT_BACKOFF = Backoff()


class Lane(Struct, frozen=True):
    """The requirements of a task on its worker. Tasks with the same ones share a lane."""

    queue: str
    name: str
    requires: tuple[str, ...] = ()


def lane_of(task: NewTask) -> Lane:
    requires = task.requires
    if len(requires) > 1:
        requires = tuple(sorted(set(requires)))
    return Lane(task.queue, task.name, requires)


def options_of(task: NewTask) -> TaskOptions:
    """The options of a task; one shared value for all tasks that have none."""
    if (
        task.max_attempts == DEFAULT_OPTIONS.max_attempts
        and task.timeout_ms is None
        and task.labels is None
        and task.backoff is None
        and task.delay_ms is None
        and task.run_at_ms is None
        and task.start_within_ms is None
        and task.concurrency is None
        and task.rate is None
        and task.fair_key is None
        and task.unique is None
        and task.debounce is None
        and task.headers is None
        and task.on_expiry == FAIL
    ):
        return DEFAULT_OPTIONS
    return TaskOptions(
        delay_ms=task.delay_ms,
        run_at_ms=task.run_at_ms,
        timeout_ms=task.timeout_ms,
        start_within_ms=task.start_within_ms,
        max_attempts=task.max_attempts,
        backoff=task.backoff,
        labels=task.labels,
        concurrency=task.concurrency,
        rate=task.rate,
        fair_key=task.fair_key,
        on_expiry=task.on_expiry,
        unique=task.unique,
        debounce=task.debounce,
        headers=task.headers,
    )


def flow_of(task: "NewTask | TaskOptions") -> FlowSpec | None:
    """The flow of a task inside its lane; None: it has no limits and no tenant."""
    return flow_spec(task.concurrency, task.rate, task.fair_key)


def holds_key(options: TaskOptions) -> bool:
    """Whether a task may hold a key, by which it is unique or debounced."""
    return options.unique is not None or options.debounce is not None


def holds_key_while_running(options: TaskOptions) -> bool:
    return options.unique is not None and options.unique.release is Release.END


def retried_options(options: TaskOptions, *, now_ms: int) -> TaskOptions:
    """The options of a finished task that is retried: its start limit begins again."""
    if options.start_within_ms is None:
        return options
    return msgspec.structs.replace(options, retried_at_ms=now_ms)


def start_by_ms(options: TaskOptions, *, created_at_ms: int) -> int | None:
    """The moment by which a task must start; None: it has no limit.

    The limit counts from the acceptance of the task, or from its last retry.
    """
    if options.start_within_ms is None:
        return None
    began_ms = created_at_ms if options.retried_at_ms is None else options.retried_at_ms
    return began_ms + options.start_within_ms


def due_at_ms(task: NewTask, *, now_ms: int) -> int | None:
    """The moment a new task may run; None when that is now."""
    if task.run_at_ms is not None:
        return task.run_at_ms if task.run_at_ms > now_ms else None
    if task.debounce is not None:
        return debounced_due_ms(task.debounce, first_ms=now_ms, now_ms=now_ms)
    return now_ms + task.delay_ms if task.delay_ms else None


class EndedAttempt(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a task's log: an attempt that did not finish it."""

    attempt: int
    fence: int
    ending: Ending
    worker_id: str | None = None
    started_at_ms: int | None = None
    ended_at_ms: int
    next_state: TaskState
    error: TaskError | None = None


class Acknowledgement(Struct, frozen=True, omit_defaults=True):
    """Who has seen that a task failed, and needs no reminder of it."""

    at_ms: int
    by: str  # the name of the caller's token
    reason: str = ""


class TaskRecord(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """A task as the store knows it, live or finished."""

    id: TaskId
    lane: Lane
    state: TaskState
    priority: int = 0
    payload: bytes = b"null"
    options: TaskOptions = DEFAULT_OPTIONS
    key: str | None = None
    created_at_ms: int
    due_at_ms: int | None = None
    attempt: int = 0
    fence: int = 0
    worker_id: str | None = None
    incarnation: int | None = None
    started_at_ms: int | None = None
    deadline_ms: int | None = None
    finished_at_ms: int | None = None
    result: bytes | None = None
    error: TaskError | None = None
    progress: bytes | None = None
    partial: bytes | None = None
    log: tuple[EndedAttempt, ...] = ()
    acknowledged: Acknowledgement | None = None  # of a failed task
    run: int | None = None  # of the workflow, with the token; filled in where it is needed
    token: int | None = None
    flow: int | None = None  # the number of its flow, while it is live
    rank: int | None = None  # its place in the queue, if its priority ages

    @property
    def last_error(self) -> TaskError | None:
        """The error of the finished task, or of its newest failed attempt."""
        if self.error is not None:
            return self.error
        return next((line.error for line in reversed(self.log) if line.error), None)


def of_run(task: TaskRecord, whose: tuple[int, int] | None) -> TaskRecord:
    """The task with the run and the token that it works for, if any."""
    if whose is None:
        return task
    run, token = whose
    return msgspec.structs.replace(task, run=run, token=token)


class Lease(Struct, frozen=True, gc=False):
    """A running task, as narrow as the hot path needs it; in the order of the store's columns."""

    id: TaskId
    lane: Lane
    incarnation: int  # 0: held by a caller of the jobs API, named by `holder`
    fence: int
    attempt: int
    started_at_ms: int
    deadline_ms: int | None = None
    holder: str | None = None
    owner: str | None = None  # the binding that started the job; None: not known, or no job


JOB_INCARNATION = 0


def shortened(error: TaskError) -> TaskError:
    """Cut overlong texts: an error must never be refused for its size."""
    most = limits.MAX_ERROR_LENGTH
    if len(error.type) <= most and len(error.message) <= most:
        return error
    return msgspec.structs.replace(error, type=error.type[:most], message=error.message[:most])


def normalised_labels(labels: Labels | None) -> tuple[str, ...]:
    """Labels as searchable texts: a list's items, or a mapping's `key=value` pairs."""
    if not labels:
        return ()
    if isinstance(labels, dict):
        return tuple(f"{key}={value}" for key, value in labels.items())
    return tuple(dict.fromkeys(labels))
