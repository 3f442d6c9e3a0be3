"""Services as operators see them: owners, targets, configuration."""

from typing import Any

from rota.core import access, limits
from rota.core.access import Action
from rota.core.shards.commands import ConfigureService, DrainMember
from rota.engine.queries import services
from rota.errors import MemberNotFound, ServiceNotFound
from rota.gateways.http.resources.services.members import own_service
from rota.gateways.http.routing.endpoint import HttpCall, NoQuery, Routes
from rota.messages import (
    MemberDrain,
    MemberView,
    ServiceChange,
    ServicePage,
    ServiceSummary,
    ServiceView,
)
from rota.messages.shards import THOUSANDTHS

routes = Routes("Services")


@routes.get("/api/services", Action.READ)
async def listing(call: HttpCall[None, NoQuery]) -> ServicePage:
    """List services with their shards, members and moving shards."""
    own = call.caller.services
    found = await call.coordinator.queries.services.all()
    return ServicePage(items=[_summary(one) for one in found if own is None or one.name in own])


@routes.get("/api/services/{name}", Action.READ, errors=(ServiceNotFound,))
async def show(call: HttpCall[None, NoQuery]) -> ServiceView:
    """Show a service: the owner and the target of each shard."""
    access.check_service(call.caller, call.path["name"])
    return await _current_view(call)


@routes.put(
    "/api/services/{name}",
    Action.OPERATE,
    description="Absent fields are unchanged. A `shard_count` holds until members report "
    f"another one, unless `pinned` is set with it or was before. At most {limits.MAX_SHARDS} "
    "shards. `min_protocol` 2 evicts members of protocol 1 at once.",
)
async def configure(call: HttpCall[ServiceChange, NoQuery]) -> ServiceView:
    """Set the number of shards and the protocol of members; creates the service if needed."""
    change = call.body
    command = ConfigureService(
        service=own_service(call),
        shard_count=change.shard_count,
        pinned=change.pinned,
        min_protocol=change.min_protocol,
    )
    await call.coordinator.execute(command)
    return await _current_view(call)


@routes.post(
    "/api/services/{name}/members/{worker_id}/drain",
    Action.OPERATE,
    errors=(ServiceNotFound, MemberNotFound),
)
async def drain(call: HttpCall[MemberDrain | None, NoQuery]) -> ServiceView:
    """Drain a member: it gives up its shards and gets none.

    `draining` false lets it have shards again. The answer shows the service as it is now;
    shards move as their owners give them up.
    """
    asked = MemberDrain() if call.body is None else call.body
    access.check_service(call.caller, call.path["name"])
    access.check_worker(call.caller, call.path["worker_id"])
    command = DrainMember(
        service=call.path["name"], worker_id=call.path["worker_id"], draining=asked.draining
    )
    await call.coordinator.execute(command)
    return await _current_view(call)


async def _current_view(call: HttpCall[Any, Any]) -> ServiceView:
    service = await call.coordinator.queries.services.by_name(call.path["name"])
    if service is None:
        raise ServiceNotFound(call.path["name"])
    return _view(service)


def _summary(service: services.StoredServiceSummary) -> ServiceSummary:
    return ServiceSummary(
        name=service.name,
        shard_count=service.shard_count,
        pinned=service.pinned,
        min_protocol=service.min_protocol,
        generation=service.generation,
        member_count=service.members,
        unowned=service.unowned,
        moving=service.moving,
    )


def _view(service: services.ServiceStatus) -> ServiceView:
    return ServiceView(
        name=service.name,
        shard_count=service.shard_count,
        pinned=service.pinned,
        min_protocol=service.min_protocol,
        generation=service.generation,
        member_count=len(service.members),
        unowned=service.unowned,
        moving=service.moving,
        members=[_member_view(member) for member in service.members],
    )


def _member_view(member: services.MemberStatus) -> MemberView:
    return MemberView(
        worker_id=member.worker_id,
        shards=member.shards,
        epochs=member.epochs,
        target=member.target,
        weight=member.weight / THOUSANDTHS,
        draining=member.draining,
        health=member.health,
        protocol=member.protocol,
        last_heartbeat_ms=member.seen_ms,
        max_shards=member.max_shards,
        fenced=member.fenced,
    )
