"""What is the outside told of? Events with rising numbers, each about one noun.

What happens to a coordinator is an event too (`rota.core.events`), but that is what is asked of it;
a notice is what came of it, in words for people and programs that look on. Notices are written in
the transaction of what they tell of, so there is none without it, and none is missing.

Many tasks of one queue that fare alike in one commit are told of by one notice, with a count; what
failed or is tried again is always told of by itself.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from rota.core import limits
from rota.core.access import ALLOWED, Action, Caller
from rota.core.tasks import TaskError
from rota.core.workers import Health, HealthPolicy, Worker, health
from rota.errors import Invalid


class Notice(Struct, frozen=True, kw_only=True):
    type: str  # such as task-failed
    subject: str  # the id or name of what it is about
    data: dict[str, Any] = {}


class Noted(Struct, frozen=True, kw_only=True):
    """A notice as it stands in the log."""

    seq: int
    at_ms: int
    type: str
    subject: str
    data: dict[str, Any] = {}


class PruneNotices(Struct, frozen=True, kw_only=True, tag=True):
    """Notices past their keeping time, or too many, are forgotten; the oldest first."""

    before_ms: int
    most: int  # are kept, however young


# --- which there are ----------------------------------------------------------------------------


class NoticeKind(Struct, frozen=True, kw_only=True):
    meaning: str
    subject: str  # what the subject names
    data: tuple[str, ...] = ()  # the fields; those that do not apply are left out


_TASK = ("queue", "name", "worker_id", "attempt")
_MANY = ("count", "first_id", "last_id")  # of a notice that tells of many tasks
_TASK_OR_QUEUE = "task; queue when there is a `count`"
_RUN = ("workflow", "version", "parent_run_id")

# Every type, with what it means. The reference page is made from this table.
NOTICE_KINDS: dict[str, NoticeKind] = {
    "worker-registered": NoticeKind(
        meaning="A worker arrived, or came back as another incarnation.",
        subject="worker",
        data=("incarnation", "node_id", "capabilities", "queues", "group"),
    ),
    "worker-unregistered": NoticeKind(
        meaning="A worker is gone: `left` in good order, or `unhealthy`, taken for dead.",
        subject="worker",
        data=("incarnation", "reason"),
    ),
    "worker-health": NoticeKind(
        meaning="A worker has another health than at the last look, which is taken every second.",
        subject="worker",
        data=("health", "was", "incarnation"),
    ),
    "worker-state": NoticeKind(
        meaning="An operator wants something else of a worker.",
        subject="worker",
        data=("state", "incarnation"),
    ),
    "task-submitted": NoticeKind(
        meaning="A task was accepted.",
        subject=_TASK_OR_QUEUE,
        data=("queue", "name", "due_at_ms", *_MANY),
    ),
    "task-started": NoticeKind(
        meaning="A task was leased to a worker.",
        subject=_TASK_OR_QUEUE,
        data=(*_TASK, "run_id", *_MANY),
    ),
    "task-succeeded": NoticeKind(
        meaning="A task finished with a result.", subject=_TASK_OR_QUEUE, data=(*_TASK, *_MANY)
    ),
    "task-failed": NoticeKind(
        meaning="A task has no attempt left, or is not worth another.",
        subject="task",
        data=(*_TASK, "error"),
    ),
    "task-retrying": NoticeKind(
        meaning="A task waits for another attempt. `reason` is how the last one ended, or "
        "`retried` when somebody wanted it. Those without an error may be told of together.",
        subject=_TASK_OR_QUEUE,
        data=(*_TASK, "reason", "error", "due_at_ms", *_MANY),
    ),
    "task-cancelled": NoticeKind(
        meaning="A task was ended by somebody's wish.",
        subject=_TASK_OR_QUEUE,
        data=(*_TASK, "error", *_MANY),
    ),
    "queue-paused": NoticeKind(meaning="A queue gives out no more work.", subject="queue"),
    "queue-resumed": NoticeKind(meaning="A queue gives out work again.", subject="queue"),
    "workflow-put": NoticeKind(
        meaning="A workflow has a new version.", subject="workflow", data=("version",)
    ),
    "run-started": NoticeKind(meaning="A run began.", subject="run", data=_RUN),
    "run-completed": NoticeKind(meaning="A run ended with an output.", subject="run", data=_RUN),
    "run-failed": NoticeKind(
        meaning="A run ended with an error.", subject="run", data=(*_RUN, "error")
    ),
    "run-cancelled": NoticeKind(
        meaning="A run was ended by somebody's wish.", subject="run", data=(*_RUN, "error")
    ),
    "run-timed-out": NoticeKind(
        meaning="A run took longer than it may.", subject="run", data=(*_RUN, "error")
    ),
    "run-paused": NoticeKind(meaning="A run begins nothing new.", subject="run", data=_RUN),
    "run-resumed": NoticeKind(
        meaning="A run goes on, after a pause or, retried, after it failed: see `was`.",
        subject="run",
        data=(*_RUN, "was"),
    ),
    "shards-rebalanced": NoticeKind(
        meaning="Shards of a service shall be somebody else's: so many are to move, so many were "
        "nobody's.",
        subject="service",
        data=("moved", "placed"),
    ),
    "member-joined": NoticeKind(
        meaning="A worker became a member of a service, or came back as another incarnation.",
        subject="service",
        data=("worker_id", "incarnation"),
    ),
    "member-left": NoticeKind(
        meaning="A worker is no longer a member of a service: it `left`, or was silent for a lease "
        "(`expired`), would not give up what it should (`evicted`), or speaks too old a protocol "
        "(`refused`).",
        subject="service",
        data=("worker_id", "incarnation", "reason"),
    ),
    "token-created": NoticeKind(
        meaning="An access token was made. Shown to those who manage them.",
        subject="token",
        data=("name", "scopes", "expires_at_ms"),
    ),
    "token-revoked": NoticeKind(
        meaning="An access token was revoked. Shown to those who manage them.", subject="token"
    ),
    "memory-set": NoticeKind(meaning="A value was kept.", subject="key", data=("version",)),
    "memory-deleted": NoticeKind(
        meaning="A value is gone: deleted, or past its time (`expired`).",
        subject="key",
        data=("version", "reason"),
    ),
    "lock-acquired": NoticeKind(
        meaning="A lock has another owner.", subject="lock", data=("owner", "fence")
    ),
    "lock-released": NoticeKind(
        meaning="A lock's owner has let go of it, or its time ran out.",
        subject="lock",
        data=("owner", "fence"),
    ),
}


# --- who wants which ----------------------------------------------------------------------------


class NoticeFilter(Struct, frozen=True, kw_only=True):
    """Which notices are meant. Empty fields let everything through."""

    types: frozenset[str] | None = None  # None: all
    subject: str | None = None
    prefix: str = ""  # of the subject


EVERYTHING = NoticeFilter()


def types_of(patterns: Iterable[str]) -> frozenset[str] | None:
    """The types that these name, each by itself or by its beginning and a star; none: all."""
    found: set[str] = set()
    for pattern in patterns:
        if pattern.endswith("*"):
            named = {kind for kind in NOTICE_KINDS if kind.startswith(pattern[:-1])}
        else:
            named = NOTICE_KINDS.keys() & {pattern}
        if not named:
            # Waiting for what can never come would look like silence.
            raise Invalid(f"there are no events of type {pattern!r}", field="type")
        found |= named
    return frozenset(found) or None


def matches(wanted: NoticeFilter, noted: Noted) -> bool:
    if wanted.types is not None and noted.type not in wanted.types:
        return False
    if wanted.subject is not None and noted.subject != wanted.subject:
        return False
    return noted.subject.startswith(wanted.prefix)


# --- who may see which --------------------------------------------------------------------------


def sees_everything(caller: Caller) -> bool:
    is_bound = caller.queues is not None or caller.services is not None
    return not is_bound and may_operate(caller)


def may_operate(caller: Caller) -> bool:
    return any(Action.OPERATE in ALLOWED[scope] for scope in caller.scopes)


def may_see(caller: Caller, noted: Noted) -> bool:
    """Whether this is told to a caller that may look: as much as it could find out by asking."""
    match noted.type.partition("-")[0]:
        case "worker":
            return True
        case "task":
            return caller.queues is None or noted.data.get("queue") in caller.queues
        case "queue":
            return caller.queues is None or noted.subject in caller.queues
        case "shards" | "member":
            return caller.services is None or noted.subject in caller.services
        case "token":
            return may_operate(caller)
        case _:
            # What works across queues is nothing for a token that is bound to some.
            return caller.queues is None


# --- what they say ------------------------------------------------------------------------------


def error_in_short(error: TaskError) -> dict[str, str]:
    """As much of an error as helps to see what went wrong; the task has it whole."""
    most = limits.MAX_EVENT_TEXT
    return {"type": error.type[:most], "message": error.message[:most]}


def health_now(worker: Worker, *, resumed_at_ms: int, now_ms: int, policy: HealthPolicy) -> Health:
    """A worker's health as far as it can be known: while we were away nobody could be heard."""
    heard_ms = max(worker.last_heartbeat_ms, min(resumed_at_ms, now_ms))
    return health(age_ms=now_ms - heard_ms, interval_ms=worker.heartbeat_interval_ms, policy=policy)


def healths_now(
    workers: Mapping[str, Worker], *, resumed_at_ms: int, now_ms: int, policy: HealthPolicy
) -> dict[str, Health]:
    """The workers that are not healthy."""
    found: dict[str, Health] = {}
    for worker in workers.values():
        verdict = health_now(worker, resumed_at_ms=resumed_at_ms, now_ms=now_ms, policy=policy)
        if verdict is not Health.HEALTHY:
            found[worker.id] = verdict
    return found
