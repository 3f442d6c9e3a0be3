"""Checkpoints of shards, accepted only from the owner under the current epoch."""

from typing import Any

from rota.core import access, limits
from rota.core.access import Action
from rota.core.shards.commands import SaveCheckpoint
from rota.core.tasks.model import NULL
from rota.core.tasks.values import check_value
from rota.errors import ServiceNotFound, StaleEpoch
from rota.gateways.http.routing.endpoint import HttpCall, NoQuery, Routes
from rota.gateways.validation import invalid_field
from rota.messages import CheckpointRequest, CheckpointView

MOST_DIGITS = len(str(limits.MAX_SHARDS))

routes = Routes("Services")


@routes.put(
    "/api/services/{name}/shards/{shard}/checkpoint",
    Action.WORK,
    keeps_work=True,
    errors=(ServiceNotFound, StaleEpoch),
)
async def save_checkpoint(call: HttpCall[CheckpointRequest, NoQuery]) -> CheckpointView:
    """Save the checkpoint of a shard.

    Any JSON. Refused when the shard is not owned under this epoch any more, so what an owner of
    old still writes cannot undo what the new one wrote.
    """
    access.check_service(call.caller, call.path["name"])
    value = NULL if call.body.value is None else call.body.value
    check_value(value, "value", most_bytes=call.settings.max_payload_bytes)
    command = SaveCheckpoint(
        service=call.path["name"],
        shard=_shard(call),
        epoch=call.body.epoch,
        value=value,
        worker_id=call.caller.worker_id,
        by=call.caller,
    )
    await call.coordinator.execute(command)
    return await _current_view(call)


@routes.get(
    "/api/services/{name}/shards/{shard}/checkpoint", Action.WORK, errors=(ServiceNotFound,)
)
async def show_checkpoint(call: HttpCall[None, NoQuery]) -> CheckpointView:
    """Show the checkpoint of a shard."""
    access.check_service(call.caller, call.path["name"])
    return await _current_view(call)


async def _current_view(call: HttpCall[Any, Any]) -> CheckpointView:
    service, shard, queries = call.path["name"], _shard(call), call.coordinator.queries
    saved = await queries.services.checkpoint(service, shard)
    if saved is not None:
        return CheckpointView(
            service=service,
            shard=shard,
            epoch=saved.epoch,
            value=saved.value,
            saved_at_ms=saved.saved_at_ms,
        )
    if not await queries.services.exists(service):
        raise ServiceNotFound(service)
    return CheckpointView(service=service, shard=shard, epoch=0, value=NULL)


def _shard(call: HttpCall[Any, Any]) -> int:
    text = call.path["shard"]
    if text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS:
        shard = int(text)
        if shard < limits.MAX_SHARDS:
            return shard
    raise invalid_field("shard", f"a number from 0 to {limits.MAX_SHARDS - 1}")
