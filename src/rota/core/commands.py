"""Every command a coordinator executes: the requests of callers, and the duties that time brings.

A command is a value. It states a request, never its effects: `rota.core.reducer` decides those.
"""

from functools import cache
from typing import Annotated, TypeVar, get_args

import msgspec
from msgspec import Meta, Raw, Struct
from msgspec.structs import force_setattr, replace

from rota.core import limits
from rota.core.access import AccessToken, Caller
from rota.core.dispatch.stuck_queues import NoteStuckQueues
from rota.core.events import PruneEvents
from rota.core.flows.commands import FlowCommand
from rota.core.ids import TaskId
from rota.core.kv import KvCommand, PutValue
from rota.core.locks import LockCommand
from rota.core.outbound.push import PushCommand
from rota.core.replicas import BeatReplica
from rota.core.replies import (
    Beat,
    Changed,
    CommandBase,
    Done,
    Granted,
    JobChanged,
    Outcomes,
    Registered,
    SubmissionStatuses,
    Submitted,
    Taken,
)
from rota.core.schedules.commands import ScheduleCommand
from rota.core.sessions import ClearNotifications
from rota.core.shards.commands import SaveCheckpoint, ShardCommand
from rota.core.tasks.keys import KeySpace
from rota.core.tasks.logs import LogLine
from rota.core.tasks.model import NewTask, TaskError, TaskState
from rota.core.webhooks.commands import WebhookCommand
from rota.core.workers.model import WorkerState
from rota.core.workflow.commands import ForkRun, RunCommand, SignalRun, StartRun
from rota.errors import Invalid, RotaError, UnknownCommand

Reported = TypeVar("Reported", bound=Struct)
TaskNumber = Annotated[TaskId, Meta(ge=0, le=2**63 - 1)]
FenceNumber = Annotated[int, Meta(ge=0, le=2**53)]
DelayMs = Annotated[int, Meta(ge=0, le=limits.MAX_DELAY_MS)]


class TaskFilter(Struct, frozen=True, kw_only=True):
    """Selects tasks. An empty field matches every task."""

    states: tuple[TaskState, ...] = ()
    queue: str | None = None
    name: str | None = None
    label: str | None = None
    acknowledged: bool | None = None  # of failed tasks; other tasks match None only


# --- tasks --------------------------------------------------------------------------------------


class SubmitTasks(CommandBase[Submitted | SubmissionStatuses], frozen=True, tag="SubmitTasks"):
    tasks: list[NewTask]
    session_id: str | None = None  # the session that gets their standing, and later their ends
    key_space: KeySpace = KeySpace.CALLER  # who chose the keys
    by: Caller | None = None  # None: the coordinator itself, which may use every limit


class CancelTasks(CommandBase[Changed], frozen=True, tag="CancelTasks"):
    ids: tuple[TaskId, ...]


class RetryTasks(CommandBase[Changed], frozen=True, tag="RetryTasks"):
    """Queue finished tasks again, or a waiting task at once. Sent by an operator."""

    ids: tuple[TaskId, ...]


class AcknowledgeTasks(
    CommandBase[Changed], frozen=True, kw_only=True, tag="AcknowledgeTasks", omit_defaults=True
):
    """Note that failed tasks need no attention any more, or that they do again. Keeps them."""

    ids: tuple[TaskId, ...]
    by: str  # the name of the caller's token
    reason: str = ""
    undo: bool = False


class PauseQueue(CommandBase[Done], frozen=True, tag="PauseQueue"):
    queue: str
    paused: bool


# --- workers ------------------------------------------------------------------------------------
#
# `by` is the caller that sent the command. It must own the worker that the command names. None is
# the coordinator itself, which may act for every worker.


class RegisterWorker(CommandBase[Registered], frozen=True, kw_only=True, tag="RegisterWorker"):
    worker_id: str
    node_id: str
    incarnation: int | None = None  # if it is current, the worker keeps it and its leases
    capabilities: tuple[str, ...] = ()
    max_concurrent_tasks: int = 1
    tasks: tuple[str, ...] | None = None
    queues: tuple[str, ...] | None = None
    heartbeat_interval_ms: int = 5_000
    group: str | None = None
    labels: dict[str, str] | list[str] | None = None
    by: Caller | None = None


class BeatWorker(CommandBase[Beat], frozen=True, kw_only=True, tag="Heartbeat"):
    worker_id: str
    incarnation: int
    running: tuple[TaskId, ...] | None = None  # None: the worker did not report it
    load: dict[str, float] | None = None
    by: Caller | None = None


class LeaseWork(CommandBase[Granted], frozen=True, kw_only=True, tag="LeaseWork"):
    worker_id: str
    incarnation: int
    most: int  # tasks at once
    wait_ms: int = 0  # how long the call waits for work when there is none
    by: Caller | None = None
    # All that the worker holds; its other leases are handed to it again. None: not reported.
    running: tuple[TaskId, ...] | None = None


class EpochClaim(Struct, frozen=True):
    """A worker's claim that it acts as the owner of a shard under an epoch."""

    service: str
    shard: int
    epoch: int


