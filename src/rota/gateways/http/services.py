"""Services over HTTP, as operators see them: who owns which shards, and what is to change?"""

from typing import Any

from rota.core import access, limits
from rota.core.access import Action
from rota.core.shards.events import ConfigureService, DrainMember
from rota.errors import MemberNotFound, ServiceNotFound
from rota.gateways.http import checkpoints, members
from rota.gateways.http.endpoint import Call, Endpoint, NoQuery
from rota.gateways.http.members import own_service
from rota.gateways.http.service_views import service_view, summary_of
from rota.messages import MemberDrain, ServiceChange, ServicePage, ServiceView


async def listing(call: Call[None, NoQuery]) -> ServicePage:
    own = call.caller.services
    services = await call.coordinator.queries.services()
    return ServicePage(
        items=[summary_of(one) for one in services if own is None or one.name in own]
    )


async def show(call: Call[None, NoQuery]) -> ServiceView:
    access.check_service(call.caller, call.parameter)
    return await _current_view(call)


async def configure(call: Call[ServiceChange, NoQuery]) -> ServiceView:
    change = call.body
    event = ConfigureService(
        service=own_service(call),
        shard_count=change.shard_count,
        pinned=change.pinned,
        min_protocol=change.min_protocol,
    )
    await call.coordinator.shard(event)
    return await _current_view(call)


async def drain(call: Call[MemberDrain | None, NoQuery]) -> ServiceView:
    asked = MemberDrain() if call.body is None else call.body
    access.check_service(call.caller, call.parameter)
    access.check_worker(call.caller, call.second)
    event = DrainMember(service=call.parameter, worker_id=call.second, draining=asked.draining)
    await call.coordinator.shard(event)
    return await _current_view(call)


async def _current_view(call: Call[Any, Any]) -> ServiceView:
    service = await call.coordinator.queries.service(call.parameter)
    if service is None:
        raise ServiceNotFound(call.parameter)
    return service_view(service)


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/api/services",
        summary="List services with their shards, members and what is moving",
        noun="Services",
        action=Action.READ,
        handler=listing,
        answer=ServicePage,
    ),
    Endpoint(
        method="GET",
        path="/api/services/{name}",
        summary="Show a service: who owns which shards, and shall",
        noun="Services",
        action=Action.READ,
        handler=show,
        answer=ServiceView,
        errors=(ServiceNotFound,),
    ),
    Endpoint(
        method="PUT",
        path="/api/services/{name}",
        summary="Set the number of shards, or who may be a member; makes the service if need be",
        description="What is left out stays as it is. A `shard_count` holds until members name "
        f"another one, unless `pinned` is set with it or was before. At most {limits.MAX_SHARDS} "
        "shards. `min_protocol` 2 puts out members of protocol 1 at once.",
        noun="Services",
        action=Action.OPERATE,
        handler=configure,
        body=ServiceChange,
        is_body_needed=True,
        answer=ServiceView,
    ),
    Endpoint(
        method="POST",
        path="/api/services/{name}/members/{worker_id}/drain",
        summary="Have a member give up its shards, and give it none",
        description="`draining` false lets it have shards again. The answer shows the service as "
        "it stands now; shards move as their owners give them up.",
        noun="Services",
        action=Action.OPERATE,
        handler=drain,
        body=MemberDrain,
        answer=ServiceView,
        errors=(ServiceNotFound, MemberNotFound),
    ),
    *members.ENDPOINTS,
    *checkpoints.ENDPOINTS,
)
