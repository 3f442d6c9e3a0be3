"""Locks over HTTP: acquire, renew, release, look."""

from typing import Annotated, Any

from msgspec import Meta

from rota.core import access, limits
from rota.core.access import Action
from rota.core.locks import (
    AcquireLock,
    LeaveLine,
    LockAnswer,
    LockFigures,
    ReleaseLock,
    RenewLock,
)
from rota.errors import LockLost, TooMany
from rota.gateways.http.bodies import invalid_field
from rota.gateways.http.endpoint import Call, Endpoint, NoQuery
from rota.messages import Name, Request
from rota.messages.keeping import LockAcquire, LockPage, LockRelease, LockRenew, LockView


class LocksQuery(Request, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=limits.MAX_PAGE)] = limits.DEFAULT_PAGE
    cursor: Annotated[
        Name | None, Meta(description="`next_cursor` of the page before this one.")
    ] = None


async def acquire(call: Call[LockAcquire, NoQuery]) -> LockView:
    body, coordinator = call.body, call.coordinator
    event = AcquireLock(
        name=_name(call), owner=body.owner, ttl_ms=body.ttl_ms, wait_ms=body.wait_ms
    )
    if not body.wait_ms:
        return _answered(await coordinator.lock(event))

    async def let_go(answer: LockAnswer) -> None:
        if answer.asked is not None:
            leave = LeaveLine(name=answer.name, owner=answer.owner, asked=answer.asked)
            await coordinator.lock(leave)

    return _answered(await call.while_connected(coordinator.acquire(event), undo=let_go))


async def renew(call: Call[LockRenew, NoQuery]) -> LockView:
    body = call.body
    event = RenewLock(name=_name(call), owner=body.owner, fence=body.fence, ttl_ms=body.ttl_ms)
    return _answered(await call.coordinator.lock(event))


async def release(call: Call[LockRelease, NoQuery]) -> LockView:
    event = ReleaseLock(name=_name(call), owner=call.body.owner, fence=call.body.fence)
    return _answered(await call.coordinator.lock(event))


async def show(call: Call[None, NoQuery]) -> LockView:
    return _looked_at(await call.coordinator.queries.lock(_name(call)))


async def listing(call: Call[None, LocksQuery]) -> LockPage:
    access.check_unbound(call.caller, "locks")
    limit = call.query.limit
    found = await call.coordinator.queries.locks(after=call.query.cursor or "", limit=limit + 1)
    page = found[:limit]
    return LockPage(
        items=[_looked_at(lock) for lock in page],
        next_cursor=page[-1].name if len(found) > limit else None,
    )


def _name(call: Call[Any, Any]) -> str:
    access.check_unbound(call.caller, "locks")
    if len(call.parameter) > limits.MAX_NAME_LENGTH:
        raise invalid_field("name", f"has at most {limits.MAX_NAME_LENGTH} characters")
    return call.parameter


def _answered(answer: LockAnswer) -> LockView:
    return LockView(
        name=answer.name,
        acquired=answer.acquired,
        fence=answer.fence,
        holder=answer.holder,
        expires_at_ms=answer.expires_at_ms,
        position=answer.position,
    )


def _looked_at(lock: LockFigures) -> LockView:
    return LockView(
        name=lock.name,
        acquired=False,
        fence=lock.fence,
        holder=lock.owner,
        expires_at_ms=lock.expires_at_ms,
        waiting=lock.waiting,
    )


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/api/locks",
        summary="List the locks that somebody has",
        noun="Locks",
        action=Action.RECALL,
        handler=listing,
        query=LocksQuery,
        answer=LockPage,
    ),
    Endpoint(
        method="GET",
        path="/api/locks/{name}",
        summary="Look who has a lock, and how many wait for it",
        noun="Locks",
        action=Action.RECALL,
        handler=show,
        answer=LockView,
    ),
    Endpoint(
        method="POST",
        path="/api/locks/{name}/acquire",
        summary="Take a lock, or stand in line for it",
        noun="Locks",
        action=Action.KEEP,
        handler=acquire,
        body=LockAcquire,
        is_body_needed=True,
        answer=LockView,
        errors=(TooMany,),
        description="Always 200: `acquired` says whether the caller has it, and `holder` who does.",
    ),
    Endpoint(
        method="POST",
        path="/api/locks/{name}/renew",
        summary="Keep a lock for longer",
        noun="Locks",
        action=Action.KEEP,
        handler=renew,
        body=LockRenew,
        is_body_needed=True,
        answer=LockView,
        errors=(LockLost,),
    ),
    Endpoint(
        method="POST",
        path="/api/locks/{name}/release",
        summary="Let go of a lock",
        noun="Locks",
        action=Action.KEEP,
        handler=release,
        body=LockRelease,
        is_body_needed=True,
        answer=LockView,
        errors=(LockLost,),
    ),
)
