"""Workers as operators see them: list, rank, drain, quarantine."""

import base64
import binascii
from typing import Annotated

from msgspec import Meta

from rota.core import access, limits
from rota.core.access import Action
from rota.core.commands import LeaveWorker, SetWorkerState
from rota.core.replies import Done
from rota.core.workers.model import Health, WorkerState
from rota.engine.queries.workers import WorkerFigures
from rota.errors import StaleIncarnation, WorkerNotFound
from rota.gateways.http.resources.workers import work
from rota.gateways.http.routing.endpoint import HttpCall, NoQuery, Routes
from rota.gateways.http.routing.parameters import PageQuery, invalid_cursor, page_of
from rota.gateways.http.views.workers import worker_view
from rota.gateways.validation import invalid_field
from rota.messages import (
    Incarnation,
    Name,
    NoFields,
    Request,
    WorkerLeft,
    WorkerPage,
    WorkerView,
)

routes = Routes("Workers")


class WorkersQuery(PageQuery, frozen=True, kw_only=True):
    capability: Annotated[
        tuple[Name, ...],
        Meta(max_length=limits.MAX_CAPABILITIES, description="Has all of these; repeated."),
    ] = ()
    health: Annotated[
        tuple[Health, ...], Meta(description="Any of these; repeated or comma separated.")
    ] = ()
    min_available: Annotated[
        int | None, Meta(description="Has room for at least so many tasks.")
    ] = None
    group: Name | None = None
    rank: Annotated[
        bool, Meta(description="Best first, each with its score and the parts of it.")
    ] = False
    limit: Annotated[int, Meta(ge=1, le=limits.MAX_PAGE)] = limits.MAX_PAGE


class IncarnationQuery(Request, frozen=True, kw_only=True):
    incarnation: Annotated[
        Incarnation | None, Meta(description="Leave only if this one is still current.")
    ] = None


@routes.get("/api/workers", Action.READ)
async def listing(call: HttpCall[None, WorkersQuery]) -> WorkerPage:
    """Find workers."""
    query = call.query
    views = [
        view
        for figures in await call.coordinator.queries.workers.all()
        if access.may_see_worker(call.caller, figures.worker.queues)
        and _matches(view := _view(call, figures, is_ranked=query.rank), query)
    ]
    if query.rank:
        views.sort(key=lambda view: (-(view.priority or 0.0), view.id))
    else:
        views.sort(key=lambda view: view.id)
    return _page(views, query)


def _matches(view: WorkerView, query: WorkersQuery) -> bool:
    return (
        set(query.capability).issubset(view.capabilities)
        and (not query.health or view.health in query.health)
        and (query.min_available is None or (view.available_capacity or 0) >= query.min_available)
        and query.group in {None, view.group}
    )


def _page(views: list[WorkerView], query: WorkersQuery) -> WorkerPage:
    if query.cursor is not None:
        last = _worker_before(query.cursor)
        places = [place for place, view in enumerate(views) if view.id == last]
        if places:
            views = views[places[0] + 1 :]
        elif query.rank:
            raise invalid_field(
                "cursor", "the worker of this cursor is gone; start from the first page"
            )
        else:
            views = [view for view in views if view.id > last]
    page, next_cursor = page_of(views, query.limit, lambda view: _cursor(view.id))
    return WorkerPage(items=page, next_cursor=next_cursor)


def _cursor(worker_id: str) -> str:
    return base64.urlsafe_b64encode(worker_id.encode()).decode()


def _worker_before(cursor: str) -> str:
    try:
        return base64.b64decode(cursor.encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError):
        raise invalid_cursor() from None


def _view(
    call: HttpCall[None, WorkersQuery], figures: WorkerFigures, *, is_ranked: bool
) -> WorkerView:
    now_ms = call.coordinator.clock.now_ms()
    return worker_view(figures, now_ms=now_ms, settings=call.settings, is_ranked=is_ranked)


@routes.get("/api/workers/{worker_id}", Action.READ, errors=(WorkerNotFound,))
async def show(call: HttpCall[None, NoQuery]) -> WorkerView:
    """Show a worker."""
    return await work.current_view(call, call.path["worker_id"])


@routes.delete("/api/workers/{worker_id}", Action.WORK, errors=(WorkerNotFound, StaleIncarnation))
async def leave(call: HttpCall[None, IncarnationQuery]) -> WorkerLeft:
    """Remove a worker; its leases are released at once, without using up an attempt."""
    worker_id = work.acting_worker(call)
    command = LeaveWorker(worker_id=worker_id, incarnation=call.query.incarnation, by=call.caller)
    reply = await call.coordinator.execute(command)
    assert isinstance(reply, Done)
    return WorkerLeft(id=worker_id, released=reply.count)


@routes.post("/api/workers/{worker_id}/drain", Action.OPERATE, errors=(WorkerNotFound,))
async def drain(call: HttpCall[NoFields | None, NoQuery]) -> WorkerView:
    """Drain a worker: it finishes its tasks and gets no new ones."""
    return await _set_state(call, WorkerState.DRAINING)


@routes.post("/api/workers/{worker_id}/resume", Action.OPERATE, errors=(WorkerNotFound,))
async def resume(call: HttpCall[NoFields | None, NoQuery]) -> WorkerView:
    """Resume a worker: it gets tasks again."""
    return await _set_state(call, WorkerState.ACTIVE)


@routes.post("/api/workers/{worker_id}/quarantine", Action.OPERATE, errors=(WorkerNotFound,))
async def quarantine(call: HttpCall[NoFields | None, NoQuery]) -> WorkerView:
    """Quarantine a worker: it gets no new tasks because of how it works."""
    return await _set_state(call, WorkerState.QUARANTINED)


async def _set_state(call: HttpCall[NoFields | None, NoQuery], state: WorkerState) -> WorkerView:
    access.check_worker(call.caller, call.path["worker_id"])
    command = SetWorkerState(worker_id=call.path["worker_id"], state=state)
    reply = await call.coordinator.execute(command)
    return await work.current_view(call, reply.worker.id)
