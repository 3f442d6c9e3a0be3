"""Queues over HTTP: their depth, pausing, the backlog and the last hour."""

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta

from rota.core import access, limits
from rota.core.access import Action, Caller
from rota.core.commands import PauseQueue
from rota.core.dispatch.limit_reasons import explain_blocked
from rota.core.dispatch.wait_reasons import Explanation
from rota.core.flows.commands import ChangeSettings, LookAtBlocked, LookAtTenants, QueueChange
from rota.engine.metrics.time_series import SLOT_MS, SLOTS, TimeSeries, Track
from rota.engine.queries.dashboard import Backlog
from rota.errors import QueueNotFound
from rota.gateways.http.routing.endpoint import HttpCall, NoQuery, Routes
from rota.gateways.http.views.tasks import wait_reason_view
from rota.messages import BacklogPage, BacklogView, Name, NoFields, QueuePage, QueueView, Request
from rota.messages.dashboard import SeriesPage, SeriesView
from rota.messages.limits import QueuePatch, TenantPage, TenantView

MOST_CHARTED = 8  # queues that are charted when the caller names none

routes = Routes("Queues")


class SeriesQuery(Request, frozen=True, kw_only=True):
    queue: Annotated[
        tuple[Name, ...],
        Meta(
            max_length=20,
            description="These queues; repeated. Absent: the sum of all, and the busiest.",
        ),
    ] = ()


class TenantsQuery(Request, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=limits.MAX_TENANTS_SHOWN)] = 20


@routes.get("/api/queues", Action.READ)
async def listing(call: HttpCall[None, NoQuery]) -> QueuePage:
    """List queues with depth, oldest age and rates."""
    queues = [
        msgspec.convert(figures, QueueView, from_attributes=True)
        for figures in await call.coordinator.queries.queues.all()
    ]
    own = call.caller.queues
    return QueuePage(items=[view for view in queues if own is None or view.name in own])


@routes.post("/api/queues/{queue}/pause", Action.OPERATE, errors=(QueueNotFound,))
async def pause(call: HttpCall[NoFields | None, NoQuery]) -> QueueView:
    """Pause a queue: its tasks are not leased."""
    return await _set_paused(call, paused=True)


@routes.post("/api/queues/{queue}/resume", Action.OPERATE, errors=(QueueNotFound,))
async def resume(call: HttpCall[NoFields | None, NoQuery]) -> QueueView:
    """Resume a paused queue."""
    return await _set_paused(call, paused=False)


@routes.patch("/api/queues/{queue}", Action.OPERATE, errors=(QueueNotFound,))
async def change(call: HttpCall[QueuePatch, NoQuery]) -> QueueView:
    """Change the settings of a queue.

    They hold at once, also for what already waits. A queue need not exist yet.
    """
    queue, body = _queue(call), call.body
    given = {
        name: value
        for name in QueueChange.__struct_fields__
        if (value := getattr(body, name)) is not UNSET
    }
    await call.coordinator.execute(ChangeSettings(queue=queue, change=QueueChange(**given)))
    if body.paused is not UNSET:
        await call.coordinator.execute(PauseQueue(queue=queue, paused=body.paused))
    return await _shown(call, queue)


@routes.get("/api/queues/{queue}/tenants", Action.READ, errors=(QueueNotFound,))
async def tenants(call: HttpCall[None, TenantsQuery]) -> TenantPage:
    """List the tenants of a queue that have the most tasks, with their shares."""
    found = await call.coordinator.execute(LookAtTenants(queue=_queue(call), most=call.query.limit))
    items = [msgspec.convert(one, TenantView, from_attributes=True) for one in found.items]
    return TenantPage(items=items, total=found.total)


async def _set_paused(call: HttpCall[NoFields | None, NoQuery], *, paused: bool) -> QueueView:
    queue = _queue(call)
    await call.coordinator.execute(PauseQueue(queue=queue, paused=paused))
    return await _shown(call, queue, paused=paused)


