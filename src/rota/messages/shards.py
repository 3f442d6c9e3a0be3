"""Services and their shards on the wire: messages of members, assignments, and views.

Members speak the same fields over ZeroMQ and over HTTP, in camel case, as clients of protocol 1
do. What came with protocol 2 is optional. Over ZeroMQ unknown fields are ignored, since a client
may be newer than its coordinator.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from rota.core import limits
from rota.core.shards.commands import BeatMember, LeaveMember, RegisterMember
from rota.core.shards.members import OLD_PROTOCOL, PROTOCOL, Assignment
from rota.core.tasks.model import Name
from rota.core.workers.model import Health
from rota.messages.base import Answer, Request, Value

MAX_NUMBER = 2**53  # of a sequence, a generation or an epoch: exact in every language's JSON
THOUSANDTHS = 1_000

ShardCount = Annotated[int, Meta(ge=1, le=limits.MAX_SHARDS)]
Shard = Annotated[int, Meta(ge=0, lt=limits.MAX_SHARDS)]
Shards = Annotated[list[Shard], Meta(max_length=limits.MAX_SHARDS)]
Number = Annotated[int, Meta(ge=0, le=MAX_NUMBER)]
MemberIncarnation = Number | Annotated[str, Meta(min_length=1, max_length=limits.MAX_NAME_LENGTH)]
Weight = Annotated[float, Meta(gt=0, le=1_000)]
Protocol = Annotated[int, Meta(ge=OLD_PROTOCOL, le=PROTOCOL)]
Status = Literal["ok", "fenced", "reregister"]


# --- messages of members ------------------------------------------------------------------------


class RegisterData(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    service_name: Name
    worker_id: Name
    max_shard_count: ShardCount  # shards of the whole service, not of this worker
    protocol: Protocol = OLD_PROTOCOL
    incarnation: MemberIncarnation | None = None  # of this process; a later one is larger
    weight: Weight = 1.0  # twice the weight, twice the shards
    max_shards: Annotated[int, Meta(ge=0, le=limits.MAX_SHARDS)] | None = None  # most it gets
    seq: Number | None = None  # given back with the answer


class HeartbeatData(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    service_name: Name
    worker_id: Name
    max_shard_count: ShardCount
    assigned_shards: Shards  # all that it holds, including those that it is giving up
    protocol: Protocol | None = None
    incarnation: MemberIncarnation | None = None
    generation: Number | None = None  # the newest that it has acted on
    seq: Number | None = None
    draining: bool = False  # it is about to leave


class LeaveData(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    service_name: Name
    worker_id: Name
    incarnation: MemberIncarnation | None = None


class Register(Struct, frozen=True, tag_field="type", tag="register"):
    data: RegisterData


class HeartbeatMessage(Struct, frozen=True, tag_field="type", tag="heartbeat"):
    data: HeartbeatData


class Leave(Struct, frozen=True, tag_field="type", tag="leave"):
    data: LeaveData


MemberMessage = Register | HeartbeatMessage | Leave


class MemberRegistration(Request, frozen=True, kw_only=True, rename="camel"):
    """A register over HTTP; the path names the service."""

    worker_id: Name
    max_shard_count: ShardCount  # shards of the whole service, not of this worker
    protocol: Protocol = PROTOCOL  # 1: without generations, epochs and leases
    incarnation: MemberIncarnation | None = None  # of this process; a later one is larger
    weight: Weight = 1.0  # twice the weight, twice the shards
    max_shards: Annotated[int, Meta(ge=0, le=limits.MAX_SHARDS)] | None = None  # most it gets
    seq: Number | None = None  # given back with the answer


class MemberHeartbeat(Request, frozen=True, kw_only=True, rename="camel"):
    """A heartbeat over HTTP; the path names the service and the worker."""

    max_shard_count: ShardCount  # shards of the whole service, not of this worker
    assigned_shards: Shards  # all that it holds, including those that it is giving up
    protocol: Protocol = PROTOCOL  # 1: without generations, epochs and leases
    incarnation: MemberIncarnation | None = None  # the one it registered with
    generation: Number | None = None  # the newest that it has acted on
    seq: Number | None = None  # rises with each heartbeat; given back with the answer
    draining: bool = False  # it is about to leave


# --- messages to members ------------------------------------------------------------------------


class OldAssignmentData(Struct, frozen=True, kw_only=True, rename="camel"):
    """The whole assignment of a peer of protocol 1."""

    assigned_shards: tuple[int, ...]


class AssignmentData(Answer, frozen=True, kw_only=True, rename="camel"):
    assigned_shards: tuple[int, ...]  # sorted
    shard_epochs: tuple[int, ...] = ()  # one for each of them
    revoking: tuple[int, ...] = ()  # still held, to be given up
    generation: int = 0  # rises with every change of an assignment
    lease_ttl_ms: int  # from the moment the answered message was sent
    heartbeat_interval_ms: int  # between two heartbeats
    protocol: int = PROTOCOL  # of the member
    seq: int | None = None  # of the message that this answers; null when it answers none
    # If not ok: act on nothing, and register as a new incarnation. `reregister`: this one is not
    # known.
    status: Status = "ok"
    reason: str | None = None  # why the status is not ok


class AssignmentMessage(Struct, frozen=True, tag_field="type", tag="assignment"):
    data: AssignmentData | OldAssignmentData


class ErrorData(Struct, frozen=True):
    code: str
    message: str


class ErrorMessage(Struct, frozen=True, tag_field="type", tag="error"):
    """For peers of protocol 2 only."""

    data: ErrorData


# --- views of services --------------------------------------------------------------------------


class MemberView(Answer, frozen=True, kw_only=True):
    worker_id: str
    shards: tuple[int, ...]  # that it owns, including those that it is giving up
    epochs: tuple[int, ...]  # one for each of them
    target: tuple[int, ...]  # that it should own
    weight: float  # twice the weight, twice the shards
    draining: bool  # it gives up its shards, by its own request or an operator's
    health: Health  # by the age of its last heartbeat
    protocol: int  # 1 or 2
    last_heartbeat_ms: int
    max_shards: int | None = None  # most it gets
    fenced: str | None = None  # why its heartbeats no longer count


class ServiceSummary(Answer, frozen=True, kw_only=True):
    name: str
    shard_count: int
    pinned: bool  # whether an operator fixed the count
    min_protocol: int  # that its workers must use at least
    generation: int  # rises with every change of an assignment
    member_count: int
    unowned: int  # shards without an owner
    moving: int  # shards whose owner is not their target


class ServicePage(Answer, frozen=True, kw_only=True):
    items: list[ServiceSummary]
    next_cursor: str | None = None


class ServiceView(ServiceSummary, frozen=True, kw_only=True):
    members: list[MemberView]


class ServiceChange(Request, frozen=True, kw_only=True):
    """A change of a service; fields that are left out stay as they are."""

    shard_count: ShardCount | None = None  # in force until members report another, unless pinned
    pinned: bool | None = None  # whether the count stays, whatever members report
    min_protocol: Protocol | None = None  # 2 evicts members of protocol 1 at once


class MemberDrain(Request, frozen=True, kw_only=True):
    draining: bool = True  # false: it can get shards again


class MemberLeft(Answer, frozen=True, kw_only=True):
    service: str
    worker_id: str


class CheckpointRequest(Request, frozen=True, kw_only=True):
    epoch: Number  # under which the caller owns the shard
    value: Value = None  # any JSON, such as a position


class CheckpointView(Answer, frozen=True, kw_only=True):
    service: str
    shard: int
    epoch: int  # of the owner that saved it; 0: none has yet
    value: Value = None
    saved_at_ms: int | None = None


class ShardClaim(Request, frozen=True, kw_only=True):
    """The shard and epoch of an effect, which is refused when the shard has moved since."""

    service: Name
    shard: Shard
    epoch: Number


# --- messages and commands ----------------------------------------------------------------------


def register_command(data: RegisterData) -> RegisterMember:
    return RegisterMember(
        service=data.service_name,
        worker_id=data.worker_id,
        shard_count=data.max_shard_count,
        protocol=data.protocol,
        incarnation=incarnation_text(data.incarnation),
        weight=max(1, round(data.weight * THOUSANDTHS)),
        max_shards=data.max_shards,
        seq=data.seq,
    )


def heartbeat_command(data: HeartbeatData, holds: tuple[int, ...]) -> BeatMember:
    """A member that names its incarnation speaks protocol 2, even if it names no protocol."""
    assumed = OLD_PROTOCOL if data.incarnation is None else PROTOCOL
    return BeatMember(
        service=data.service_name,
        worker_id=data.worker_id,
        shard_count=data.max_shard_count,
        holds=holds,
        protocol=assumed if data.protocol is None else data.protocol,
        incarnation=incarnation_text(data.incarnation),
        generation=data.generation,
        seq=data.seq,
        draining=data.draining,
    )


def register_data(command: RegisterMember) -> RegisterData:
    return RegisterData(
        service_name=command.service,
        worker_id=command.worker_id,
        max_shard_count=command.shard_count,
        protocol=command.protocol,
        incarnation=command.incarnation,
        weight=command.weight / THOUSANDTHS,
        max_shards=command.max_shards,
        seq=command.seq,
    )


def heartbeat_data(command: BeatMember) -> HeartbeatData:
    return HeartbeatData(
        service_name=command.service,
        worker_id=command.worker_id,
        max_shard_count=command.shard_count,
        assigned_shards=list(command.holds),
        protocol=command.protocol,
        incarnation=command.incarnation,
        generation=command.generation,
        seq=command.seq,
        draining=command.draining,
    )


def leave_command(data: LeaveData) -> LeaveMember:
    given = data.incarnation
    return LeaveMember(
        service=data.service_name,
        worker_id=data.worker_id,
        incarnation=None if given is None else incarnation_text(given),
    )


def incarnation_text(given: int | str | None) -> str:
    return "" if given is None else str(given)


def assignment_data(assignment: Assignment) -> AssignmentData | OldAssignmentData:
    """The assignment in the protocol of the member."""
    if assignment.protocol < PROTOCOL:
        return OldAssignmentData(assigned_shards=assignment.shards)
    return full_assignment(assignment)


def full_assignment(assignment: Assignment) -> AssignmentData:
    return AssignmentData(
        assigned_shards=assignment.shards,
        shard_epochs=assignment.epochs,
        revoking=assignment.revoking,
        generation=assignment.generation,
        lease_ttl_ms=assignment.lease_ms,
        heartbeat_interval_ms=assignment.heartbeat_interval_ms,
        protocol=assignment.protocol,
        seq=assignment.seq,
        status=assignment.status,
        reason=assignment.reason,
    )
