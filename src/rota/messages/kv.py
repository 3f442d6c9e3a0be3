"""The key-value store and locks on the wire."""

from typing import Annotated

from msgspec import Meta, Raw

from rota.core import limits
from rota.core.tasks.model import Name
from rota.messages.base import Answer, Fence, Request, WaitMs

MemoryKey = Annotated[str, Meta(min_length=1, max_length=limits.MAX_KEY_LENGTH)]
Version = Annotated[int, Meta(ge=0, le=2**53)]
MemoryTtlMs = Annotated[int, Meta(ge=1, le=limits.MAX_MEMORY_TTL_MS)]
LockTtlMs = Annotated[int, Meta(ge=1, le=limits.MAX_LOCK_TTL_MS)]


class MemoryPut(Request, frozen=True, kw_only=True):
    value: Raw  # any JSON
    ttl_ms: MemoryTtlMs | None = None  # absent: no time limit
    if_version: Version | None = None  # only if the key still has this version; 0: if it is new


class MemoryView(Answer, frozen=True, kw_only=True):
    key: str
    value: Raw
    version: int  # rises with every change of any value, and is never used twice
    updated_at_ms: int
    expires_at_ms: int | None = None


class MemoryPage(Answer, frozen=True, kw_only=True):
    items: list[MemoryView]
    next_cursor: str | None = None


class MemoryDeleted(Answer, frozen=True, kw_only=True):
    key: str
    version: int  # that it had


class LockAcquire(Request, frozen=True, kw_only=True):
    owner: Name  # calls under the same name are from one caller; use a new name each time
    ttl_ms: LockTtlMs = 30_000
    wait_ms: WaitMs = 0  # how long to wait for the lock


class LockRenew(Request, frozen=True, kw_only=True):
    owner: Name
    fence: Fence
    ttl_ms: LockTtlMs | None = None  # absent: as long as before


class LockRelease(Request, frozen=True, kw_only=True):
    owner: Name
    fence: Fence


class LockView(Answer, frozen=True, kw_only=True):
    name: str
    acquired: bool  # whether the caller holds the lock
    fence: int | None = None  # send it with every write under the lock
    holder: str | None = None
    expires_at_ms: int | None = None
    position: int | None = None  # in the queue, from 1; kept for a caller that soon asks again
    waiting: int | None = None  # callers in the queue; only when the lock is read


class LockPage(Answer, frozen=True, kw_only=True):
    items: list[LockView]
    next_cursor: str | None = None
