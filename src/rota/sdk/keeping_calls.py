"""What can be asked of a coordinator about values and locks? As `calls`, for those nouns."""

import msgspec

from rota.messages.keeping import (
    LockAcquire,
    LockPage,
    LockRelease,
    LockRenew,
    LockView,
    MemoryDeleted,
    MemoryPage,
    MemoryPut,
    MemoryView,
)
from rota.sdk.requests import Call, decoder_of, get, path_at, post

# --- values ----------------------------------------------------------------------------------


def get_value(key: str) -> Call[MemoryView]:
    return get(path_at("memory", key), MemoryView)


def put_value(key: str, request: MemoryPut) -> Call[MemoryView]:
    """Keep a value. On condition it is sent once: said again, it would not hold any more."""
    return Call(
        method="PUT",
        path=path_at("memory", key),
        decoder=decoder_of(MemoryView),
        body=msgspec.json.encode(request),
        is_repeatable=request.if_version is None,
    )


def delete_value(key: str, *, if_version: int | None = None) -> Call[MemoryDeleted]:
    path = path_at("memory", key)
    if if_version is not None:
        path += f"?if_version={if_version}"
    return Call(method="DELETE", path=path, decoder=decoder_of(MemoryDeleted))


def list_values(
    *,
    prefix: str | None = None,
    pattern: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[MemoryPage]:
    wanted = {"prefix": prefix, "pattern": pattern, "limit": limit, "cursor": cursor}
    return get("/api/memory", MemoryPage, wanted.items())


# --- locks -----------------------------------------------------------------------------------


def acquire_lock(name: str, request: LockAcquire) -> Call[LockView]:
    """Take a lock, or wait for it; said again by the same owner it does no more."""
    path = path_at("locks", name, "acquire")
    return post(path, LockView, request, is_repeatable=True, wait_ms=request.wait_ms)


def renew_lock(name: str, request: LockRenew) -> Call[LockView]:
    return post(path_at("locks", name, "renew"), LockView, request, is_repeatable=True)


def release_lock(name: str, request: LockRelease) -> Call[LockView]:
    return post(path_at("locks", name, "release"), LockView, request)


def get_lock(name: str) -> Call[LockView]:
    return get(path_at("locks", name), LockView)


def list_locks(*, limit: int | None = None, cursor: str | None = None) -> Call[LockPage]:
    return get("/api/locks", LockPage, [("limit", limit), ("cursor", cursor)])
