"""Workers over HTTP, as operators see them: who is there, how are they, and who is best?"""

import base64
import binascii
from typing import Annotated

from msgspec import Meta

from rota.core import access, limits
from rota.core.access import Action
from rota.core.events import LeaveWorker, SetWorkerState
from rota.core.replies import Done, Registered
from rota.core.workers import Health, WorkerState
from rota.engine.queries import WorkerFigures
from rota.errors import StaleIncarnation, WorkerNotFound
from rota.gateways.http import reports, work
from rota.gateways.http.bodies import invalid_field
from rota.gateways.http.endpoint import Call, Endpoint, NoQuery
from rota.gateways.http.worker_views import worker_view
from rota.messages import (
    Incarnation,
    Name,
    NoFields,
    Request,
    WorkerLeft,
    WorkerPage,
    WorkerView,
)


class WorkersQuery(Request, frozen=True, kw_only=True):
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
    cursor: Annotated[
        str | None, Meta(description="`next_cursor` of the page before this one.")
    ] = None


class IncarnationQuery(Request, frozen=True, kw_only=True):
    incarnation: Annotated[
        Incarnation | None, Meta(description="Leave only if this one is still current.")
    ] = None


async def listing(call: Call[None, WorkersQuery]) -> WorkerPage:
    query = call.query
    views = [
        view
        for figures in await call.coordinator.queries.workers()
        if _matches(view := _view(call, figures, is_ranked=query.rank), query)
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
            raise invalid_field("cursor", "that worker has left the list; start again")
        else:
            views = [view for view in views if view.id > last]
    page = views[: query.limit]
    return WorkerPage(
        items=page, next_cursor=_cursor(page[-1].id) if len(views) > len(page) else None
    )


def _cursor(worker_id: str) -> str:
    return base64.urlsafe_b64encode(worker_id.encode()).decode()


def _worker_before(cursor: str) -> str:
    try:
        return base64.b64decode(cursor.encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError):
        raise invalid_field("cursor", "not one of ours; take `next_cursor` as it came") from None


def _view(call: Call[None, WorkersQuery], figures: WorkerFigures, *, is_ranked: bool) -> WorkerView:
    now_ms = call.coordinator.clock.now_ms()
    return worker_view(figures, now_ms=now_ms, settings=call.settings, is_ranked=is_ranked)


async def show(call: Call[None, NoQuery]) -> WorkerView:
    return await work.current_view(call, call.parameter)


async def leave(call: Call[None, IncarnationQuery]) -> WorkerLeft:
    worker_id = await work.acting_worker(call)
    event = LeaveWorker(worker_id=worker_id, incarnation=call.query.incarnation)
    reply = await call.coordinator.handle(event)
    assert isinstance(reply, Done)
    return WorkerLeft(id=worker_id, released=reply.count)


async def drain(call: Call[NoFields | None, NoQuery]) -> WorkerView:
    return await _set_state(call, WorkerState.DRAINING)


async def resume(call: Call[NoFields | None, NoQuery]) -> WorkerView:
    return await _set_state(call, WorkerState.ACTIVE)


async def quarantine(call: Call[NoFields | None, NoQuery]) -> WorkerView:
    return await _set_state(call, WorkerState.QUARANTINED)


async def _set_state(call: Call[NoFields | None, NoQuery], state: WorkerState) -> WorkerView:
    access.check_worker(call.caller, call.parameter)
    event = SetWorkerState(worker_id=call.parameter, state=state)
    reply = await call.coordinator.handle(event)
    assert isinstance(reply, Registered)
    return await work.current_view(call, reply.worker.id)


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/api/workers",
        summary="Find workers",
        noun="Workers",
        action=Action.READ,
        handler=listing,
        query=WorkersQuery,
        answer=WorkerPage,
    ),
    Endpoint(
        method="GET",
        path="/api/workers/{worker_id}",
        summary="Show a worker",
        noun="Workers",
        action=Action.READ,
        handler=show,
        answer=WorkerView,
        errors=(WorkerNotFound,),
    ),
    Endpoint(
        method="DELETE",
        path="/api/workers/{worker_id}",
        summary="Leave: leases are released at once, without using up an attempt",
        noun="Workers",
        action=Action.WORK,
        handler=leave,
        query=IncarnationQuery,
        answer=WorkerLeft,
        errors=(WorkerNotFound, StaleIncarnation),
    ),
    *(
        Endpoint(
            method="POST",
            path=f"/api/workers/{{worker_id}}/{verb}",
            summary=summary,
            noun="Workers",
            action=Action.OPERATE,
            handler=handler,
            answer=WorkerView,
            errors=(WorkerNotFound,),
        )
        for verb, handler, summary in (
            ("drain", drain, "Let a worker finish what it holds, and give it nothing new"),
            ("resume", resume, "Give a worker work again"),
            ("quarantine", quarantine, "Keep a worker from new work because of how it works"),
        )
    ),
    *work.ENDPOINTS,
    *reports.ENDPOINTS,
)
