"""Messages of the dashboard: the overview, wait reasons, failures, charts, the system."""

from typing import Any

from rota.core.replicas import Role
from rota.core.tasks.model import TaskError, TaskState
from rota.core.workflow.waits import WaitKind
from rota.messages.base import Answer, Request
from rota.messages.jobs import JobEvent


class LoginRequest(Request, frozen=True, kw_only=True):
    token: str


class Me(Answer, frozen=True, kw_only=True):
    """The caller, and what it may do."""

    name: str
    scopes: list[str]
    actions: list[str]  # read, submit, work, keep, recall, operate
    queues: tuple[str, ...] | None = None  # bound to these; null: not bound
    services: tuple[str, ...] | None = None
    is_token: bool  # false: admitted without a token


class LoggedOut(Answer, frozen=True, kw_only=True):
    logged_out: bool = True


class ShardCounts(Answer, frozen=True, kw_only=True):
    """Of all services together, as of the last sweep."""

    services: int = 0
    shards: int = 0
    owned: int = 0
    unowned: int = 0
    moving: int = 0  # to be released by their owners


class LeaderView(Answer, frozen=True, kw_only=True):
    """The coordinator that executes the commands of all coordinators on this store."""

    name: str
    address: str  # where the other coordinators reach it
    epoch: int  # of its leadership; one less is how often the leader has changed
    since_ms: int  # by the clock of the store
    is_here: bool  # it is the coordinator that answers


class Overview(Answer, frozen=True, kw_only=True):
    now_ms: int
    version: str
    tasks: dict[str, int]  # by state; ended tasks as long as they are kept
    runs: dict[str, int]  # by state
    workers: dict[str, int]  # by health, and by state: draining, quarantined
    queues: int
    paused_queues: list[str]
    stuck: int  # queued tasks that no registered worker can take
    # Approvals and signals that open runs wait for, by kind. Empty: none, or the caller is bound.
    waits: dict[str, int] = {}
    unacknowledged: int = 0  # failed tasks that nobody has acknowledged
    shards: ShardCounts
    leader: LeaderView | None = None  # null: the store is not shared, or the caller is bound


class WhyView(Answer, frozen=True, kw_only=True):
    """Why tasks wait."""

    # Such as queue_paused, no_worker_with_capability, workers_busy, limit_full, rate_closed.
    code: str
    text: str
    is_stuck: bool = False  # it does not resolve by itself
    limit_key: str | None = None  # the limit that is the reason
    opens_at_ms: int | None = None  # when a rate lets the next start through


class BacklogView(Answer, frozen=True, kw_only=True):
    """Live tasks with the same requirements, and why they wait."""

    queue: str
    name: str
    requires: tuple[str, ...]
    queued: int
    scheduled: int
    running: int
    oldest_age_ms: int | None = None
    why: WhyView


class BacklogPage(Answer, frozen=True, kw_only=True):
    items: list[BacklogView]
    next_cursor: str | None = None


class AttemptView(Answer, frozen=True, kw_only=True):
    """An attempt that did not finish its task."""

    attempt: int
    fence: int
    ending: str  # failed, timed_out, lost, released, snoozed
    worker_id: str | None = None
    started_at_ms: int | None = None
    ended_at_ms: int
    next_state: str
    error: TaskError | None = None


class TaskTimeline(Answer, frozen=True, kw_only=True):
    id: str
    state: str
    events: list[JobEvent]
    attempts: list[AttemptView]  # those that ended without finishing it; the newest fifty
    why: WhyView
    fence: int
    deadline_ms: int | None = None  # of the attempt that runs


class TasksAlike(Answer, frozen=True, kw_only=True):
    """Live tasks of a run with the same name and state."""

    name: str
    queue: str
    state: TaskState
    count: int


