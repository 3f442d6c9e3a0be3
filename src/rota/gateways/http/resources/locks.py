"""Locks over HTTP: acquire, renew, release, show, list."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from rota.core import access
from rota.core.access import Action
from rota.core.locks import (
    AcquireLock,
    LeaveLockQueue,
    LockAnswer,
    LockStatus,
    ReleaseLock,
    RenewLock,
)
from rota.errors import LockLost, TooMany
from rota.gateways.http.routing.endpoint import HttpCall, NoQuery, Routes
from rota.gateways.http.routing.parameters import PageQuery, page_of
from rota.gateways.validation import checked_name
from rota.messages import Name
from rota.messages.kv import LockAcquire, LockPage, LockRelease, LockRenew, LockView

routes = Routes("Locks")


class LocksQuery(PageQuery, frozen=True, kw_only=True):
    cursor: Annotated[
        Name | None, Meta(description="`next_cursor` of the page before this one.")
    ] = None


@routes.post("/api/locks/{name}/acquire", Action.KEEP, errors=(TooMany,))
async def acquire(call: HttpCall[LockAcquire, NoQuery]) -> LockView:
    """Take a lock, or wait for it.

    Always 200: `acquired` is whether the caller has it, and `holder` is its holder.
    """
    body, coordinator = call.body, call.coordinator
    command = AcquireLock(
        name=_name(call), owner=body.owner, ttl_ms=body.ttl_ms, wait_ms=body.wait_ms
    )
    if not body.wait_ms:
        return _answer_view(await coordinator.execute(command))

    async def let_go(answer: LockAnswer) -> None:
        if answer.asked is not None:
            leave = LeaveLockQueue(name=answer.name, owner=answer.owner, asked=answer.asked)
            await coordinator.execute(leave)

    return _answer_view(await call.while_connected(coordinator.execute(command), undo=let_go))


@routes.post("/api/locks/{name}/renew", Action.KEEP, keeps_work=True, errors=(LockLost,))
async def renew(call: HttpCall[LockRenew, NoQuery]) -> LockView:
    """Renew a lock that is held."""
    body = call.body
    command = RenewLock(name=_name(call), owner=body.owner, fence=body.fence, ttl_ms=body.ttl_ms)
    return _answer_view(await call.coordinator.execute(command))


@routes.post("/api/locks/{name}/release", Action.KEEP, keeps_work=True, errors=(LockLost,))
async def release(call: HttpCall[LockRelease, NoQuery]) -> LockView:
    """Release a lock."""
    command = ReleaseLock(name=_name(call), owner=call.body.owner, fence=call.body.fence)
    return _answer_view(await call.coordinator.execute(command))


@routes.get("/api/locks/{name}", Action.RECALL)
async def show(call: HttpCall[None, NoQuery]) -> LockView:
    """Show the holder of a lock, and how many wait for it."""
    return _status_view(await call.coordinator.queries.locks.status(_name(call)))


@routes.get("/api/locks", Action.RECALL)
async def listing(call: HttpCall[None, LocksQuery]) -> LockPage:
    """List the locks that are held."""
    access.check_unbound(call.caller, "locks")
    limit = call.query.limit
    found = await call.coordinator.queries.locks.page(
        after=call.query.cursor or "", limit=limit + 1
    )
    page, next_cursor = page_of(found, limit, lambda lock: lock.name)
    return LockPage(items=[_status_view(lock) for lock in page], next_cursor=next_cursor)


def _name(call: HttpCall[Any, Any]) -> str:
    access.check_unbound(call.caller, "locks")
    return checked_name(call.path["name"], "name")


def _answer_view(answer: LockAnswer) -> LockView:
    return msgspec.convert(answer, LockView, from_attributes=True)


def _status_view(lock: LockStatus) -> LockView:
    return LockView(
        name=lock.name,
        acquired=False,
        fence=lock.fence,
        holder=lock.owner,
        expires_at_ms=lock.expires_at_ms,
        waiting=lock.waiting,
    )
