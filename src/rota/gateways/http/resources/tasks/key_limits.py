"""Limits of keys over HTTP: list, show, set, unpin, and uses outside tasks."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from rota.core import access, limits
from rota.core.access import Action
from rota.core.flows.commands import (
    ConsumeLimit,
    DropLimit,
    LimitState,
    LookAtLimits,
    PutLimit,
    RecountLimits,
)
from rota.core.flows.model import FIRST_KEY, LimitKind
from rota.errors import IllegalState, LimitNotFound, TooMany
from rota.gateways.http.routing.endpoint import HttpCall, NoQuery, Routes
from rota.gateways.http.routing.parameters import PageQuery
from rota.gateways.validation import invalid_field
from rota.messages.limits import (
    KeyLimitDeleted,
    KeyLimitPage,
    KeyLimitPut,
    KeyLimitView,
    LimitConsume,
    LimitConsumed,
    LimitRecountView,
)

KeyText = Annotated[str, Meta(max_length=limits.MAX_LIMIT_KEY_LENGTH)]

routes = Routes("Limits", takes_slashes=True)


class LimitsQuery(PageQuery, frozen=True, kw_only=True):
    kind: LimitKind | None = None
    prefix: Annotated[KeyText | None, Meta(description="Keys that begin with this.")] = None
    cursor: Annotated[
        KeyText | None, Meta(description="`next_cursor` of the page before this one.")
    ] = None


@routes.get("/api/limits", Action.READ)
async def listing(call: HttpCall[None, LimitsQuery]) -> KeyLimitPage:
    """List limits by kind or prefix, in the order of their keys."""
    access.check_unbound(call.caller, "limits")
    query = call.query
    keys, cursor = await call.coordinator.queries.limits.keys(
        prefix=query.prefix or "", kind=query.kind, after=query.cursor or "", limit=query.limit
    )
    states = await call.coordinator.execute(LookAtLimits(keys=tuple(keys)))
    return KeyLimitPage(items=[_view(one) for one in states.items], next_cursor=cursor)


@routes.get("/api/recount/limits", Action.OPERATE)
async def recount(call: HttpCall[None, NoQuery]) -> LimitRecountView:
    """Recount all limits from leases and queued tasks.

    Reads all leases and the number of queued tasks of each flow, in the coordinator that leads.
    """
    access.check_unbound(call.caller, "limits")
    found = await call.coordinator.execute(RecountLimits())
    return msgspec.convert(found, LimitRecountView, from_attributes=True)


@routes.get("/api/limits/{key}", Action.READ, errors=(LimitNotFound,))
async def show(call: HttpCall[None, NoQuery]) -> KeyLimitView:
    """Show a limit, and how much of it is used."""
    key = _key(call)
    for state in (await call.coordinator.execute(LookAtLimits(keys=(key,)))).items:
        return _view(state)
    raise LimitNotFound(key)


@routes.put("/api/limits/{key}", Action.OPERATE, errors=(TooMany,))
async def put(call: HttpCall[KeyLimitPut, NoQuery]) -> KeyLimitView:
    """Set a limit, and pin it.

    It holds at once. Running tasks go on when it is lowered; 0 pauses the key.
    """
    body = call.body
    command = PutLimit(
        key=_key(call),
        limit=body.limit,
        per_ms=body.per_ms,
        burst=body.burst,
        mode=body.mode,
        pinned=body.pinned,
    )
    return _view(await call.coordinator.execute(command))


@routes.delete("/api/limits/{key}", Action.OPERATE, errors=(LimitNotFound,))
async def delete(call: HttpCall[None, NoQuery]) -> KeyLimitDeleted:
    """Unpin a limit.

    What tasks declared last counts again. A limit that no live task names is forgotten.
    """
    key = _key(call)
    left = (await call.coordinator.execute(DropLimit(key=key))).items
    return KeyLimitDeleted(key=key, limit=_view(left[0]) if left else None)


@routes.post("/api/limits/{key}/consume", Action.KEEP, errors=(LimitNotFound, IllegalState))
async def consume(call: HttpCall[LimitConsume | None, NoQuery]) -> LimitConsumed:
    """Count a use of a rate outside tasks, if it is free now."""
    body = call.body or LimitConsume()
    state = await call.coordinator.execute(ConsumeLimit(key=_key(call), cost=body.cost))
    return LimitConsumed(
        key=state.record.key,
        consumed=state.opens_at_ms is None,
        opens_at_ms=state.opens_at_ms,
    )


def _key(call: HttpCall[Any, NoQuery]) -> str:
    access.check_unbound(call.caller, "limits")
    key = call.path["key"]
    if len(key) > limits.MAX_LIMIT_KEY_LENGTH:
        raise invalid_field("key", f"has at most {limits.MAX_LIMIT_KEY_LENGTH} characters")
    if key < FIRST_KEY or "\0" in key:
        raise invalid_field("key", "begins with a control character")
    return key


def _view(state: LimitState) -> KeyLimitView:
    record = state.record
    is_rate = record.kind == "rate"
    return KeyLimitView(
        key=record.key,
        kind=record.kind,
        limit=record.limit,
        running=state.running,
        waiting=state.waiting,
        per_ms=record.per_ms if is_rate else None,
        burst=record.burst if is_rate else None,
        mode=record.mode if is_rate else None,
        opens_at_ms=state.opens_at_ms,
        pinned=record.is_pinned,
    )
