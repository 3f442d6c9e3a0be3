"""Tasks and queues on the wire."""

from typing import Annotated, Literal

from msgspec import Meta, Raw

from rota.core import limits
from rota.core.flows.model import Concurrencies, Rates
from rota.core.flows.queue_settings import Fairness, QueueRate
from rota.core.tasks.headers import Headers
from rota.core.tasks.logs import LogLevel
from rota.core.tasks.model import Backoff, Labels, Name, TaskError, TaskState
from rota.core.tasks.unique import Debounce, Unique
from rota.messages.base import Answer, IdText, Request, Value


class AcknowledgementView(Answer, frozen=True, kw_only=True):
    """Who has seen that a task failed, so that it asks for attention no more."""

    at_ms: int
    by: str  # the name of the token
    reason: str = ""


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
    concurrency: Concurrencies | None = None
    rate: Rates | None = None
    fair_key: str | None = None
    on_expiry: Literal["fail", "discard"] = "fail"
    unique: Unique | None = None
    debounce: Debounce | None = None
    headers: Headers | None = None
    created_at_ms: int
    started_at_ms: int | None = None  # of the attempt that runs, or finished it
    finished_at_ms: int | None = None
    acknowledged: AcknowledgementView | None = None  # of a failed task; null: nobody has
    run_id: str | None = None  # the run it belongs to, as `token_id`; null: none
    token_id: str | None = None
    # An earlier task, which has its key, or the key by which it would be unique or debounced.
    duplicate: bool = False


class TaskPage(Answer, frozen=True, kw_only=True):
    items: list[TaskView]
    next_cursor: str | None = None  # give it as `cursor` for the next page; null on the last one


class LogLineView(Answer, frozen=True, kw_only=True):
    """One line of the log of a task."""

    number: int  # counted over all attempts of the task
    attempt: int
    fence: int  # of the attempt; attempts of one number differ in it
    at_ms: int  # by the clock of the worker
    level: LogLevel
    logger: str
    message: str
    fields: Value = None


class AttemptLogView(Answer, frozen=True, kw_only=True):
    """The log of one attempt: how much of it is kept, and how much is not."""

    attempt: int
    fence: int
    lines: int  # that are kept
    dropped: int  # that are not: over a limit, or their worker could not send them


class LogPage(Answer, frozen=True, kw_only=True):
    items: list[LogLineView]
    attempts: list[AttemptLogView]  # all that have logged, the oldest first
    next_after: int  # give it as `after` to go on
    has_more: bool  # there are further lines now
    state: TaskState  # of the task; once it has ended, no more lines come


class TaskSelection(Request, frozen=True, kw_only=True):
    """Which tasks a bulk cancel or retry means."""

    state: TaskState | None = None
    queue: Name | None = None
    name: Name | None = None
    label: Name | None = None
    # These, if they also match the rest.
    ids: Annotated[list[IdText], Meta(max_length=limits.MAX_TASKS_PER_SUBMISSION)] | None = None
    dry_run: bool = False  # count, and change nothing


Reason = Annotated[str, Meta(max_length=limits.MAX_REASON_LENGTH)]


class Acknowledging(Request, frozen=True, kw_only=True):
    """An acknowledgement of failed tasks."""

    reason: Reason = ""  # kept with the task
    undo: bool = False  # take it back: the tasks ask for attention again


class FailureAcknowledging(Acknowledging, frozen=True, kw_only=True):
    dry_run: bool = False  # count, and change nothing


class AcknowledgedSelection(TaskSelection, frozen=True, kw_only=True):
    """Which failed tasks a bulk acknowledgement means."""

    reason: Reason = ""
    undo: bool = False


class TaskCount(Answer, frozen=True, kw_only=True):
    count: int  # tasks changed, or that would be
    dry_run: bool = False


class QueueView(Answer, frozen=True, kw_only=True):
    name: str
    paused: bool
    depth: int  # queued now
    scheduled: int  # not due yet
    running: int  # leased to workers
    oldest_age_ms: int | None = None  # how long the oldest has been queued
    submitted_per_s: float = 0.0  # over the last minute, as the two below
    finished_per_s: float = 0.0
    failed_per_s: float = 0.0
    max_running: int | None = None  # settings, as `PATCH /api/queues/{queue}` takes them
    max_queued: int | None = None
    rate: QueueRate | None = None
    weights: dict[str, float] = {}
    fairness: Fairness = "tasks"
    aging_ms: int | None = None
    target_wait_ms: int | None = None
    # Since when a task waits longer than `target_wait_ms`; null: none does.
    target_missed_ms: int | None = None
    is_pushed: bool = False  # its tasks are pushed over HTTP; `GET /api/queues/{queue}/push`


class QueuePage(Answer, frozen=True, kw_only=True):
    items: list[QueueView]
    next_cursor: str | None = None
