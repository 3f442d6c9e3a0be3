"""What do programs keep with us? Values by key, each with a version, some with a time to live.

Theory of operation. A version is a number that rises over all keys and is never given twice, so
that a value which was deleted and written anew can not be taken for the one before. A value past
its time is gone for everybody who asks, whether or not it has been swept away yet.
"""

from msgspec import Raw, Struct

from rota.errors import VersionConflict

ABSENT = 0  # the version of a key that has no value


class MemoryEntry(Struct, frozen=True, kw_only=True):
    key: str
    value: bytes  # JSON, as it came
    version: int
    updated_at_ms: int
    expires_at_ms: int | None = None


class PutMemory(Struct, frozen=True, kw_only=True, tag=True):
    """Keep a value; with `if_version` only if the key still has that one (0: none)."""

    key: str
    value: Raw
    ttl_ms: int | None = None
    if_version: int | None = None


class DeleteMemory(Struct, frozen=True, kw_only=True, tag=True):
    key: str
    if_version: int | None = None


class SweepMemory(Struct, frozen=True, tag=True):
    """Values past their time are forgotten."""


MemoryEvent = PutMemory | DeleteMemory | SweepMemory


def is_over(entry: MemoryEntry, now_ms: int) -> bool:
    return entry.expires_at_ms is not None and entry.expires_at_ms <= now_ms


def standing(entry: MemoryEntry | None, now_ms: int) -> MemoryEntry | None:
    """The value as everybody sees it: one past its time is not there."""
    return None if entry is None or is_over(entry, now_ms) else entry


def put(before: MemoryEntry | None, event: PutMemory, *, version: int, now_ms: int) -> MemoryEntry:
    """The new value of a key, under a version that was never used before."""
    check_version(standing(before, now_ms), event.key, event.if_version)
    return MemoryEntry(
        key=event.key,
        value=bytes(event.value),
        version=version,
        updated_at_ms=now_ms,
        expires_at_ms=None if event.ttl_ms is None else now_ms + event.ttl_ms,
    )


def check_version(before: MemoryEntry | None, key: str, wanted: int | None) -> None:
    """Refuse what was decided on a value that has changed since."""
    current = ABSENT if before is None else before.version
    if wanted is not None and wanted != current:
        raise VersionConflict(key, wanted=wanted, current=current)
