"""Replies between coordinators: each kind has a tag, beside its MessagePack.

Replies have no tags of their own, because callers know the type from their command. A reply with a
number that MessagePack lacks (JSON has them, and errors of handlers may carry them) travels as
JSON instead. The first byte tells the two apart: a struct in MessagePack never begins with `{`.
"""

from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from rota.core.decisions import AddTask
from rota.core.flows.commands import (
    BlockedLanes,
    FlowReply,
    LimitsRecounted,
    LimitState,
    LimitStates,
    TenantStates,
)
from rota.core.flows.queue_settings import QueueSettings
from rota.core.ids import TaskId
from rota.core.kv import KvEntry, KvReply
from rota.core.locks import LockAnswer
from rota.core.outbound.push import PushReply, PushShown
from rota.core.replies import (
    Beat,
    Changed,
    Done,
    Granted,
    JobChanged,
    Outcomes,
    Registered,
    Reply,
    SubmissionStatuses,
    Submitted,
    Taken,
)
from rota.core.schedules.commands import (
    FiringShown,
    ScheduleReply,
    ScheduleShown,
    SchedulesSynced,
)
from rota.core.shards.commands import ShardReply
from rota.core.shards.members import Assignment
from rota.core.tasks.model import NewTask, TaskRecord
from rota.core.webhooks.commands import WebhookReply, WebhookShown
from rota.core.workflow.commands import (
    ArtifactStaged,
    OperationsNoted,
    OperationsShown,
    ReplyShown,
    RunReply,
    RunShown,
    ScopeExtended,
    StreamShown,
    WorkflowKept,
)
from rota.engine.dispatch.lease_rows import GrantedRows
from rota.engine.replicas.link.errors import decode_hook, encode_hook

CommandReply = (
    Reply
    | RunReply
    | ShardReply
    | ScheduleReply
    | KvReply
    | LockAnswer
    | FlowReply
    | WebhookReply
    | PushReply
    | GrantedRows
)

JSON_OBJECT = b"{"
R = TypeVar("R")


class AddedTask(NamedTuple):
    """A task that was added; the follower has the rest of it in its own command."""

    id: TaskId
    created_at_ms: int
    due_at_ms: int | None
    key: str | None  # as it is stored


class CompactSubmitted(Struct, frozen=True):
    """`Submitted` without what the follower has sent itself."""

    items: list[AddedTask | TaskRecord]


# Tags are for good: coordinators of two versions exchange them.
REPLY_TAGS: dict[type[Struct], str] = {
    CompactSubmitted: "submitted",
    SubmissionStatuses: "statuses",
    Changed: "changed",
    Registered: "registered",
    Beat: "beat",
    Granted: "granted",
    GrantedRows: "granted_rows",
    Outcomes: "outcomes",
    Done: "done",
    Taken: "taken",
    JobChanged: "job",
    WorkflowKept: "workflow",
    RunShown: "run",
    ScopeExtended: "scope_extended",
    ArtifactStaged: "artifact",
    OperationsNoted: "operations",
    OperationsShown: "operation_log",
    StreamShown: "stream",
    ReplyShown: "reply",
    Assignment: "assignment",
    KvEntry: "value",
    LockAnswer: "lock",
    LimitState: "limit",
    LimitStates: "limits",
    QueueSettings: "queue_settings",
    TenantStates: "tenants",
    BlockedLanes: "blocked_lanes",
    LimitsRecounted: "limits_recounted",
    ScheduleShown: "schedule",
    FiringShown: "firing",
    SchedulesSynced: "schedules",
    WebhookShown: "webhook",
    PushShown: "push",
}

_encoder = msgspec.msgpack.Encoder(enc_hook=encode_hook)
_json_encoder = msgspec.json.Encoder(enc_hook=encode_hook)


class ReplyDecoder(Generic[R]):
    """Decodes one kind of reply."""

    def __init__(self, kind: type[R]) -> None:
        self.from_msgpack = msgspec.msgpack.Decoder(kind, dec_hook=decode_hook).decode
        self.from_json = msgspec.json.Decoder(kind, dec_hook=decode_hook).decode


_DECODERS: dict[str, ReplyDecoder[Any]] = {
    tag: ReplyDecoder(kind) for kind, tag in REPLY_TAGS.items()
}


def encode_reply(reply: Struct) -> bytes:
    """Encode a reply of a listed kind."""
    try:
        return _encoder.encode(reply)
    except OverflowError:
        return _json_encoder.encode(reply)


def decode_reply(tag: str, body: bytes) -> CommandReply | CompactSubmitted:
    """Decode a reply; a tag that is not known raises `KeyError`."""
    decoder = _DECODERS[tag]
    reply: CommandReply | CompactSubmitted
    reply = decoder.from_json(body) if body[:1] == JSON_OBJECT else decoder.from_msgpack(body)
    return reply


# --- submissions --------------------------------------------------------------------------------


def compact(reply: Submitted, tasks: Sequence[NewTask]) -> CompactSubmitted:
    """Leave out of a reply what its command had."""
    return CompactSubmitted(
        [
            item if isinstance(item, TaskRecord) else _added(item, task)
            for item, task in zip(reply.items, tasks, strict=True)
        ]
    )


def _added(item: AddTask, task: NewTask) -> AddedTask:
    kept = item.task
    # Only the key may differ from what was submitted: a prefix keeps the keys of sessions apart.
    assert kept is task or replace(kept, key=task.key) == task
    return AddedTask(item.id, item.created_at_ms, item.due_at_ms, kept.key)


def expand(reply: CompactSubmitted, tasks: Sequence[NewTask]) -> Submitted:
    """Complete a reply from the command that it answers."""
    return Submitted(
        [
            item if isinstance(item, TaskRecord) else _add_task(item, task)
            for item, task in zip(reply.items, tasks, strict=True)
        ]
    )


def _add_task(item: AddedTask, task: NewTask) -> AddTask:
    kept = task if item.key == task.key else replace(task, key=item.key)
    return AddTask(item.id, kept, item.created_at_ms, item.due_at_ms)
