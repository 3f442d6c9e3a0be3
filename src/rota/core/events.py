"""Public events: numbered in order, each about one noun.

A command is what a caller asks; an event is what came of it, for people and programs that watch. An
event is written in the transaction of the change that it reports, so neither is without the other.

Many tasks of one queue with the same outcome in one commit share one event, with a count. A failed
or retried task always has its own.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from rota.core import limits
from rota.core.access import ALLOWED, Action, Caller, may_see_worker
from rota.core.replies import CommandBase, Done
from rota.core.tasks.model import TaskError
from rota.core.workers.model import Health, HealthPolicy, WorkerRecord, health
from rota.errors import Invalid


class Event(Struct, frozen=True, kw_only=True):
    type: str  # such as task-failed
    subject: str  # the id or name of what it is about
    data: dict[str, Any] = {}


class LoggedEvent(Struct, frozen=True, kw_only=True):
    """An event in the log."""

    seq: int
    at_ms: int
    type: str
    subject: str
    data: dict[str, Any] = {}


class EventBatch(Struct, frozen=True):
    """The events of one commit, and their position in the log."""

    events: Sequence[Event]
    last_seq: int  # of these events; without any, of the log before the commit
    at_ms: int

    def logged(self) -> list[LoggedEvent]:
        first = self.last_seq - len(self.events) + 1
        return [
            LoggedEvent(
                seq=seq, at_ms=self.at_ms, type=one.type, subject=one.subject, data=one.data
            )
            for seq, one in enumerate(self.events, first)
        ]


class PruneEvents(CommandBase[Done], frozen=True, kw_only=True, tag="PruneNotices"):
    """Delete events past their retention, or beyond the limit, the oldest first."""

    before_ms: int
    most: int  # events that are kept


# --- kinds ----------------------------------------------------------------------------------------


class EventKind(Struct, frozen=True, kw_only=True):
    meaning: str
    subject: str  # what the subject names
    data: tuple[str, ...] = ()  # the fields; each is left out where it does not apply


_TASK = ("queue", "name", "worker_id", "attempt")
_MANY = ("count", "first_id", "last_id")  # of an event about many tasks
_TASK_OR_QUEUE = "task; queue when there is a `count`"
_FIRING = ("queue", "nominal_ms")
_RUN = ("workflow", "version", "parent_run_id")

# Every type with its meaning. The reference page is made from this table.
EVENT_KINDS: dict[str, EventKind] = {
    "worker-registered": EventKind(
        meaning="A worker arrived, or came back as another incarnation.",
        subject="worker",
        data=("incarnation", "node_id", "capabilities", "queues", "group"),
    ),
    "worker-unregistered": EventKind(
        meaning="A worker is gone: `left` in good order, or `unhealthy`, taken for dead.",
        subject="worker",
        data=("incarnation", "reason", "queues"),
    ),
    "worker-health": EventKind(
        meaning="A worker has another health than at the last look, which is taken every second.",
        subject="worker",
        data=("health", "was", "incarnation", "queues"),
    ),
    "worker-state": EventKind(
        meaning="An operator changed the state of a worker.",
        subject="worker",
        data=("state", "incarnation", "queues"),
    ),
    "task-submitted": EventKind(
        meaning="A task was accepted.",
        subject=_TASK_OR_QUEUE,
        data=("queue", "name", "due_at_ms", *_MANY),
    ),
    "task-started": EventKind(
        meaning="A task was leased to a worker.",
        subject=_TASK_OR_QUEUE,
        data=(*_TASK, "run_id", *_MANY),
    ),
    "task-succeeded": EventKind(
        meaning="A task finished with a result.", subject=_TASK_OR_QUEUE, data=(*_TASK, *_MANY)
    ),
    "task-failed": EventKind(
        meaning="A task has no attempt left, or is not worth another.",
        subject="task",
        data=(*_TASK, "error"),
    ),
    "task-retrying": EventKind(
        meaning="A task waits for another attempt. `reason` is how the last one ended, or "
        "`retried` when a caller asked for it. Those without an error may share one event.",
        subject=_TASK_OR_QUEUE,
        data=(*_TASK, "reason", "error", "due_at_ms", *_MANY),
    ),
    "task-cancelled": EventKind(
        meaning="A task was cancelled by a caller.",
        subject=_TASK_OR_QUEUE,
        data=(*_TASK, "error", *_MANY),
    ),
    "queue-paused": EventKind(meaning="A queue gives out no more work.", subject="queue"),
    "queue-resumed": EventKind(meaning="A queue gives out work again.", subject="queue"),
    "queue-full": EventKind(
        meaning="Submissions are refused, because a queue has `max_queued` tasks. At most once a "
        "minute for each queue.",
        subject="queue",
        data=("max_queued",),
    ),
    "queue-target-missed": EventKind(
        meaning="A task of a queue waits, or has waited, longer than its `target_wait_ms`.",
        subject="queue",
        data=("target_wait_ms",),
    ),
    "queue-target-met": EventKind(
        meaning="No task of a queue waits longer than its `target_wait_ms` any more.",
        subject="queue",
        data=("target_wait_ms", "missed_for_ms"),
    ),
    "queue-stuck": EventKind(
        meaning="Tasks of a queue cannot start for `stuck_after_ms`, and will not without a worker "
        "or an operator: see `reason` and `text`. A paused queue is not stuck.",
        subject="queue",
        data=("reason", "text", "name", "queued"),
    ),
    "queue-unstuck": EventKind(
        meaning="Tasks of a queue can start again, or none waits any more.",
        subject="queue",
        data=("stuck_for_ms",),
    ),
    "queue-push-changed": EventKind(
        meaning="An admin changed where the tasks of a queue are pushed to, or ended that.",
        subject="queue",
        data=("pushed",),
    ),
    "queue-push-closed": EventKind(
        meaning="Tasks of a queue are not pushed for a while, because the server is busy. Not "
        "repeated while it is closed.",
        subject="queue",
        data=("until_ms",),
    ),
    "limit-changed": EventKind(
        meaning="An operator set, pinned or unpinned a limit. Values that tasks declare are no "
        "events.",
        subject="limit",
        data=("kind", "limit", "was", "per_ms", "burst", "pinned"),
    ),
    "limit-deleted": EventKind(
        meaning="An operator unpinned a limit that no task names.", subject="limit"
    ),
    "limit-closed": EventKind(
        meaning="A rate lets nothing start for a while, because a handler was rate limited. Not "
        "repeated while it is closed.",
        subject="limit",
        data=("until_ms",),
    ),
    "workflow-put": EventKind(
        meaning="A workflow has a new version.", subject="workflow", data=("version",)
    ),
    "run-started": EventKind(meaning="A run began.", subject="run", data=_RUN),
    "run-completed": EventKind(meaning="A run ended with an output.", subject="run", data=_RUN),
    "run-failed": EventKind(
        meaning="A run ended with an error.", subject="run", data=(*_RUN, "error")
    ),
    "run-cancelled": EventKind(
        meaning="A run was cancelled by a caller.", subject="run", data=(*_RUN, "error")
    ),
    "run-timed-out": EventKind(
        meaning="A run ran past its time limit.", subject="run", data=(*_RUN, "error")
    ),
    "run-long": EventKind(
        meaning="A function has done so much that its run comes near the limit of operations.",
        subject="run",
        data=(*_RUN, "operations"),
    ),
    "run-approval-asked": EventKind(
        meaning="A run waits for a person: a signal named `approval` answers it.",
        subject="run",
        data=(*_RUN, "approval", "title"),
    ),
    "run-paused": EventKind(
        meaning="A run starts no more tokens. With an `error`, its function has diverged.",
        subject="run",
        data=(*_RUN, "error"),
    ),
    "run-resumed": EventKind(
        meaning="A run continues after a pause, or after a retry: see `was`.",
        subject="run",
        data=(*_RUN, "was"),
    ),
    "schedule-put": EventKind(
        meaning="A schedule was made or changed.", subject="schedule", data=("queue",)
    ),
    "schedule-deleted": EventKind(
        meaning="A schedule was deleted.", subject="schedule", data=("queue",)
    ),
    "schedule-fired": EventKind(
        meaning="A schedule submitted a task or started a run.",
        subject="schedule",
        data=(*_FIRING, "task_id", "run_id"),
    ),
    "schedule-queued": EventKind(
        meaning="A firing of a schedule waits for the end of an earlier one.",
        subject="schedule",
        data=_FIRING,
    ),
    "schedule-skipped": EventKind(
        meaning="Times of a schedule passed without a firing; `outcome` says why.",
        subject="schedule",
        data=(*_FIRING, "outcome", "count"),
    ),
    "schedule-refused": EventKind(
        meaning="What a schedule fires was refused, such as a run of an unknown workflow.",
        subject="schedule",
        data=(*_FIRING, "outcome", "count", "error"),
    ),
    "schedule-paused": EventKind(
        meaning="A schedule fires no more: a caller paused it, or it failed too often.",
        subject="schedule",
        data=("queue", "note", "by"),
    ),
    "schedule-resumed": EventKind(
        meaning="A schedule fires again.", subject="schedule", data=("queue",)
    ),
    "shards-rebalanced": EventKind(
        meaning="A service was rebalanced: how many shards move, and how many had no owner.",
        subject="service",
        data=("moved", "placed"),
    ),
    "member-joined": EventKind(
        meaning="A worker became a member of a service, or came back as another incarnation.",
        subject="service",
        data=("worker_id", "incarnation"),
    ),
    "member-left": EventKind(
        meaning="A worker is no longer a member of a service: it `left`, or was silent for a lease "
        "(`expired`), kept revoked shards for too long (`evicted`), or has too old a protocol "
        "(`refused`).",
        subject="service",
        data=("worker_id", "incarnation", "reason"),
    ),
    "token-created": EventKind(
        meaning="An access token was made. Shown to callers that manage tokens.",
        subject="token",
        data=("name", "scopes", "expires_at_ms"),
    ),
    "token-revoked": EventKind(
        meaning="An access token was revoked. Shown to callers that manage tokens.", subject="token"
    ),
    "webhook-put": EventKind(
        meaning="A webhook was made or changed. Shown to callers that manage webhooks.",
        subject="webhook",
    ),
    "webhook-deleted": EventKind(
        meaning="A webhook was deleted. Shown to callers that manage webhooks.", subject="webhook"
    ),
    "webhook-disabled": EventKind(
        meaning="A webhook delivers no more: every request failed for a day (`failing`), or its "
        "receiver answered 410 (`gone`). Shown to callers that manage webhooks.",
        subject="webhook",
        data=("reason", "failures"),
    ),
    "memory-set": EventKind(meaning="A value was kept.", subject="key", data=("version",)),
    "memory-deleted": EventKind(
        meaning="A value is gone: deleted, or past its time (`expired`).",
        subject="key",
        data=("version", "reason"),
    ),
    "lock-acquired": EventKind(
        meaning="A lock has another owner.", subject="lock", data=("owner", "fence")
    ),
    "lock-released": EventKind(
        meaning="A lock's owner released it, or its time ran out.",
        subject="lock",
        data=("owner", "fence"),
    ),
}


# --- filters --------------------------------------------------------------------------------------


class EventFilter(Struct, frozen=True, kw_only=True):
    """The events that a subscriber wants. Empty fields match everything."""

    types: frozenset[str] | None = None  # None: all
    subject: str | None = None
    prefix: str = ""  # of the subject


EVERYTHING = EventFilter()


def types_of(patterns: Iterable[str]) -> frozenset[str] | None:
    """The types that these patterns name: a whole type, or a prefix and a star; none: all."""
    found: set[str] = set()
    for pattern in patterns:
        if pattern.endswith("*"):
            named = {kind for kind in EVENT_KINDS if kind.startswith(pattern[:-1])}
        else:
            named = EVENT_KINDS.keys() & {pattern}
        if not named:
            # A subscription that can never match would look like silence.
            raise Invalid(f"there are no events of type {pattern!r}", field="type")
        found |= named
    return frozenset(found) or None


def matches(wanted: EventFilter, event: LoggedEvent) -> bool:
    if wanted.types is not None and event.type not in wanted.types:
        return False
    if wanted.subject is not None and event.subject != wanted.subject:
        return False
    return event.subject.startswith(wanted.prefix)


# --- access ---------------------------------------------------------------------------------------


def sees_everything(caller: Caller) -> bool:
    is_bound = caller.queues is not None or caller.services is not None
    return not is_bound and may_operate(caller)


def may_operate(caller: Caller) -> bool:
    return any(Action.OPERATE in ALLOWED[scope] for scope in caller.scopes)


def may_see(caller: Caller, event: LoggedEvent) -> bool:
    """Whether a caller may see an event: the same as it could read by a query."""
    match event.type.partition("-")[0]:
        case "worker":
            return may_see_worker(caller, event.data.get("queues"))
        case "task" | "schedule":
            return caller.queues is None or event.data.get("queue") in caller.queues
        case "queue":
            return caller.queues is None or event.subject in caller.queues
        case "shards" | "member":
            return caller.services is None or event.subject in caller.services
        case "token" | "webhook":
            return may_operate(caller)
        case _:
            # Runs, values and locks are shared by all queues, so a bound token sees none.
            return caller.queues is None


# --- contents -------------------------------------------------------------------------------------


def error_in_short(error: TaskError) -> dict[str, str]:
    """The beginning of an error; the task has it whole."""
    most = limits.MAX_EVENT_TEXT
    return {"type": error.type[:most], "message": error.message[:most]}


def health_now(
    worker: WorkerRecord, *, resumed_at_ms: int, now_ms: int, policy: HealthPolicy
) -> Health:
    """A worker's health; a pause of the coordinator, which read no heartbeats, does not count."""
    heard_ms = max(worker.last_heartbeat_ms, min(resumed_at_ms, now_ms))
    return health(age_ms=now_ms - heard_ms, interval_ms=worker.heartbeat_interval_ms, policy=policy)


def healths_now(
    workers: Mapping[str, WorkerRecord], *, resumed_at_ms: int, now_ms: int, policy: HealthPolicy
) -> dict[str, Health]:
    """The workers that are not healthy."""
    found: dict[str, Health] = {}
    for worker in workers.values():
        verdict = health_now(worker, resumed_at_ms=resumed_at_ms, now_ms=now_ms, policy=policy)
        if verdict is not Health.HEALTHY:
            found[worker.id] = verdict
    return found