class RunActivity(Answer, frozen=True, kw_only=True):
    """The live tasks of a run."""

    run_id: str
    tasks: list[TasksAlike]  # none: it waits for an answer, a signal, a timer or a child run
    # What it waits for, in one line, such as "approval: Ship order 17?"; null: it has ended.
    text: str | None = None
    until_ms: int | None = None  # when the wait ends by itself, or times out


class RunActivityPage(Answer, frozen=True, kw_only=True):
    items: list[RunActivity]
    next_cursor: str | None = None


class WaitView(Answer, frozen=True, kw_only=True):
    """An approval or a signal that an open run waits for."""

    kind: WaitKind  # approval or signal
    run_id: str
    workflow: str
    parent_run_id: str | None = None  # the run inside which it runs
    parent_workflow: str | None = None
    token_id: str  # name it in the answer, so that it answers this question
    name: str  # of the signal that answers it
    place: str  # the node, or the path of the operation
    title: str  # of an approval; of a signal, its name and place
    since_ms: int
    due_at_ms: int | None = None  # when it times out; null: never
    has_form: bool = False  # the answer has to fit a form, which the token has


class WaitPage(Answer, frozen=True, kw_only=True):
    items: list[WaitView]  # approvals first, then signals; the oldest of each first
    counts: dict[str, int]  # of all there are, by kind
    next_cursor: str | None = None


class FailureView(Answer, frozen=True, kw_only=True):
    """Failed tasks with the same error."""

    fingerprint: str
    name: str
    error: TaskError | None  # of the newest
    count: int
    queues: dict[str, int]
    first_failed_at_ms: int
    last_failed_at_ms: int
    task_ids: list[str]  # a few of the newest


class FailurePage(Answer, frozen=True, kw_only=True):
    items: list[FailureView]
    looked_at: int  # failed tasks, including those of groups that are not shown
    is_complete: bool  # false: there are smaller groups that are not shown
    next_cursor: str | None = None


class Redrive(Request, frozen=True, kw_only=True):
    dry_run: bool = False  # count, and change nothing


class SeriesView(Answer, frozen=True, kw_only=True):
    """One value per slot, oldest first; null: no measurement."""

    queue: str | None  # null: all together
    submitted: list[int | None]
    finished: list[int | None]
    failed: list[int | None]
    depth: list[int | None]
    running: list[int | None]
    oldest_age_ms: list[int | None]


class SeriesPage(Answer, frozen=True, kw_only=True):
    items: list[SeriesView]
    start_ms: int  # of the first slot
    slot_ms: int
    next_cursor: str | None = None


class StoreView(Answer, frozen=True, kw_only=True):
    kind: str
    place: str  # without a password, if there is one
    size_bytes: int | None = None
    disk_free_bytes: int | None = None  # null: not known here, as on PostgreSQL
    is_disk_low: bool = False  # less than the setting `store_disk_low_bytes`
    is_full: bool = False  # changes are refused with `store_full`


class SettingView(Answer, frozen=True, kw_only=True):
    name: str
    value: Any
    is_default: bool
    description: str = ""


class LimitView(Answer, frozen=True, kw_only=True):
    name: str
    value: int


class ReplicaView(Answer, frozen=True, kw_only=True):
    """A coordinator on this store; times are those of the store."""

    name: str
    url: str | None  # where it listens; null: nowhere
    host: str
    version: str
    started_at_ms: int
    seen_ms: int  # the time of its last heartbeat
    is_away: bool  # its last heartbeat is too old
    is_here: bool  # it is the coordinator that answers
    role: Role | None = None  # null: it is away


class SystemView(Answer, frozen=True, kw_only=True):
    version: str
    python: str
    platform: str
    started_at_ms: int
    now_ms: int
    store: StoreView
    figures: dict[str, float]
    settings: list[SettingView]
    limits: list[LimitView]
    replicas: list[ReplicaView]  # all that share the store, including this one
    role: Role = Role.LEADER  # of the coordinator that answers
    leader: LeaderView | None = None  # null: the store is not shared, or no leader is known
    warnings: list[str] = []