# Streaming workers send `Result`, `Progress` and `AttemptLines` as arrays in this order: add new
# fields at the end.
class Result(Struct, frozen=True, gc=False, array_like=True):
    """A worker's report on one task: it has finished, has failed, or is to run again later."""

    task_id: TaskNumber
    fence: FenceNumber
    ok: bool = True
    result: bytes | None = None  # JSON; null for a success without a result
    error: TaskError | None = None
    retry_in_ms: DelayMs | None = None
    snooze_ms: DelayMs | None = None
    claim: EpochClaim | None = None  # the result is refused when the epoch is old
    rate_limited: bool = False  # with `snooze_ms`: the rates of the task close for that time
    traceparent: str | None = None  # the span that has executed the task, for links


class ReportResults(CommandBase[Outcomes], frozen=True, kw_only=True, tag="ReportResults"):
    worker_id: str
    incarnation: int
    results: list[Result]
    by: Caller | None = None


class Progress(Struct, frozen=True, array_like=True):
    task_id: TaskNumber
    fence: FenceNumber
    progress: bytes | None = None  # JSON
    partial: bytes | None = None  # the partial result, JSON


class ReportProgress(CommandBase[Outcomes], frozen=True, kw_only=True, tag="ReportProgress"):
    worker_id: str
    incarnation: int | None  # None: the current one
    items: list[Progress]
    by: Caller | None = None


class AttemptLines(Struct, frozen=True, array_like=True):
    """Lines that the handler of one attempt has logged since the last report."""

    task_id: TaskNumber
    fence: FenceNumber
    lines: list[LogLine] = []
    # The number of the first line, counted over the lines sent of this attempt, from 1; 0: unknown.
    first: Annotated[int, Meta(ge=0, le=2**53)] = 0
    dropped: Annotated[int, Meta(ge=0, le=2**53)] = 0  # lines of the attempt not sent, in all


class ReportLogs(CommandBase[Outcomes], frozen=True, kw_only=True, tag="ReportLogs"):
    worker_id: str
    incarnation: int | None  # None: the current one
    items: list[AttemptLines]
    by: Caller | None = None


class ReturnLeases(CommandBase[Done], frozen=True, kw_only=True, tag="ReturnLeases"):
    """Return leases whose reply never reached the worker, as if they had never been granted."""

    worker_id: str
    incarnation: int
    leases: tuple[tuple[TaskId, int], ...]  # task and fence


class LeaveWorker(CommandBase[Done], frozen=True, kw_only=True, tag="LeaveWorker"):
    worker_id: str
    incarnation: int | None = None
    by: Caller | None = None


class SetWorkerState(CommandBase[Registered], frozen=True, kw_only=True, tag="SetWorkerState"):
    worker_id: str
    state: WorkerState


# --- jobs: tasks under their other name ---------------------------------------------------------


class StartJob(CommandBase[JobChanged], frozen=True, kw_only=True, tag="StartJob"):
    task_id: TaskId
    holder: str
    by: Caller | None = None


class CompleteJob(CommandBase[JobChanged], frozen=True, kw_only=True, tag="CompleteJob"):
    task_id: TaskId
    result: Raw
    by: Caller | None = None


class FailJob(CommandBase[JobChanged], frozen=True, kw_only=True, tag="FailJob"):
    task_id: TaskId
    error: TaskError
    by: Caller | None = None


# --- access -------------------------------------------------------------------------------------


class AddToken(CommandBase[Done], frozen=True, tag="AddToken"):
    token: AccessToken


class RevokeToken(CommandBase[Done], frozen=True, tag="RevokeToken"):
    token_id: str


# --- duties: one command for each ---------------------------------------------------------------


class QueueDueTasks(CommandBase[Done], frozen=True, tag="QueueDueTasks"):
    """Queue the scheduled tasks that are due."""


class ExpireAttempts(CommandBase[Done], frozen=True, tag="ExpireAttempts"):
    """End the attempts that are past their deadline, and the tasks that did not start in time."""


class SweepWorkers(CommandBase[Done], frozen=True, tag="SweepWorkers"):
    """Evict the workers that have been silent for too long."""


class TakeInbox(CommandBase[Taken], frozen=True, tag="TakeInbox"):
    """Accept the tasks that applications have committed to the inbox in their own transactions."""

    max_payload_bytes: int


class PruneHistory(CommandBase[Done], frozen=True, tag="PruneHistory"):
    """Delete the finished tasks that are past their retention time."""

    finished_before_ms: int


# --- charts -------------------------------------------------------------------------------------


class KeptMinute(Struct, frozen=True, kw_only=True):
    """The slots of one queue in one minute; the queue '' stands for all queues together."""

    started_at_ms: int
    queue: str
    slots: bytes  # JSON, in a form that only the charts know


class KeepMinutes(CommandBase[Done], frozen=True, kw_only=True, tag="KeepMinutes"):
    """Store minutes of the charts, and delete older ones."""

    minutes: tuple[KeptMinute, ...]
    forget_before_ms: int


