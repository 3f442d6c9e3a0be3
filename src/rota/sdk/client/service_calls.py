"""API calls about services: the operator's, and those of the member protocol."""

from typing import Any

from msgspec import Raw, convert
from msgspec.structs import replace

from rota.core.shards.commands import BeatMember, LeaveMember, RegisterMember
from rota.messages.shards import (
    AssignmentData,
    CheckpointRequest,
    CheckpointView,
    MemberDrain,
    MemberHeartbeat,
    MemberRegistration,
    ServiceChange,
    ServicePage,
    ServiceView,
    heartbeat_data,
    register_data,
)
from rota.sdk.client.requests import ApiCall, Nothing, delete, get, path_at, post, put
from rota.sdk.encoding import encode

MEMBER_TIMEOUT_S = 10.0  # on top of the requested wait; an older assignment is of no use


def list_services() -> ApiCall[ServicePage]:
    return get("/api/services", ServicePage)


def get_service(name: str) -> ApiCall[ServiceView]:
    return get(path_at("services", name), ServiceView)


def configure_service(name: str, change: ServiceChange) -> ApiCall[ServiceView]:
    """Set the fields that the change names; a missing service is created."""
    return put(path_at("services", name), ServiceView, change)


def drain_member(name: str, worker_id: str, *, draining: bool = True) -> ApiCall[ServiceView]:
    """Have a member give up its shards, or let it have shards again."""
    path = path_at("services", name, "members", worker_id, "drain")
    return post(path, ServiceView, MemberDrain(draining=draining), is_repeatable=True)


# --- the member protocol ---------------------------------------------------------------------


def register_member(command: RegisterMember) -> ApiCall[AssignmentData]:
    message = convert(register_data(command), MemberRegistration, from_attributes=True)
    call = post(path_at("services", command.service, "members"), AssignmentData, message)
    return replace(call, timeout_s=MEMBER_TIMEOUT_S)


def beat_member(command: BeatMember, *, wait_ms: int = 0) -> ApiCall[AssignmentData]:
    """Send a heartbeat; with `wait_ms` the answer may wait for an assignment newer than it."""
    message = convert(heartbeat_data(command), MemberHeartbeat, from_attributes=True)
    parts = ("services", command.service, "members", command.worker_id, "heartbeat")
    call = post(path_at(*parts, wait_ms=wait_ms or None), AssignmentData, message)
    return replace(call, timeout_s=MEMBER_TIMEOUT_S + wait_ms / 1000)


def leave_member(command: LeaveMember) -> ApiCall[Nothing]:
    parts = ("services", command.service, "members", command.worker_id)
    call = delete(path_at(*parts, incarnation=command.incarnation))
    return replace(call, timeout_s=MEMBER_TIMEOUT_S)


def get_checkpoint(service: str, shard: int) -> ApiCall[CheckpointView]:
    return get(path_at("services", service, "shards", str(shard), "checkpoint"), CheckpointView)


def save_checkpoint(service: str, shard: int, *, epoch: int, value: Any) -> ApiCall[CheckpointView]:
    path = path_at("services", service, "shards", str(shard), "checkpoint")
    return put(path, CheckpointView, CheckpointRequest(epoch=epoch, value=Raw(encode(value))))
