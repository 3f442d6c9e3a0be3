"""Checkpoints over HTTP: how far has the owner of a shard come, and may it still say so?"""

from typing import Any

from rota.core import access, limits
from rota.core.access import Action
from rota.core.shards.events import SaveCheckpoint
from rota.core.tasks import NULL
from rota.core.values import check_value
from rota.errors import ServiceNotFound, StaleEpoch
from rota.gateways.http.bodies import invalid_field
from rota.gateways.http.endpoint import Call, Endpoint, NoQuery
from rota.messages import CheckpointRequest, CheckpointView

MOST_DIGITS = len(str(limits.MAX_SHARDS))


async def save_checkpoint(call: Call[CheckpointRequest, NoQuery]) -> CheckpointView:
    access.check_service(call.caller, call.parameter)
    value = NULL if call.body.value is None else call.body.value
    check_value(value, "value", most_bytes=call.settings.max_payload_bytes)
    event = SaveCheckpoint(
        service=call.parameter,
        shard=_shard(call),
        epoch=call.body.epoch,
        value=value,
        worker_id=call.caller.worker_id,
    )
    await call.coordinator.shard(event)
    return await _current_view(call)


async def show_checkpoint(call: Call[None, NoQuery]) -> CheckpointView:
    access.check_service(call.caller, call.parameter)
    return await _current_view(call)


async def _current_view(call: Call[Any, Any]) -> CheckpointView:
    service, shard, queries = call.parameter, _shard(call), call.coordinator.queries
    saved = await queries.checkpoint(service, shard)
    if saved is not None:
        return CheckpointView(
            service=service,
            shard=shard,
            epoch=saved.epoch,
            value=saved.value,
            saved_at_ms=saved.saved_at_ms,
        )
    if not await queries.has_service(service):
        raise ServiceNotFound(service)
    return CheckpointView(service=service, shard=shard, epoch=0, value=NULL)


def _shard(call: Call[Any, Any]) -> int:
    text = call.second
    if text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS:
        shard = int(text)
        if shard < limits.MAX_SHARDS:
            return shard
    raise invalid_field("shard", f"a number from 0 to {limits.MAX_SHARDS - 1}")


ENDPOINTS = (
    Endpoint(
        method="PUT",
        path="/api/services/{name}/shards/{shard}/checkpoint",
        summary="Keep how far the owner of a shard has come",
        description="Any JSON. Refused when the shard is not owned under this epoch any more, so "
        "what an owner of old still writes cannot undo what the new one wrote.",
        noun="Services",
        action=Action.WORK,
        handler=save_checkpoint,
        body=CheckpointRequest,
        is_body_needed=True,
        answer=CheckpointView,
        errors=(ServiceNotFound, StaleEpoch),
    ),
    Endpoint(
        method="GET",
        path="/api/services/{name}/shards/{shard}/checkpoint",
        summary="Show how far the owners of a shard have come",
        noun="Services",
        action=Action.WORK,
        handler=show_checkpoint,
        answer=CheckpointView,
        errors=(ServiceNotFound,),
    ),
)