TaskCommand = (
    SubmitTasks
    | CancelTasks
    | RetryTasks
    | AcknowledgeTasks
    | PauseQueue
    | RegisterWorker
    | BeatWorker
    | LeaseWork
    | ReportResults
    | ReportProgress
    | ReportLogs
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

HousekeepingCommand = PruneEvents | KeepMinutes | NoteStuckQueues
Command = (
    TaskCommand
    | RunCommand
    | ShardCommand
    | ScheduleCommand
    | KvCommand
    | LockCommand
    | ClearNotifications
    | HousekeepingCommand
    | BeatReplica
    | FlowCommand
    | WebhookCommand
    | PushCommand
)


# --- encoding -----------------------------------------------------------------------------------
#
# Coordinators send each other commands as MessagePack. JSON documents inside a command are sent as
# bytes: they stay as their callers wrote them, and JSON has numbers that MessagePack lacks.

_RAW_FIELDS: dict[type[Command], str] = {
    CompleteJob: "result",
    PutValue: "value",
    SaveCheckpoint: "value",
}
_DOCUMENT_FIELDS: dict[type[Command], str] = {
    StartRun: "input",
    ForkRun: "state",
    SignalRun: "payload",
}
_JSON_OBJECT = b"{"
_UNREADABLE = (ValueError, RecursionError)  # of bytes: not MessagePack, not UTF-8, or too deep
_encode = msgspec.msgpack.Encoder().encode
_decode_document = msgspec.msgpack.Decoder(bytes).decode


def encode_command(command: Command) -> bytes:
    """Encode a command for another coordinator: as MessagePack, or as JSON where that is needed.

    The error of a handler may have any number that JSON has. The first byte tells the two apart: a
    command in MessagePack never begins with `{`.
    """
    try:
        return _encode(_with_packed_documents(command))
    except OverflowError:
        return msgspec.json.encode(command)


def _with_packed_documents(command: Command) -> Command:
    kind = type(command)
    if isinstance(command, SubmitTasks):
        tasks = [replace(task, payload=_packed(task.payload)) for task in command.tasks]
        return replace(command, tasks=tasks)
    if isinstance(command, ReportResults) and Raw in {type(one.result) for one in command.results}:
        return replace(command, results=[_with_bytes(one, "result") for one in command.results])
    if isinstance(command, ReportProgress):
        items = [_with_bytes(one, "progress", "partial") for one in command.items]
        return replace(command, items=items)
    if kind in _RAW_FIELDS:
        field = _RAW_FIELDS[kind]
        return replace(command, **{field: _packed(getattr(command, field))})
    if kind in _DOCUMENT_FIELDS:
        field = _DOCUMENT_FIELDS[kind]
        return replace(command, **{field: msgspec.json.encode(getattr(command, field))})
    return command


def decode_command(encoded: bytes) -> Command:
    """Decode a command from `encode_command`.

    Raises `UnknownCommand` for an unknown kind, and `Invalid` for one that is not well formed.
    """
    try:
        if encoded[:1] == _JSON_OBJECT:
            return _json_decoder().decode(encoded)
        return _with_documents(_decoder().decode(encoded))
    except _UNREADABLE as error:
        raise _undecoded(encoded, error) from error


def _with_documents(command: Command) -> Command:
    kind = type(command)
    if isinstance(command, SubmitTasks):
        for task in command.tasks:  # they were made here, and nothing else has them yet
            force_setattr(task, "payload", _unpacked(task.payload))
        return command
    if kind in _RAW_FIELDS:
        field = _RAW_FIELDS[kind]
        return replace(command, **{field: _unpacked(getattr(command, field))})
    if kind in _DOCUMENT_FIELDS:
        field = _DOCUMENT_FIELDS[kind]
        return replace(command, **{field: msgspec.json.decode(getattr(command, field))})
    return command


class _Tagged(Struct):
    type: str


def _undecoded(encoded: bytes, error: Exception) -> RotaError:
    """The refusal of a command that cannot be decoded: of an unknown kind, or not well formed."""
    codec = msgspec.json if encoded[:1] == _JSON_OBJECT else msgspec.msgpack
    try:
        tag = codec.decode(encoded, type=_Tagged).type
    except _UNREADABLE:
        return Invalid(f"not a command: {error}")
    if tag not in {kind.__struct_config__.tag for kind in get_args(Command)}:
        return UnknownCommand(tag)
    return Invalid(f"the command {tag!r} is not well formed: {error}")


@cache
def _decoder() -> "msgspec.msgpack.Decoder[Command]":
    return msgspec.msgpack.Decoder(Command)


@cache
def _json_decoder() -> "msgspec.json.Decoder[Command]":
    return msgspec.json.Decoder(Command)


def _with_bytes(reported: Reported, *fields: str) -> Reported:
    """Return a report whose documents are bytes: a `Raw` would be taken for MessagePack."""
    raw = {name: value for name in fields if type(value := getattr(reported, name)) is Raw}
    return (
        replace(reported, **{name: bytes(value) for name, value in raw.items()})
        if raw
        else reported
    )


def _packed(document: Raw) -> Raw:
    """Encode a JSON document as a MessagePack byte string."""
    return Raw(_encode(bytes(document)))


def _unpacked(packed: Raw) -> Raw:
    return Raw(_decode_document(packed))
