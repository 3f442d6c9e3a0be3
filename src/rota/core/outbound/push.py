"""Queues whose tasks are pushed: where to, and what the answer of the server means for a task."""

from typing import Annotated, assert_never

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from msgspec.structs import replace

from rota.core import limits
from rota.core.events import Event
from rota.core.ids import to_text
from rota.core.replies import CommandBase, Done
from rota.core.tasks.model import TaskError, TaskRecord
from rota.core.tasks.values import check_value
from rota.errors import PushNotFound, RotaError, TooMany

HeaderText = Annotated[str, Meta(max_length=4_000)]

# The server says that it will never take this task: no further attempt is made. Any other refusal
# may be over after a deployment, and is tried again.
PERMANENT_STATUSES = frozenset({400, 410, 413, 422})
BUSY_STATUSES = frozenset({429, 503})  # with `Retry-After`
WORKER_PREFIX = "push:"  # of the id of the worker that pushes the tasks of a queue

_encode = msgspec.json.Encoder().encode


class PushSpec(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an admin has set."""

    url: Annotated[str, Meta(min_length=1, max_length=limits.MAX_OUTBOUND_URL_LENGTH)]
    timeout_ms: Annotated[int, Meta(ge=100, le=limits.MAX_PUSH_TIMEOUT_MS)] = 30_000
    concurrency: Annotated[int, Meta(ge=1, le=limits.MAX_PUSH_CONCURRENCY)] = 10
    headers: Annotated[dict[str, HeaderText], Meta(max_length=limits.MAX_PUSH_HEADERS)] = {}


class PushRecord(Struct, frozen=True, kw_only=True):
    queue: str
    spec: PushSpec
    secret: str
    changed_at_ms: int
    closed_until_ms: int = 0  # nothing is pushed before; the server has asked for that


# --- commands -----------------------------------------------------------------------------------


class PushShown(Struct, frozen=True, kw_only=True):
    record: PushRecord
    is_new: bool = False
    has_new_secret: bool = False


class PutPush(CommandBase[PushShown], frozen=True, kw_only=True, tag="PutPush"):
    """Push the tasks of a queue from now on, or change how."""

    queue: str
    spec: PushSpec
    secret: str | None = None  # None: the one that it has
    new_secret: str  # that it gets if it has none; drawn by the gateway


class DropPush(CommandBase[PushShown], frozen=True, kw_only=True, tag="DropPush"):
    """Leave the tasks of a queue to its workers."""

    queue: str


class ClosePush(CommandBase[Done], frozen=True, kw_only=True, tag="ClosePush"):
    """Push nothing until a moment, because the server is busy. Sent by the leader."""

    queue: str
    until_ms: int


PushCommand = PutPush | DropPush | ClosePush
PushReply = PushShown


class PushTable(Struct):
    """All queues that are pushed, as they are after what was decided."""

    records: dict[str, PushRecord]
    changed: dict[str, PushRecord | None] = {}  # None: dropped
    events: list[Event] = []


def reduce(table: PushTable, command: PushCommand, now_ms: int) -> PushShown | Done:
    match command:
        case PutPush():
            return _put(table, command, now_ms)
        case DropPush():
            before = table.records.pop(command.queue, None)
            if before is None:
                raise PushNotFound(command.queue)
            table.changed[command.queue] = None
            _tell(table, "queue-push-changed", command.queue, pushed=False)
            return PushShown(record=before)
        case ClosePush():
            before = table.records.get(command.queue)
            if before is None or before.closed_until_ms >= command.until_ms:
                return Done()
            _change(table, replace(before, closed_until_ms=command.until_ms))
            if before.closed_until_ms <= now_ms:  # not repeated while it is closed
                _tell(table, "queue-push-closed", command.queue, until_ms=command.until_ms)
            return Done(1)
        case _:
            assert_never(command)


def _put(table: PushTable, command: PutPush, now_ms: int) -> PushShown:
    before = table.records.get(command.queue)
    if before is None and len(table.records) >= limits.MAX_PUSHED_QUEUES:
        raise TooMany(
            f"{limits.MAX_PUSHED_QUEUES} queues already have a push target, which is the limit; "
            "remove one first",
            limit=limits.MAX_PUSHED_QUEUES,
        )
    secret = command.secret or (command.new_secret if before is None else before.secret)
    record = PushRecord(queue=command.queue, spec=command.spec, secret=secret, changed_at_ms=now_ms)
    _change(table, record)
    _tell(table, "queue-push-changed", command.queue, pushed=True)
    return PushShown(
        record=record,
        is_new=before is None,
        has_new_secret=before is None or secret != before.secret,
    )


def _change(table: PushTable, record: PushRecord) -> None:
    table.records[record.queue] = table.changed[record.queue] = record


def _tell(table: PushTable, kind: str, queue: str, **data: object) -> None:
    table.events.append(Event(type=kind, subject=queue, data=data))


# --- tasks --------------------------------------------------------------------------------------


class PushedTask(Struct, frozen=True, kw_only=True):
    """The body of the request that pushes a task."""

    task_id: str
    queue: str
    name: str
    payload: Raw
    attempt: int  # from 1
    max_attempts: int
    created_at_ms: int
    deadline_ms: int | None  # when the attempt runs out of time; null: by the request's own limit
    key: str | None
    headers: dict[str, str] | UnsetType = UNSET  # of the task, for traces; absent: none


class PushSucceeded(Struct, frozen=True):
    result: bytes  # JSON


class PushRefused(Struct, frozen=True):
    error: TaskError


class PushBusy(Struct, frozen=True):
    """The server takes no task for a while. The attempt does not count."""

    pause_ms: int


PushVerdict = PushSucceeded | PushRefused | PushBusy


def body_of_task(task: TaskRecord) -> bytes:
    return _encode(
        PushedTask(
            task_id=to_text(task.id),
            queue=task.lane.queue,
            name=task.lane.name,
            payload=Raw(task.payload),
            attempt=task.attempt,
            max_attempts=task.options.max_attempts,
            created_at_ms=task.created_at_ms,
            deadline_ms=task.deadline_ms,
            key=task.key,
            headers=task.options.headers or UNSET,
        )
    )


def verdict_of(
    status: int, body: bytes, *, is_cut: bool, problem: str | None, retry_after_ms: int | None
) -> PushVerdict:
    """What an answer means for the task that was pushed.

    Problem: what is wrong with the answer, in words; None for a success.
    """
    if problem is None:
        return _success(body, is_cut=is_cut)
    if status in BUSY_STATUSES and retry_after_ms is not None:
        return PushBusy(
            max(limits.MIN_PUSH_PAUSE_MS, min(retry_after_ms, limits.MAX_PUSH_PAUSE_MS))
        )
    retryable = status not in PERMANENT_STATUSES
    return PushRefused(TaskError(type=f"http_{status}", message=problem, retryable=retryable))


def _success(body: bytes, *, is_cut: bool) -> PushVerdict:
    """The result of a task that is done; a body that is not JSON is a text."""
    most = limits.MAX_PUSH_RESULT_BYTES
    if is_cut:
        # The work is done: another attempt would do it again.
        message = f"the answer is longer than {most} bytes"
        return PushRefused(TaskError(type="result_too_large", message=message, retryable=False))
    if not body.strip():
        return PushSucceeded(b"null")
    try:
        result = bytes(msgspec.json.decode(body, type=Raw))
    except (msgspec.DecodeError, RecursionError):
        return PushSucceeded(_encode(body.decode("utf-8", "replace")))
    try:
        check_value(Raw(result), "result", most_bytes=most)
    except RotaError as error:
        return PushRefused(TaskError(type=error.code, message=str(error), retryable=False))
    return PushSucceeded(result)
