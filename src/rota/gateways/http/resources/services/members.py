"""Members of services over HTTP: registration, heartbeats, leaving.

The messages are those of ZeroMQ. A change cannot be pushed over HTTP; instead a heartbeat may wait
for it. The heartbeat counts when it arrives, not when it is answered.
"""

from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import asdict, replace

from rota.core import access
from rota.core.access import Action
from rota.core.shards.commands import LeaveMember
from rota.core.shards.members import Assignment
from rota.engine.coordinator import Coordinator
from rota.gateways.http.routing.endpoint import HttpCall, NoQuery, Routes
from rota.gateways.validation import checked_name
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
    full_assignment,
    heartbeat_command,
    register_command,
)

routes = Routes("Services")


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


def own_service(call: HttpCall[Any, Any]) -> str:
    """The service in the path, if its name is valid and the caller may use it."""
    name = checked_name(call.path["name"], "name")
    access.check_service(call.caller, name)
    return name


def _acting_member(call: HttpCall[Any, Any]) -> tuple[str, str]:
    """The service and the worker in the path, if the caller may speak for them."""
    service, worker_id = own_service(call), checked_name(call.path["worker_id"], "worker_id")
    access.check_worker(call.caller, worker_id)
    return service, worker_id


@routes.post("/api/services/{name}/members", Action.WORK)
async def register(call: HttpCall[MemberRegistration, NoQuery]) -> AssignmentData:
    """Become a member of a service, and get the shards to hold.

    The first member gets all shards at once. Later members get shards when others have released
    them: send heartbeats to get the assignment. Give an `incarnation` that rises with each start of
    the process: a newer one takes over, and an older one is answered with status `fenced`.
    """
    service = own_service(call)
    access.check_worker(call.caller, call.body.worker_id)
    data = RegisterData(service_name=service, **asdict(call.body))
    command = replace(register_command(data), by=call.caller)
    # A member that has to wait gets what it has by now: over HTTP it asks again.
    return full_assignment(await call.coordinator.execute(command))


@routes.post("/api/services/{name}/members/{worker_id}/heartbeat", Action.WORK, keeps_work=True)
async def heartbeat(call: HttpCall[MemberHeartbeat, BeatQuery]) -> AssignmentData:
    """Send the heartbeat of a member with the shards it holds, and wait for a change.

    Give up a shard that is no longer assigned: the member owns it until a heartbeat with that
    `generation` does not list it. The lease counts from when the heartbeat was sent. After status
    `fenced`, act on nothing, and register as a new incarnation; after `reregister`, register again.
    """
    service, worker_id = _acting_member(call)
    data = HeartbeatData(service_name=service, worker_id=worker_id, **asdict(call.body))
    command = replace(heartbeat_command(data, tuple(data.assigned_shards)), by=call.caller)
    assignment = await call.coordinator.execute(command)
    # A member that waited for longer would be late with its next beat.
    wait_ms = min(call.query.wait_ms, call.coordinator.rules.shards.news_wait_ms)
    if wait_ms and assignment.status == "ok" and _knows(assignment, call.body.generation):
        assignment = await call.while_connected(
            _next(call.coordinator, assignment, wait_ms=wait_ms)
        )
    return full_assignment(assignment)


def _knows(assignment: Assignment, generation: int | None) -> bool:
    """Whether a member that has seen this generation knows the assignment already."""
    return generation is not None and assignment.changed_in <= generation <= assignment.generation


async def _next(coordinator: Coordinator, assignment: Assignment, *, wait_ms: int) -> Assignment:
    """The next assignment of a member; the same one when the time is over."""
    pushed = await coordinator.wait_for_assignment(
        assignment.service,
        assignment.worker_id,
        after_generation=assignment.generation,
        wait_ms=wait_ms,
    )
    if pushed is None:
        return assignment
    if pushed.incarnation != assignment.incarnation:
        # That was for another process, which has this one's name by now.
        return replace(
            assignment,
            shards=(),
            epochs=(),
            revoking=(),
            generation=pushed.generation,
            status="fenced",
            reason="a newer incarnation of this worker has registered",
        )
    return replace(pushed, seq=assignment.seq)


@routes.delete("/api/services/{name}/members/{worker_id}", Action.WORK)
async def leave(call: HttpCall[None, LeaveQuery]) -> MemberLeft:
    """Leave a service: its shards go to others at once.

    The member must act on nothing any more. One that is not there has left.
    """
    service, worker_id = _acting_member(call)
    command = LeaveMember(
        service=service,
        worker_id=worker_id,
        incarnation=call.query.incarnation,
        by=call.caller,
    )
    await call.coordinator.execute(command)
    return MemberLeft(service=service, worker_id=worker_id)
