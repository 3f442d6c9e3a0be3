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
    ttl_ms: MemoryTtlMs | None = None  # absent: for ever
    if_version: Version | None = None  # only if the key has this one still; 0: only if it is new


class MemoryView(Answer, frozen=True, kw_only=True):
    key: str
    value: Raw
    version: int  # rises with every change of anything, and is never used twice
    updated_at_ms: int
    expires_at_ms: int | None = None


class MemoryPage(Answer, frozen=True, kw_only=True):
    items: list[MemoryView]
    next_cursor: str | None = None


class MemoryDeleted(Answer, frozen=True, kw_only=True):
    key: str
    version: int  # it had


class LockAcquire(Request, frozen=True, kw_only=True):
    owner: Name  # the same name again is the same caller; best a new one each time
    ttl_ms: LockTtlMs = 30_000
    wait_ms: WaitMs = 0  # wait in line for as long as this


class LockRenew(Request, frozen=True, kw_only=True):
    owner: Name
    fence: Fence
    ttl_ms: LockTtlMs | None = None  # absent: as long as before


class LockRelease(Request, frozen=True, kw_only=True):
    owner: Name
    fence: Fence


class LockView(Answer, frozen=True, kw_only=True):
    name: str
    acquired: bool  # whether the caller has it
    fence: int | None = None  # pass it to everything that is done under the lock
    holder: str | None = None
    expires_at_ms: int | None = None
    position: int | None = None  # in line, from 1; a caller that asks again soon keeps it
    waiting: int | None = None  # callers in line; only when the lock is shown


class LockPage(Answer, frozen=True, kw_only=True):
    items: list[LockView]
    next_cursor: str | None = None
