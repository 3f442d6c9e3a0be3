"""Memory over HTTP: put, look, list, delete."""

from typing import Annotated, Any

from msgspec import Meta, Raw

from rota.core import access, limits
from rota.core.access import Action
from rota.core.memory import DeleteMemory, MemoryEntry, PutMemory
from rota.core.values import check_value
from rota.errors import KeyNotFound, VersionConflict
from rota.gateways.http.bodies import invalid_field
from rota.gateways.http.endpoint import Call, Endpoint, NoQuery
from rota.messages import Request
from rota.messages.keeping import (
    MemoryDeleted,
    MemoryKey,
    MemoryPage,
    MemoryPut,
    MemoryView,
    Version,
)

UNREADABLE = "\ufffd"  # what stands where a path could not be decoded


class MemoryQuery(Request, frozen=True, kw_only=True):
    prefix: Annotated[
        MemoryKey | None, Meta(description="Keys that begin with this; a namespace ends in `/`.")
    ] = None
    pattern: Annotated[
        MemoryKey | None,
        Meta(
            description="Keys that match this as a whole: `*` any text, `?` one character, `[ab]` "
            "one of these, `[^ab]` none of these."
        ),
    ] = None
    limit: Annotated[int, Meta(ge=1, le=limits.MAX_PAGE)] = limits.DEFAULT_PAGE
    cursor: Annotated[
        MemoryKey | None, Meta(description="`next_cursor` of the page before this one.")
    ] = None


class DeleteQuery(Request, frozen=True, kw_only=True):
    if_version: Annotated[
        Version | None, Meta(description="Only if the key has this version still.")
    ] = None


async def put(call: Call[MemoryPut, NoQuery]) -> MemoryView:
    body = call.body
    check_value(body.value, "value", most_bytes=call.settings.max_payload_bytes)
    event = PutMemory(
        key=_key(call), value=body.value, ttl_ms=body.ttl_ms, if_version=body.if_version
    )
    return _view(await call.coordinator.keep(event))


async def show(call: Call[None, NoQuery]) -> MemoryView:
    entry = await call.coordinator.queries.memory(_key(call))
    if entry is None:
        raise KeyNotFound(call.parameter)
    return _view(entry)


async def delete(call: Call[None, DeleteQuery]) -> MemoryDeleted:
    event = DeleteMemory(key=_key(call), if_version=call.query.if_version)
    gone = await call.coordinator.keep(event)
    return MemoryDeleted(key=gone.key, version=gone.version)


async def listing(call: Call[None, MemoryQuery]) -> MemoryPage:
    access.check_unbound(call.caller, "values")
    query = call.query
    if query.prefix is not None and query.pattern is not None:
        raise invalid_field("pattern", "give this or prefix, not both")
    if "\0" in (query.pattern or ""):
        raise invalid_field("pattern", "has a NUL in it, and no key has")
    entries, is_more = await call.coordinator.queries.memories(
        prefix=query.prefix, pattern=query.pattern, after=query.cursor or "", limit=query.limit
    )
    return MemoryPage(
        items=[_view(entry) for entry in entries],
        next_cursor=entries[-1].key if is_more else None,
    )


def _key(call: Call[Any, Any]) -> str:
    access.check_unbound(call.caller, "values")
    key = call.parameter
    if len(key) > limits.MAX_KEY_LENGTH:
        raise invalid_field("key", f"has at most {limits.MAX_KEY_LENGTH} characters")
    if "\0" in key:
        raise invalid_field("key", "has a NUL in it, where a pattern would see its end")
    if UNREADABLE in key:
        raise invalid_field("key", "is not valid UTF-8, and would be the same as others")
    return key


def _view(entry: MemoryEntry) -> MemoryView:
    return MemoryView(
        key=entry.key,
        value=Raw(entry.value),
        version=entry.version,
        updated_at_ms=entry.updated_at_ms,
        expires_at_ms=entry.expires_at_ms,
    )


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/api/memory",
        summary="List keys and values by prefix or pattern",
        noun="Memory",
        action=Action.RECALL,
        handler=listing,
        query=MemoryQuery,
        answer=MemoryPage,
    ),
    Endpoint(
        method="PUT",
        path="/api/memory/{key}",
        summary="Keep a value under a key",
        noun="Memory",
        action=Action.KEEP,
        handler=put,
        body=MemoryPut,
        is_body_needed=True,
        answer=MemoryView,
        errors=(VersionConflict,),
    ),
    Endpoint(
        method="GET",
        path="/api/memory/{key}",
        summary="Look up the value of a key",
        noun="Memory",
        action=Action.RECALL,
        handler=show,
        answer=MemoryView,
        errors=(KeyNotFound,),
    ),
    Endpoint(
        method="DELETE",
        path="/api/memory/{key}",
        summary="Forget the value of a key",
        noun="Memory",
        action=Action.KEEP,
        handler=delete,
        query=DeleteQuery,
        answer=MemoryDeleted,
        errors=(KeyNotFound, VersionConflict),
    ),
)
