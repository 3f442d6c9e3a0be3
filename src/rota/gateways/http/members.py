"""Members of services over HTTP, as they speak for themselves: register, beat, leave.

They say the same as over ZeroMQ, and are told the same. What changes meanwhile cannot be pushed to
them; instead a beat may wait for it. The beat counts when it comes, not when it is answered.
"""

from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import asdict, replace

from rota.core import access, limits
from rota.core.access import Action
from rota.core.shards.events import LeaveMember
from rota.core.shards.members import Assignment
from rota.engine.coordinator import Coordinator
from rota.gateways.http.bodies import invalid_field
from rota.gateways.http.endpoint import Call, Endpoint, NoQuery
from rota.messages import (
    AssignmentData,
    MemberHeartbeat,
    MemberLeft,
    MemberRegistration,
    Name,
    Request,
    WaitMs,
)
from rota.messages.shards import (
    HeartbeatData,
    RegisterData,
    beat_event,
    full_assignment,
    register_event,
)


class BeatQuery(Request, frozen=True, kw_only=True):
    wait_ms: Annotated[
        WaitMs,
        Meta(
            description="Answer as soon as the member's assignment has changed since the "
            "generation in the body; after this, or one heartbeat interval, at the latest."
        ),
    ] = 0


class LeaveQuery(Request, frozen=True, kw_only=True):
    incarnation: Annotated[
        Name | None, Meta(description="Leave only if this one is still current.")
    ] = None


def own_service(call: Call[Any, Any]) -> str:
    """The service in the path, if there can be one of that name and the caller is for it."""
    name = _checked("name", call.parameter)
    access.check_service(call.caller, name)
    return name


def _acting_member(call: Call[Any, Any]) -> tuple[str, str]:
    """The service and the worker in the path, if the caller may speak for them."""
    service, worker_id = own_service(call), _checked("worker_id", call.second)
    access.check_worker(call.caller, worker_id)
    return service, worker_id


def _checked(field: str, name: str) -> str:
    if len(name) > limits.MAX_NAME_LENGTH:
        raise invalid_field(field, f"has at most {limits.MAX_NAME_LENGTH} characters")
    return name


async def register(call: Call[MemberRegistration, NoQuery]) -> AssignmentData:
    service = own_service(call)
    access.check_worker(call.caller, call.body.worker_id)
    event = register_event(RegisterData(service_name=service, **asdict(call.body)))
    # One that has to wait is told what it has by now: over HTTP it can ask again.
    return full_assignment(_told(await call.coordinator.shard(event)))


async def heartbeat(call: Call[MemberHeartbeat, BeatQuery]) -> AssignmentData:
    service, worker_id = _acting_member(call)
    data = HeartbeatData(service_name=service, worker_id=worker_id, **asdict(call.body))
    event = beat_event(data, tuple(data.assigned_shards))
    told = _told(await call.coordinator.shard(event))
    # A member that waited for longer would be late with its next beat.
    wait_ms = min(call.query.wait_ms, call.coordinator.shard_policy.news_wait_ms)
    if wait_ms and told.status == "ok" and _knows(told, call.body.generation):
        told = await call.while_connected(_next(call.coordinator, told, wait_ms=wait_ms))
    return full_assignment(told)


def _knows(told: Assignment, generation: int | None) -> bool:
    """Whether a member that has seen this generation knows what it is told, whoever else does."""
    return generation is not None and told.changed_in <= generation <= told.generation


def _told(answer: Assignment | None) -> Assignment:
    assert answer is not None
    return answer


async def _next(coordinator: Coordinator, told: Assignment, *, wait_ms: int) -> Assignment:
    """What a member is told next; the same as before when the time is over."""
    pushed = await coordinator.wait_assignment(
        told.service, told.worker_id, after_generation=told.generation, wait_ms=wait_ms
    )
    if pushed is None:
        return told
    if pushed.incarnation != told.incarnation:
        # That was for another process, which has this one's name by now.
        return replace(
            told,
            shards=(),
            epochs=(),
            revoking=(),
            generation=pushed.generation,
            status="fenced",
            reason="a newer incarnation of this worker has registered",
        )
    return replace(pushed, seq=told.seq)


async def leave(call: Call[None, LeaveQuery]) -> MemberLeft:
    service, worker_id = _acting_member(call)
    event = LeaveMember(service=service, worker_id=worker_id, incarnation=call.query.incarnation)
    await call.coordinator.shard(event)
    return MemberLeft(service=service, worker_id=worker_id)


ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/api/services/{name}/members",
        summary="Become a member of a service, and be told which shards to hold",
        description="The first member is given all shards at once, others what those before them "
        "give up: beat to hear of it. Give an `incarnation` that rises with each start of the "
        "process: a newer one takes over, and an older one is answered with status `fenced`.",
        noun="Services",
        action=Action.WORK,
        handler=register,
        body=MemberRegistration,
        is_body_needed=True,
        answer=AssignmentData,
    ),
    Endpoint(
        method="POST",
        path="/api/services/{name}/members/{worker_id}/heartbeat",
        summary="Say that a member is alive and what it holds, and wait for news",
        description="What is no longer assigned is to be given up: it is the member's until a "
        "beat with that `generation` does not list it. The lease counts from the moment the beat "
        "was sent. Status `fenced`: act on nothing, and register as a new incarnation; "
        "`reregister`: register again.",
        noun="Services",
        action=Action.WORK,
        handler=heartbeat,
        body=MemberHeartbeat,
        is_body_needed=True,
        query=BeatQuery,
        answer=AssignmentData,
    ),
    Endpoint(
        method="DELETE",
        path="/api/services/{name}/members/{worker_id}",
        summary="Leave a service: its shards go to others at once",
        description="The member must act on nothing any more. One that is not there has left.",
        noun="Services",
        action=Action.WORK,
        handler=leave,
        query=LeaveQuery,
        answer=MemberLeft,
    ),
)
