"""Messages of a WebSocket session: one envelope both ways, in JSON or MessagePack.

Both sides are lenient in what they read: an envelope may lack everything but its address, and
unknown fields are ignored. A payload is decoded only by the handler of its message.
"""

from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Raw, Struct

from rota.core import limits
from rota.core.flows.model import Concurrencies, FairKey, Rates
from rota.core.tasks.model import Labels, Name, TaskError
from rota.core.tasks.unique import Debounce, Unique
from rota.messages.base import Fence, Value

RENAMED = {"sender": "from", "reply_to": "replyTo", "task_id": "taskId"}
UI = "client:ui"
MSGPACK = "rota.v1.msgpack"  # the subprotocol that packs the same envelopes
MOST_ENVELOPES = 10_000  # in one frame

Names = Annotated[list[Name], Meta(max_length=limits.MAX_WORKER_NAMES)]


# --- the envelope -------------------------------------------------------------------------------


class Envelope(Struct, frozen=True, kw_only=True, rename=RENAMED):
    """A message of a client."""

    to: str | None = None
    sender: str | None = None
    type: str | None = None
    payload: Raw = Raw()  # empty: it was left out
    id: Raw = Raw()  # any value; given back as it came
    timestamp: Raw = Raw()
    reply_to: Raw = Raw()
    task_id: str | None = None  # beside the payload, in some messages


class Outgoing(Struct, frozen=True, kw_only=True, rename=RENAMED, omit_defaults=True):
    """A message to a client."""

    type: str
    to: str | None = None
    sender: str | None = None
    payload: Any = None
    id: Any = None
    timestamp: int | None = None  # milliseconds
    reply_to: Any = None
    task_id: str | None = None
    fence: int | None = None
    name: str | None = None  # of a task
    queue: str | None = None
    attempt: int | None = None


def is_given(value: Raw) -> bool:
    return bytes(value) not in (b"", b"null", b"\xc0")  # left out, or null in either packing


def decode_json(data: bytes | str) -> list[Envelope | None]:
    """The envelopes of a frame: one, or an array of them; None for each that is not valid."""
    return _decoded(_json_envelope, _json_items, data)


def decode_msgpack(data: bytes) -> list[Envelope | None]:
    return _decoded(_packed_envelope, _packed_items, data)


def _decoded(
    one: Callable[[Any], Envelope], many: Callable[[Any], list[Raw]], data: bytes | str
) -> list[Envelope | None]:
    envelope = _try(one, data)
    if envelope is not None:
        return [envelope]
    items = _try(many, data)
    if items is None or len(items) > MOST_ENVELOPES:
        return [None]
    return [_try(one, item) for item in items]


def _try(decode: Callable[[Any], Any], data: object) -> Any:
    try:
        return decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


_json_envelope = msgspec.json.Decoder(Envelope).decode
_json_items = msgspec.json.Decoder(list[Raw]).decode
_packed_envelope = msgspec.msgpack.Decoder(Envelope).decode
_packed_items = msgspec.msgpack.Decoder(list[Raw]).decode


# --- payloads of clients ------------------------------------------------------------------------


