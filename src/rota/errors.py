"""The errors that Rota raises on purpose.

RotaError
├── Invalid               400  the request can never succeed as written; names the field
│   └── Malformed              the body is not JSON
├── Unauthorized          401  no token, or an unknown one
├── Forbidden             403  the token does not allow this
├── NotFound              404  no such task, worker, queue, workflow, run or service
│   ├── TaskNotFound           never accepted, or finished longer ago than history is kept
│   ├── WorkerNotFound         not registered, or removed after its lease expired: register again
│   ├── QueueNotFound          no task was ever submitted to it
│   ├── WorkflowNotFound       no such name, or no such version
│   ├── RunNotFound            never started, or ended longer ago than history is kept
│   ├── NodeNotFound           the workflow has no node of that name
│   ├── ScopeNotFound          the run has not opened a scope of that number
│   ├── ArtifactNotFound       never attached, or its attempt did not succeed
│   ├── LimitNotFound          no task has named the limit lately, and no operator has set it
│   ├── KeyNotFound            the key has no value, or its value has expired
│   ├── ServiceNotFound        no worker ever registered for it, and no operator created it
│   ├── ScheduleNotFound       never created, or deleted
│   ├── WebhookNotFound        never created, or deleted
│   ├── PushNotFound           the queue has no push target
│   ├── MemberNotFound         not a member of the service, or not any more
│   └── TokenNotFound          never created, or revoked already
├── MethodNotAllowed      405  the path has no such method
├── RequestTimeout        408  the head or the body of a request did not arrive in time
├── Conflict              409  the request is valid, but the state has changed
│   ├── StaleLease             the lease is no longer the caller's
│   ├── StaleIncarnation       the worker has registered again since
│   ├── StaleEpoch             the shard has been granted again since, or has no owner
│   ├── IllegalState           the state of the task, run or worker does not allow this
│   ├── KeyBusy                as many tasks of the key as its limit run or wait already
│   ├── LimitKindConflict      the key is a limit of the other kind
│   ├── NothingToApprove       no token of the run waits for this approval
│   ├── ResultConflict         already finished, with another result
│   ├── UniqueConflict         another task holds the key by which this one would be unique
│   ├── VersionConflict        the value of a key has changed since
│   └── LockLost               the lock was released, or it expired
├── InvalidWorkflow       422  the definition has problems, all of them listed
├── TooLarge              413  a body or payload is over its limit
├── TargetTooLong         414  the path and query of a request are over their limit
├── TooMany               429  one caller asks for more than its share
│   └── QueueFull              the queue has as many tasks as it may have
├── HeadTooLarge          431  the header fields of a request are over their limit
├── Overloaded            503  too many requests wait for the coordinator; try again later
├── Unavailable           503  the coordinator is starting, stopping or cut off
│   ├── NotLeader              another coordinator writes to the store
│   ├── StoreFull              the disk of the store is full; free space on it
│   ├── OutcomeUnknown         the change may have been made; the same key makes it once
│   └── UnknownCommand         the leading coordinator is older, and does not know the command
├── Internal              500  a bug in Rota; the log of the coordinator has the reason
└── StoreError                 the database cannot be used (never answered to a client)
    ├── StoreDiskFull          the disk has no room to open it; free space on it
    ├── StoreLocked            another coordinator uses the file
    └── StoreTooNew            the file was written by a newer Rota

`code` is what clients match on, `status` is the HTTP status, `facts` are fields of the answer.
"""

import difflib
from collections.abc import Iterable
from functools import lru_cache
from itertools import islice
from typing import Any, ClassVar


