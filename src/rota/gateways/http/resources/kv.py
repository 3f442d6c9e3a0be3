"""The key-value store over HTTP: put, show, list, delete."""

from typing import Annotated, Any

from msgspec import Meta, Raw

from rota.core import access, limits
from rota.core.access import Action
from rota.core.kv import DeleteValue, KvEntry, PutValue
from rota.core.quotas import owner_of_stored
from rota.core.tasks.values import check_value
from rota.errors import KeyNotFound, TooMany, VersionConflict
from rota.gateways.http.routing.endpoint import HttpCall, NoQuery, Routes
from rota.gateways.http.routing.parameters import PageQuery
from rota.gateways.quotas import is_operator
from rota.gateways.validation import invalid_field
from rota.messages import Request
from rota.messages.kv import MemoryDeleted, MemoryKey, MemoryPage, MemoryPut, MemoryView, Version

UNREADABLE = "\ufffd"  # the character for bytes that cannot be decoded

routes = Routes("Memory", takes_slashes=True)


class MemoryQuery(PageQuery, frozen=True, kw_only=True):
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
    cursor: Annotated[
        MemoryKey | None, Meta(description="`next_cursor` of the page before this one.")
    ] = None


class DeleteQuery(Request, frozen=True, kw_only=True):
    if_version: Annotated[
        Version | None, Meta(description="Only if the key still has this version.")
    ] = None


@routes.put("/api/memory/{key}", Action.KEEP, errors=(VersionConflict, TooMany))
async def put(call: HttpCall[MemoryPut, NoQuery]) -> MemoryView:
    """Store a value under a key."""
    body = call.body
    check_value(body.value, "value", most_bytes=call.settings.max_payload_bytes)
    command = PutValue(
        key=_key(call),
        value=body.value,
        ttl_ms=body.ttl_ms,
        if_version=body.if_version,
        by_operator=is_operator(call.caller),
        owner=owner_of_stored(call.caller),
    )
    return _view(await call.coordinator.execute(command))


@routes.get("/api/memory/{key}", Action.RECALL, errors=(KeyNotFound,))
async def show(call: HttpCall[None, NoQuery]) -> MemoryView:
    """Show the value of a key."""
    entry = await call.coordinator.queries.kv.get(_key(call))
    if entry is None:
        raise KeyNotFound(call.path["key"])
    return _view(entry)


@routes.delete("/api/memory/{key}", Action.KEEP, errors=(KeyNotFound, VersionConflict))
async def delete(call: HttpCall[None, DeleteQuery]) -> MemoryDeleted:
    """Delete a key."""
    command = DeleteValue(key=_key(call), if_version=call.query.if_version)
    gone = await call.coordinator.execute(command)
    return MemoryDeleted(key=gone.key, version=gone.version)


@routes.get("/api/memory", Action.RECALL)
async def listing(call: HttpCall[None, MemoryQuery]) -> MemoryPage:
    """List keys and values by prefix or pattern."""
    access.check_unbound(call.caller, "values")
    query = call.query
    if query.prefix is not None and query.pattern is not None:
        raise invalid_field("pattern", "give this or prefix, not both")
    if "\0" in (query.pattern or ""):
        raise invalid_field("pattern", "must not contain a NUL character")
    entries, has_more = await call.coordinator.queries.kv.page(
        prefix=query.prefix, pattern=query.pattern, after=query.cursor or "", limit=query.limit
    )
    return MemoryPage(
        items=[_view(entry) for entry in entries],
        next_cursor=entries[-1].key if has_more else None,
    )


def _key(call: HttpCall[Any, Any]) -> str:
    access.check_unbound(call.caller, "values")
    key = call.path["key"]
    if len(key) > limits.MAX_KEY_LENGTH:
        raise invalid_field("key", f"has at most {limits.MAX_KEY_LENGTH} characters")
    if "\0" in key:
        raise invalid_field("key", "must not contain a NUL character")
    if UNREADABLE in key:
        raise invalid_field("key", "is not valid UTF-8")
    return key


def _view(entry: KvEntry) -> MemoryView:
    return MemoryView(
        key=entry.key,
        value=Raw(entry.value),
        version=entry.version,
        updated_at_ms=entry.updated_at_ms,
        expires_at_ms=entry.expires_at_ms,
    )