class ClientMessage(Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of payloads that clients send."""


class NewWorker(ClientMessage, frozen=True, kw_only=True):
    worker_id: Name | None = None  # absent: the envelope's `from`
    # Tasks that it runs at once.
    max_concurrent_tasks: Annotated[int, Meta(ge=1, le=limits.MAX_CONCURRENT_TASKS)] = 1
    # What it has, for tasks that require it.
    capabilities: Annotated[list[Name], Meta(max_length=limits.MAX_CAPABILITIES)] = []
    tasks: Names | None = None  # names of tasks it can run; absent: any
    node_id: Name = "websocket"  # the machine or process it runs on, for people
    group: Name | None = None  # for filters
    labels: Labels | None = None
    # Tasks it still runs after a reconnect; others that it held go to other workers at once.
    holding: Annotated[list[str], Meta(max_length=limits.MAX_CONCURRENT_TASKS)] | None = None


class SubmittedTask(ClientMessage, frozen=True, kw_only=True):
    task_id: Name  # chosen by the client; the same id is the same task
    name: Name = "task"  # workers may choose by it
    payload: Value = None  # any JSON
    # Higher first; within one priority, the oldest first.
    priority: Annotated[int, Meta(ge=-limits.MAX_PRIORITY, le=limits.MAX_PRIORITY)] = 0
    # Capabilities that a worker must have, all of them.
    requires: Annotated[list[Name], Meta(max_length=limits.MAX_REQUIRES)] = []
    concurrency: Concurrencies | None = None  # limits, as those of a task over HTTP
    rate: Rates | None = None
    fair_key: FairKey | None = None  # the tenant of the task
    # Fails when not started by then, or is discarded.
    start_within_ms: Annotated[int, Meta(ge=1, le=limits.MAX_DELAY_MS)] | None = None
    on_expiry: Literal["fail", "discard"] = "fail"
    # As in a new task over HTTP; the answer names the task that holds the key.
    unique: Unique | None = None
    debounce: Debounce | None = None


class PinnedTask(ClientMessage, frozen=True, kw_only=True):
    task_id: Name | None = None  # absent: the envelope's `taskId`
    name: Name = "task"  # workers may choose by it
    payload: Value = None  # any JSON


class WorkerReference(ClientMessage, frozen=True, kw_only=True):
    worker_id: Name | None = None  # absent: the envelope's `from`


class TaskReference(WorkerReference, frozen=True, kw_only=True):
    task_id: Name | None = None  # absent: the envelope's `taskId`
    fence: Fence | None = None  # of the lease; absent: the current one


class CompletedTask(TaskReference, frozen=True, kw_only=True):
    result: Value = None  # any JSON


class FailedTask(TaskReference, frozen=True, kw_only=True):
    error: TaskError | str | None = None  # an object, or only its message
    retry: bool | None = None  # false: no further attempt, however many are left
    # Before the next attempt; absent: the task's back-off.
    retry_in_ms: Annotated[int, Meta(ge=0, le=limits.MAX_DELAY_MS)] | None = None


class TaskProgress(TaskReference, frozen=True, kw_only=True):
    progress: Value = None  # 0..1, or any JSON
    partial: Value = None  # a result so far, any JSON


class WorkerBeat(WorkerReference, frozen=True, kw_only=True):
    # Figures of its own, shown with the worker.
    load: Annotated[dict[Name, float], Meta(max_length=64)] | None = None


class SubscribeEvents(ClientMessage, frozen=True, kw_only=True):
    types: Annotated[list[str], Meta(max_length=64)] = []  # such as `task-failed`, or `task-*`
    after: Annotated[int, Meta(ge=0, le=2**53)] | None = None  # absent: from now on
    subject: str | None = None  # only events about this one


class UnsubscribeEvents(ClientMessage, frozen=True, kw_only=True):
    subscription_id: str | None = None  # absent: all of this socket


# --- payloads of the coordinator ----------------------------------------------------------------


class ClientEvent(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Base of payloads that the coordinator sends."""


class FrameError(ClientEvent, frozen=True, kw_only=True):
    """Why a message was refused."""

    error: str
    code: str | None = None


class SessionEstablished(ClientEvent, frozen=True, kw_only=True):
    session_id: str


class WorkerAnswer(ClientEvent, frozen=True, kw_only=True):
    status: str  # `registered` or `unregistered`
    worker_id: str
    holding: list[str] = []  # tasks it still has after a reconnect
    released: int | None = None  # tasks it had to give back


class TaskAnswer(ClientEvent, frozen=True, kw_only=True):
    status: str  # `assigned`, `queued`, `completed`, `failed`, `cancelled` or `noted`
    task_id: str
    worker_id: str | None = None  # who has it
    position: int | None = None  # in the queue, from 1
    duplicate: bool = False  # it was submitted before
    result: Any = None  # of a task that has completed
    error: str | None = None  # of one that has failed


class BeatAnswer(ClientEvent, frozen=True, kw_only=True):
    # `ok`
    status: str = msgspec.field(default_factory=lambda: "ok")  # what is made is not left out
    worker_id: str
    holding: list[str] = []  # tasks it has


class QueueAnswer(Struct, frozen=True, kw_only=True, rename="camel"):
    workers: list[str]  # that serve this queue
    queued_tasks: int  # that wait
    active_tasks: list[tuple[str, str | None]]  # task and worker, the oldest first


class WorkerStateAnswer(Struct, frozen=True, kw_only=True, rename="camel"):
    worker_id: str
    current_task: str | None  # null when it has none
    processed_count: int  # tasks it has completed, as long as it is registered


class SubscriptionAnswer(ClientEvent, frozen=True, kw_only=True):
    status: str  # `subscribed` or `unsubscribed`
    subscription_id: str | None = None
    after: int | None = None  # events with higher numbers follow
    count: int | None = None  # subscriptions that were ended


class EndedTask(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """`TaskCompleted` and `TaskFailed`."""

    task_id: str
    result: Any = None
    error: TaskError | None = None


class EventNote(Struct, frozen=True, kw_only=True):
    seq: int
    type: str
    subject: str
    data: dict[str, Any]
    at_ms: int


# --- pushed messages and errors, for the reference ----------------------------------------------

PUSHED = {
    "SessionEstablished": "The first frame of a socket: which session it belongs to.",
    "process_task": "To a worker's socket: a task to do. `taskId`, `payload`, `fence`, `name`, "
    "`queue` and `attempt` are beside the envelope's fields. One with a `taskId` and a `fence` "
    "that the worker has already is a repetition.",
    "cancel_task": "To a worker's socket: do not go on with `taskId`. `payload.reason` is "
    "`cancelled`, or `lost` when it is no longer this worker's.",
    "TaskCompleted": "To all sockets of the session that submitted the task: `taskId`, `result`. "
    "`from` is the coordinator's address.",
    "TaskFailed": "The same for a task that has failed or was cancelled: `taskId`, `error`.",
    "Event": "To a socket that has subscribed: `seq`, `type`, `subject`, `data`, `at_ms`; "
    "`replyTo` is the id of the `subscribe`.",
    "Error": "Something could not be understood, or is no longer so: `error`, `code`.",
}

FRAME_ERRORS = {
    "invalid_message": "No envelope: not JSON, null, or without `to` or `type`.",
    "invalid_address": "`to` is not of the form `kind:id`.",
    "unknown_actor_type": "The kind of the address is neither `coordinator` nor `worker`.",
    "worker_replaced": "A worker of this socket was registered over another one.",
    "worker_not_found": "A worker of this socket has left the registry: register it again.",
    "stale_incarnation": "A worker of this socket was registered again, and not over a socket.",
    "too_slow": "More events waited than may; subscribe again after the number in the text.",
}
