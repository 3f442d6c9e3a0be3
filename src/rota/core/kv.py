"""The key-value store: versioned values by key, some with a time to live.

Theory of operation. Versions rise over all keys, and no version is used twice. So a caller cannot
mistake a value that was deleted and written again for the earlier one. No caller sees a value past
its time to live, whether or not a sweep has deleted it yet.
"""

from typing import NamedTuple, assert_never

from msgspec import Raw, Struct

from rota.core.context import Context
from rota.core.quotas import Bound, Usage, ValuePolicy
from rota.core.replies import CommandBase, Done
from rota.errors import KeyNotFound, VersionConflict

ABSENT = 0  # the version of a key that has no value
ADVICE = "delete some values, or keep them for a limited time"


class KvEntry(Struct, frozen=True, kw_only=True):
    key: str
    value: bytes  # JSON, as the caller sent it
    version: int
    updated_at_ms: int
    expires_at_ms: int | None = None
    owner: str | None = None  # the owner whose share it counts for; None: no owner's


class PutValue(CommandBase[KvEntry], frozen=True, kw_only=True, tag="PutMemory"):
    """Store a value; with `if_version`, only if the key has that version (0: no value)."""

    key: str
    value: Raw
    ttl_ms: int | None = None
    if_version: int | None = None
    by_operator: bool = False  # it may use the room reserved for operators
    owner: str | None = None  # the owner whose share it then counts for; None: no owner's


class DeleteValue(CommandBase[KvEntry], frozen=True, kw_only=True, tag="DeleteMemory"):
    key: str
    if_version: int | None = None


class SweepValues(CommandBase[Done], frozen=True, tag="SweepMemory"):
    """Delete the values that are past their time to live."""


KvCommand = PutValue | DeleteValue | SweepValues
KvReply = KvEntry | Done


class ExpiredEntry(NamedTuple):
    """The fields of an expired value that a sweep needs."""

    key: str
    version: int
    size: int
    owner: str | None


class PutEntry(Struct, frozen=True):
    """Store a value, replacing the earlier one if there is one."""

    entry: KvEntry


class DropEntry(Struct, frozen=True):
    """Delete a value."""

    key: str
    version: int
    is_expired: bool = False


KvDecision = PutEntry | DropEntry


class KvState(Struct):
    """The values that the commands of a batch touch, after the commands decided so far."""

    entries: dict[str, KvEntry | None]  # by key; None: the key has no value
    expired: list[ExpiredEntry]  # for a sweep
    last_version: int
    usage: Usage | None  # None: not loaded, because no command needs it


def needs(command: KvCommand) -> str | None:
    """Return the key whose value to load; None: a sweep, which needs the expired values."""
    return None if isinstance(command, SweepValues) else command.key


def reduce(
    state: KvState, command: KvCommand, context: Context
) -> tuple[list[KvDecision], KvReply]:
    """Decide one command, and update the state for the next command of the batch."""
    match command:
        case PutValue():
            return _put(state, command, context)
        case DeleteValue():
            return _delete(state, command, context)
        case SweepValues():
            return _sweep(state)
        case _:
            assert_never(command)


def _put(state: KvState, command: PutValue, context: Context) -> tuple[list[KvDecision], KvEntry]:
    assert state.usage is not None, "loaded for every PutValue"
    before = state.entries[command.key]
    state.last_version += 1
    entry = put(before, command, version=state.last_version, now_ms=context.now_ms)
    check_usage(state.usage, before, entry, context.rules.values, by_operator=command.by_operator)
    state.entries[command.key] = entry
    note_put(state.usage, before, entry)
    return [PutEntry(entry)], entry


def _delete(
    state: KvState, command: DeleteValue, context: Context
) -> tuple[list[KvDecision], KvEntry]:
    before = live_entry(state.entries[command.key], context.now_ms)
    check_version(before, command.key, command.if_version)
    if before is None:
        raise KeyNotFound(command.key)
    state.entries[command.key] = None
    if state.usage is not None:
        note_gone(state.usage, before.owner, len(before.value))
    return [DropEntry(command.key, before.version)], before


def _sweep(state: KvState) -> tuple[list[KvDecision], Done]:
    decisions: list[KvDecision] = []
    for one in state.expired:
        known = state.entries.get(one.key, one)
        if known is None or known.version != one.version:
            continue  # an earlier command of the batch has replaced or deleted it
        state.entries[one.key] = None
        if state.usage is not None:
            note_gone(state.usage, one.owner, one.size)
        decisions.append(DropEntry(one.key, one.version, is_expired=True))
    state.expired = []
    return decisions, Done(len(decisions))


def is_over(entry: KvEntry, now_ms: int) -> bool:
    return entry.expires_at_ms is not None and entry.expires_at_ms <= now_ms


def live_entry(entry: KvEntry | None, now_ms: int) -> KvEntry | None:
    """Return the value as callers see it: None if it has expired."""
    return None if entry is None or is_over(entry, now_ms) else entry


def put(before: KvEntry | None, event: PutValue, *, version: int, now_ms: int) -> KvEntry:
    """Return the new value of a key, under a version that was never used before."""
    check_version(live_entry(before, now_ms), event.key, event.if_version)
    return KvEntry(
        key=event.key,
        value=bytes(event.value),
        version=version,
        updated_at_ms=now_ms,
        expires_at_ms=None if event.ttl_ms is None else now_ms + event.ttl_ms,
        owner=event.owner,
    )


def check_version(before: KvEntry | None, key: str, wanted: int | None) -> None:
    """Refuse a change that its caller based on an outdated version."""
    current = ABSENT if before is None else before.version
    if wanted is not None and wanted != current:
        raise VersionConflict(key, wanted=wanted, current=current)


def check_usage(
    usage: Usage,
    before: KvEntry | None,
    after: KvEntry,
    policy: ValuePolicy,
    *,
    by_operator: bool,
) -> None:
    """Refuse a value that exceeds a quota; a value no larger than the earlier one always fits."""
    size, old_size = len(after.value), 0 if before is None else len(before.value)
    held = usage.of(after.owner)
    is_held = before is not None and before.owner == after.owner
    for bound, taken, more, taken_of_owner, more_of_owner in (
        (
            Bound("max_values", policy.max_values),
            usage.total.rows,
            int(before is None),
            held.rows,
            int(not is_held),
        ),
        (
            Bound("max_values_bytes", policy.max_values_bytes),
            usage.total.size,
            size - old_size,
            held.size,
            size - old_size if is_held else size,
        ),
    ):
        bound.check(taken=taken, more=more, by_operator=by_operator, advice=ADVICE)
        if after.owner is not None:
            bound.check_share(held=taken_of_owner, more=more_of_owner, advice=ADVICE)


def note_put(usage: Usage, before: KvEntry | None, after: KvEntry) -> None:
    """Count a stored value, and no longer the one it replaces."""
    if before is not None:
        note_gone(usage, before.owner, len(before.value))
    usage.add(after.owner, 1, len(after.value))


def note_gone(usage: Usage, owner: str | None, size: int) -> None:
    """Subtract a deleted value from the usage."""
    usage.add(owner, -1, -size)
