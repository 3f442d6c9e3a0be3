"""What does a member ask of its coordinator over HTTP? As `rota.sdk.calls`, for members."""

from typing import Any

import msgspec
from msgspec import Raw

from rota.core.shards.events import BeatMember, LeaveMember, RegisterMember
from rota.messages.shards import (
    THOUSANDTHS,
    AssignmentData,
    CheckpointRequest,
    CheckpointView,
    MemberHeartbeat,
    MemberRegistration,
)
from rota.sdk.encoding import encode
from rota.sdk.requests import Call, Nothing, decoder_of, get, path_at, post

ANSWER_TIMEOUT_S = 10.0  # beyond what the coordinator was asked to wait; an older answer is no use


def register(event: RegisterMember) -> Call[AssignmentData]:
    message = MemberRegistration(
        worker_id=event.worker_id,
        max_shard_count=event.shard_count,
        protocol=event.protocol,
        incarnation=event.incarnation,
        weight=event.weight / THOUSANDTHS,
        max_shards=event.max_shards,
        seq=event.seq,
    )
    call = post(path_at("services", event.service, "members"), AssignmentData, message)
    return msgspec.structs.replace(call, timeout_s=ANSWER_TIMEOUT_S)


def beat(event: BeatMember, *, wait_ms: int = 0) -> Call[AssignmentData]:
    """Beat; with `wait_ms` the answer may wait for something newer than the beat has seen."""
    message = MemberHeartbeat(
        max_shard_count=event.shard_count,
        assigned_shards=list(event.holds),
        protocol=event.protocol,
        incarnation=event.incarnation,
        generation=event.generation,
        seq=event.seq,
        draining=event.draining,
    )
    path = path_at("services", event.service, "members", event.worker_id, "heartbeat")
    if wait_ms:
        path += f"?wait_ms={wait_ms}"
    call = post(path, AssignmentData, message)
    return msgspec.structs.replace(call, timeout_s=ANSWER_TIMEOUT_S + wait_ms / 1000)


def leave(event: LeaveMember) -> Call[Nothing]:
    path = path_at("services", event.service, "members", event.worker_id)
    if event.incarnation is not None:
        path += f"?incarnation={event.incarnation}"
    return Call(method="DELETE", path=path, decoder=decoder_of(Nothing), timeout_s=ANSWER_TIMEOUT_S)


def get_checkpoint(service: str, shard: int) -> Call[CheckpointView]:
    return get(path_at("services", service, "shards", str(shard), "checkpoint"), CheckpointView)


def save_checkpoint(service: str, shard: int, *, epoch: int, value: Any) -> Call[CheckpointView]:
    return Call(
        method="PUT",
        path=path_at("services", service, "shards", str(shard), "checkpoint"),
        decoder=decoder_of(CheckpointView),
        body=msgspec.json.encode(CheckpointRequest(epoch=epoch, value=Raw(encode(value)))),
        is_repeatable=True,
    )