def _queue(call: HttpCall[Any, Any]) -> str:
    queue = call.path["queue"]
    if len(queue) > limits.MAX_NAME_LENGTH:
        raise QueueNotFound(queue)
    access.check_queue(call.caller, queue)
    return queue


async def _shown(call: HttpCall[Any, NoQuery], queue: str, *, paused: bool = False) -> QueueView:
    for figures in await call.coordinator.queries.queues.all():
        if figures.name == queue:
            return msgspec.convert(figures, QueueView, from_attributes=True)
    # The queue is empty, and no longer has a row.
    return QueueView(name=queue, paused=paused, depth=0, scheduled=0, running=0)


# --- the backlog ------------------------------------------------------------------------------


@routes.get("/api/backlog", Action.READ)
async def backlog(call: HttpCall[None, NoQuery]) -> BacklogPage:
    """List the waiting tasks by lane, and why they wait.

    Tasks of one queue and name that require the same are one row. What is stuck comes first: a
    paused queue, no worker that could take it, workers held back or silent.
    """
    now_ms = call.coordinator.clock.now_ms()
    own = call.caller.queues
    found = await call.coordinator.queries.dashboard.backlog()
    blocked = {
        one.lane: explain_blocked(one, shows_counts=not call.caller.is_bound)
        for one in (await call.coordinator.execute(LookAtBlocked())).items
    }
    views = [
        _waiting(one, blocked.get(one.lane), now_ms, call.caller)
        for one in found
        if own is None or one.lane.queue in own
    ]
    views.sort(key=lambda view: (not view.why.is_stuck, -view.queued, view.queue, view.name))
    return BacklogPage(items=views)


def _waiting(one: Backlog, limit: Explanation | None, now_ms: int, caller: Caller) -> BacklogView:
    """Limit: what all queued tasks wait for; a lane that is stuck stays so when it has room."""
    since_ms = one.figures.oldest_since_ms
    why = one.why if limit is None or one.why.is_stuck else limit
    return BacklogView(
        queue=one.lane.queue,
        name=one.lane.name,
        requires=one.lane.requires,
        queued=one.figures.queued,
        scheduled=one.figures.scheduled,
        running=one.figures.running,
        oldest_age_ms=None if since_ms is None else max(0, now_ms - since_ms),
        why=wait_reason_view(why, one.lane.queue, caller),
    )


# --- the last hour ------------------------------------------------------------------------------


@routes.get("/api/series", Action.READ)
async def series(call: HttpCall[None, SeriesQuery]) -> SeriesPage:
    """Show the last hour of queues, in slots of ten seconds.

    Kept over restarts, minute by minute; a crash costs the last one.
    """
    found = call.coordinator.metrics().series
    first = call.coordinator.clock.now_ms() // SLOT_MS - SLOTS + 1
    return SeriesPage(
        items=[_charted(name, track, first) for name, track in _tracks(call, found)],
        start_ms=first * SLOT_MS,
        slot_ms=SLOT_MS,
    )


def _tracks(call: HttpCall[None, SeriesQuery], found: TimeSeries) -> list[tuple[str | None, Track]]:
    asked, own = call.query.queue, call.caller.queues
    for queue in asked:
        access.check_queue(call.caller, queue)
    tracks: list[tuple[str | None, Track]] = []
    if asked:
        named = asked
    elif own is not None:
        # A token that is bound to services alone has no queue, and is shown none.
        named = own[:MOST_CHARTED]
    else:
        named = tuple(found.busiest(MOST_CHARTED))
        tracks.append((None, found.all))
    return [*tracks, *((name, found.queues[name]) for name in named if name in found.queues)]


def _charted(queue: str | None, track: Track, first: int) -> SeriesView:
    return SeriesView(queue=queue, **track.span(first, SLOTS)._asdict())