class RotaError(Exception):
    """Base of all errors."""

    code: ClassVar[str] = "error"
    status: ClassVar[int] = 500
    title: ClassVar[str] = "The request failed"

    def __init__(self, detail: str, **facts: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.facts = facts


class Invalid(RotaError):  # noqa: N818 - read at the raise site: `raise Invalid(...)`
    code = "invalid"
    status = 400
    title = "The request is not valid"


class Malformed(Invalid):
    code = "malformed"
    title = "The body is not valid JSON"


class Unauthorized(RotaError):  # noqa: N818
    code = "unauthorized"
    status = 401
    title = "A token is needed"


class Forbidden(RotaError):  # noqa: N818
    code = "forbidden"
    status = 403
    title = "The token does not allow this"


class NotFound(RotaError):  # noqa: N818
    code = "not_found"
    status = 404
    title = "Not found"


class TaskNotFound(NotFound):
    code = "task_not_found"

    def __init__(self, task_id: str) -> None:
        super().__init__(
            f"task {task_id!r} not found; check its id, and for how long finished tasks are kept",
            task_id=task_id,
        )


class WorkerNotFound(NotFound):
    code = "worker_not_found"

    def __init__(self, worker_id: str) -> None:
        super().__init__(f"worker {worker_id!r} not found; register again", worker_id=worker_id)


class QueueNotFound(NotFound):
    code = "queue_not_found"

    def __init__(self, queue: str) -> None:
        super().__init__(
            f"queue {queue!r} not found; a queue exists once a task was submitted to it",
            queue=queue,
        )


class TokenNotFound(NotFound):
    code = "token_not_found"

    def __init__(self, token_id: str) -> None:
        super().__init__(
            f"token {token_id!r} not found; it may be revoked already", token_id=token_id
        )


class MethodNotAllowed(RotaError):  # noqa: N818
    code = "method_not_allowed"
    status = 405
    title = "The path has no such method"


class RequestTimeout(RotaError):  # noqa: N818
    """A request that was not sent in time; the connection is closed."""

    code = "request_timeout"
    status = 408
    title = "The request did not arrive in time"


class WorkflowNotFound(NotFound):
    code = "workflow_not_found"

    def __init__(
        self, name: str, version: int | None = None, *, is_tried_out: bool = False
    ) -> None:
        """`is_tried_out`: the workflow has versions, of which none is the current one."""
        which = f"workflow {name!r}" if version is None else f"version {version} of {name!r}"
        text = f"{which} not found; deploy it with `rota workflows put FILE`"
        if is_tried_out:
            text = (
                f"no version of workflow {name!r} is current; deploy one with `rota workflows put "
                "FILE`, or choose one with `rota workflows use NAME VERSION`"
            )
        super().__init__(text, workflow=name, version=version)


class RunNotFound(NotFound):
    code = "run_not_found"

    def __init__(self, run_id: str) -> None:
        super().__init__(
            f"run {run_id!r} not found; check its id, and for how long ended runs are kept",
            run_id=run_id,
        )


class NodeNotFound(NotFound):
    code = "node_not_found"

    def __init__(self, node: str) -> None:
        super().__init__(
            f"node {node!r} not found in the workflow; `rota workflows show NAME` lists its nodes",
            node=node,
        )


class ScopeNotFound(NotFound):
    code = "scope_not_found"

    def __init__(self, run_id: str, scope: int) -> None:
        super().__init__(
            f"scope {scope} not found in run {run_id!r}; `rota runs scopes {run_id}` lists them",
            run_id=run_id,
            scope=scope,
        )


class KeyNotFound(NotFound):
    code = "key_not_found"

    def __init__(self, key: str) -> None:
        super().__init__(
            f"key {key!r} not found; it has no value, or its value has expired", key=key
        )


class LimitNotFound(NotFound):
    code = "limit_not_found"

    def __init__(self, key: str) -> None:
        super().__init__(
            f"limit {key!r} not found; it exists while tasks name it, or once an operator sets it",
            key=key,
        )


class ArtifactNotFound(NotFound):
    code = "artifact_not_found"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"artifact {name!r} not found; only successful attempts keep theirs", artifact=name
        )


class ServiceNotFound(NotFound):
    code = "service_not_found"

    def __init__(self, service: str) -> None:
        super().__init__(
            f"service {service!r} not found; it exists once a worker registers for it",
            service=service,
        )


class ScheduleNotFound(NotFound):
    code = "schedule_not_found"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"schedule {name!r} not found; `rota schedules ls` lists them", schedule=name
        )


class WebhookNotFound(NotFound):
    code = "webhook_not_found"

    def __init__(self, name: str) -> None:
        super().__init__(f"webhook {name!r} not found; `rota webhooks ls` lists them", webhook=name)


