"""API calls about values and locks."""

from rota.messages.kv import (
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
from rota.sdk.client.requests import ApiCall, delete, get, path_at, post, put

# --- values ----------------------------------------------------------------------------------


def get_value(key: str) -> ApiCall[MemoryView]:
    return get(path_at("memory", key), MemoryView)


def put_value(key: str, request: MemoryPut) -> ApiCall[MemoryView]:
    """Store a value. A conditional request is not repeatable: its own first arrival breaks it."""
    is_repeatable = request.if_version is None
    return put(path_at("memory", key), MemoryView, request, is_repeatable=is_repeatable)


def delete_value(key: str, *, if_version: int | None = None) -> ApiCall[MemoryDeleted]:
    return delete(path_at("memory", key, if_version=if_version), MemoryDeleted)


def list_values(
    *,
    prefix: str | None = None,
    pattern: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> ApiCall[MemoryPage]:
    wanted = {"prefix": prefix, "pattern": pattern, "limit": limit, "cursor": cursor}
    return get("/api/memory", MemoryPage, wanted.items())


# --- locks -----------------------------------------------------------------------------------


def acquire_lock(name: str, request: LockAcquire) -> ApiCall[LockView]:
    """Take a lock, or wait for it; repeating the call with the same owner is safe."""
    path = path_at("locks", name, "acquire")
    return post(path, LockView, request, is_repeatable=True, wait_ms=request.wait_ms)


def renew_lock(name: str, request: LockRenew) -> ApiCall[LockView]:
    return post(path_at("locks", name, "renew"), LockView, request, is_repeatable=True)


def release_lock(name: str, request: LockRelease) -> ApiCall[LockView]:
    return post(path_at("locks", name, "release"), LockView, request)


def get_lock(name: str) -> ApiCall[LockView]:
    return get(path_at("locks", name), LockView)


def list_locks(*, limit: int | None = None, cursor: str | None = None) -> ApiCall[LockPage]:
    return get("/api/locks", LockPage, [("limit", limit), ("cursor", cursor)])
