"""Queues over HTTP: how full they are, and whether they give out work."""

import msgspec

from rota.core import access, limits
from rota.core.access import Action
from rota.core.events import PauseQueue
from rota.errors import QueueNotFound
from rota.gateways.http.endpoint import Call, Endpoint, NoQuery
from rota.messages import NoFields, QueuePage, QueueView


async def listing(call: Call[None, NoQuery]) -> QueuePage:
    queues = [
        msgspec.convert(figures, QueueView, from_attributes=True)
        for figures in await call.coordinator.queries.queues()
    ]
    own = call.caller.queues
    return QueuePage(items=[view for view in queues if own is None or view.name in own])


async def pause(call: Call[NoFields | None, NoQuery]) -> QueueView:
    return await _set_paused(call, paused=True)


async def resume(call: Call[NoFields | None, NoQuery]) -> QueueView:
    return await _set_paused(call, paused=False)


async def _set_paused(call: Call[NoFields | None, NoQuery], *, paused: bool) -> QueueView:
    if len(call.parameter) > limits.MAX_NAME_LENGTH:
        raise QueueNotFound(call.parameter)
    access.check_queue(call.caller, call.parameter)
    await call.coordinator.handle(PauseQueue(queue=call.parameter, paused=paused))
    for figures in await call.coordinator.queries.queues():
        if figures.name == call.parameter:
            return msgspec.convert(figures, QueueView, from_attributes=True)
    # Empty, and now as every queue is that nobody ever heard of.
    return QueueView(name=call.parameter, paused=paused, depth=0, scheduled=0, running=0)


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/api/queues",
        summary="List queues with depth, oldest age and rates",
        noun="Queues",
        action=Action.READ,
        handler=listing,
        answer=QueuePage,
    ),
    Endpoint(
        method="POST",
        path="/api/queues/{queue}/pause",
        summary="Give out no more work from a queue",
        noun="Queues",
        action=Action.OPERATE,
        handler=pause,
        answer=QueueView,
        errors=(QueueNotFound,),
    ),
    Endpoint(
        method="POST",
        path="/api/queues/{queue}/resume",
        summary="Give out work from a queue again",
        noun="Queues",
        action=Action.OPERATE,
        handler=resume,
        answer=QueueView,
        errors=(QueueNotFound,),
    ),
)