class PushNotFound(NotFound):
    code = "push_not_found"

    def __init__(self, queue: str) -> None:
        super().__init__(
            f"queue {queue!r} has no push target; set one with `rota queues push QUEUE --to URL`",
            queue=queue,
        )


class MemberNotFound(NotFound):
    code = "member_not_found"

    def __init__(self, service: str, worker_id: str) -> None:
        super().__init__(
            f"member {worker_id!r} not found in service {service!r}; register again",
            service=service,
            worker_id=worker_id,
        )


class InvalidWorkflow(RotaError):  # noqa: N818
    """A definition that cannot be run; `problems` lists all its problems."""

    code = "invalid_workflow"
    status = 422
    title = "The workflow is not valid"


class Conflict(RotaError):  # noqa: N818
    code = "conflict"
    status = 409
    title = "The state has changed"


class StaleLease(Conflict):
    """A write by a worker whose lease of the task has ended or passed to another."""

    code = "stale_lease"

    def __init__(self, task_id: str, detail: str | None = None) -> None:
        text = detail or (f"the lease of task {task_id!r} is no longer yours; stop the attempt")
        super().__init__(text, task_id=task_id)


class StaleIncarnation(Conflict):
    """A call by a worker process that has been replaced under the same id."""

    code = "stale_incarnation"

    def __init__(self, worker_id: str, *, given: int, current: int) -> None:
        super().__init__(
            f"incarnation {given} of worker {worker_id!r} is not the current one: the id has been "
            "registered again; give each worker process its own id",
            worker_id=worker_id,
            given=given,
            current=current,
        )


class StaleEpoch(Conflict):
    """An effect of a member that no longer owns the shard."""

    code = "stale_epoch"

    def __init__(self, service: str, shard: int, *, epoch: int) -> None:
        super().__init__(
            f"shard {shard} of service {service!r} has no owner under epoch {epoch}; stop using it",
            service=service,
            shard=shard,
            epoch=epoch,
        )


class IllegalState(Conflict):
    code = "illegal_state"


class KeyBusy(Conflict):
    code = "key_busy"
    title = "The key is in use"


class LimitKindConflict(Conflict):
    code = "limit_kind_conflict"
    title = "The key is a limit of the other kind"


class NothingToApprove(Conflict):
    """An approval or a rejection of something that a run does not ask for, or asks no longer."""

    code = "nothing_to_approve"

    def __init__(self, run_id: str, name: str, token_id: str | None = None) -> None:
        who = f"no token of run {run_id!r} waits"
        if token_id is not None:
            who = f"token {token_id!r} does not wait, or no longer,"
        super().__init__(
            f"{who} for approval {name!r}; see `rota runs tokens {run_id}`",
            run_id=run_id,
            name=name,
        )


class ResultConflict(Conflict):
    code = "result_conflict"


class UniqueConflict(Conflict):
    """Another task of the queue holds the key by which a new one would be unique."""

    code = "unique_conflict"

    def __init__(self, task_id: str, state: str) -> None:
        super().__init__(
            f"task {task_id!r}, which is {state}, already holds the unique key of this one",
            task_id=task_id,
            state=state,
        )


class VersionConflict(Conflict):
    """A value has changed since the caller read it."""

    code = "version_conflict"

    def __init__(self, key: str, *, wanted: int, current: int) -> None:
        super().__init__(
            f"key {key!r} has version {current}, not {wanted}; read it again, and retry",
            key=key,
            wanted=wanted,
            current=current,
        )


class LockLost(Conflict):
    """A call of an owner that no longer holds the lock."""

    code = "lock_lost"

    def __init__(self, lock: str, owner: str, *, fence: int) -> None:
        super().__init__(
            f"lock {lock!r} is not held by {owner!r} under fence {fence}; acquire it again",
            lock=lock,
            owner=owner,
            fence=fence,
        )


class TooLarge(RotaError):  # noqa: N818
    code = "too_large"
    status = 413
    title = "Too large"


class TargetTooLong(RotaError):  # noqa: N818
    """A request target over its limit; the connection is closed."""

    code = "target_too_long"
    status = 414
    title = "The request target is too long"


class TooMany(RotaError):  # noqa: N818
    code = "too_many"
    status = 429
    title = "Too many"


class QueueFull(TooMany):
    code = "queue_full"
    title = "The queue is full"


class HeadTooLarge(RotaError):  # noqa: N818
    """A request head, or the framing of a chunked body, over its limit.

    The connection is closed.
    """

    code = "head_too_large"
    status = 431
    title = "The request head is too large"


class Overloaded(RotaError):  # noqa: N818
    code = "overloaded"
    status = 503
    title = "The coordinator is overloaded"

    def __init__(self, detail: str, *, retry_after_s: int = 1, **facts: Any) -> None:
        super().__init__(detail, retry_after_s=retry_after_s, **facts)
        self.retry_after_s = retry_after_s


class Unavailable(RotaError):  # noqa: N818
    code = "unavailable"
    status = 503
    title = "The coordinator cannot answer now"

    def __init__(self, detail: str, *, retry_after_s: int = 1, **facts: Any) -> None:
        super().__init__(detail, retry_after_s=retry_after_s, **facts)
        self.retry_after_s = retry_after_s


FULL_STORE_RETRY_S = 10  # a person has to free space; calls in between are wasted


class NotLeader(Unavailable):
    """A write by a coordinator that does not lead, or not any more."""

    code = "not_leader"

    def __init__(self) -> None:
        super().__init__(
            "this coordinator is not the leader of the store; nothing was changed; try again"
        )


class StoreFull(Unavailable):
    """A change that was not made, because the disk of the store is full."""

    code = "store_full"
    title = "The disk of the store is full"

    def __init__(self) -> None:
        super().__init__(
            "the disk of the store is full; nothing was changed, and no change can be made; "
            "reading goes on; free space on that disk, then try again: a restart is not needed",
            retry_after_s=FULL_STORE_RETRY_S,
        )


class OutcomeUnknown(Unavailable):
    """A change that may have been made: the store or the leading coordinator was lost meanwhile."""

    code = "outcome_unknown"
    title = "It is not known whether the change was made"

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"{reason}, and it is not known whether the change was made; repeat it with the same "
            "key, and it takes effect once"
        )


class UnknownCommand(Unavailable):
    """A command that a newer coordinator has forwarded to an older one."""

    code = "unknown_command"

    def __init__(self, command: str) -> None:
        super().__init__(
            f"the leading coordinator does not know the command {command!r}; upgrade it",
            command=command,
        )


class Internal(RotaError):  # noqa: N818
    code = "internal"
    status = 500
    title = "The coordinator failed"


class StoreError(RotaError):
    code = "store"
    title = "The store cannot be used"


class StoreDiskFull(StoreError):  # noqa: N818
    """A store that cannot be opened, because its disk is full. No coordinator runs on it."""

    code = "store_disk_full"

    def __init__(self, name: str, *, needed: str = "space") -> None:
        super().__init__(
            f"the disk of the store {name} is full: the store cannot be opened, and no coordinator "
            f"starts on it; what it holds is kept; free {needed} on that disk, then start again"
        )


class StoreLocked(StoreError):  # noqa: N818
    code = "store_locked"


class StoreTooNew(StoreError):  # noqa: N818
    code = "store_too_new"


# --- names that were probably meant --------------------------------------------------------------

MAX_COMPARED = 200  # names; comparing more would cost more than a suggestion is worth


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of an error's text: `; did you mean 'add'?`, or nothing if no name is near."""
    found = nearest(name, known)
    return "" if found is None else f"; did you mean {found!r}?"


def nearest(name: str, known: Iterable[str]) -> str | None:
    return _nearest(name, tuple(islice(known, MAX_COMPARED)))


@lru_cache(maxsize=1_024)  # the same question is asked with each refresh of a page
def _nearest(name: str, known: tuple[str, ...]) -> str | None:
    lowered: dict[str, str] = {}
    for one in known:
        lowered.setdefault(one.lower(), one)
    found = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.6)
    return lowered[found[0]] if found else None
