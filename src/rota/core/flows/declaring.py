"""What tasks declare about limits, and what they may use."""

from collections.abc import Iterable, Mapping

import msgspec

from rota.core import limits
from rota.core.access import Caller
from rota.core.flows import rates
from rota.core.flows.model import Concurrency, LimitKind, LimitRecord, Rate
from rota.errors import Forbidden, LimitKindConflict


def kind_of(wanted: Concurrency | Rate) -> LimitKind:
    return "concurrency" if isinstance(wanted, Concurrency) else "rate"


def check_use(record: LimitRecord, wanted: Concurrency | Rate, by: Caller | None) -> None:
    """Refuse a task that names a limit of another kind or of another tenant.

    A limit that an operator has pinned is for everybody: tasks cannot change it.
    """
    kind = kind_of(wanted)
    if record.kind != kind:
        raise LimitKindConflict(
            f"the limit {record.key!r} is a {record.kind} limit, so it cannot be used as a {kind} "
            "limit; choose another key",
            key=record.key,
        )
    if by is not None and by.is_bound and not record.is_pinned and record.owner != by.binding:
        raise Forbidden(f"the limit {record.key!r} belongs to another token binding")


def check_kinds(named: Iterable[Concurrency | Rate], known: Mapping[str, LimitKind]) -> None:
    """Refuse the limits of one submission if they name a key as limits of both kinds.

    Known: the kinds of keys that other submissions of the same batch have named first.
    """
    kinds: dict[str, LimitKind] = dict(known)
    for wanted in named:
        kind = kind_of(wanted)
        if kinds.setdefault(wanted.key, kind) != kind:
            raise LimitKindConflict(
                f"the key {wanted.key!r} is named as a concurrency limit and as a rate; choose "
                "another key for one of them",
                key=wanted.key,
            )


def declare(
    record: LimitRecord | None,
    wanted: Concurrency | Rate,
    name: str,
    *,
    owner: str,
    now_ms: int,
) -> LimitRecord | None:
    """The limit after a task of this name has named it; None: nothing changes.

    The value that was changed last counts. So each task name is compared with what it has asked for
    before, and one that repeats its old value changes nothing.
    """
    values = _values(wanted)
    if record is None:
        record = LimitRecord(key=wanted.key, kind=kind_of(wanted), limit=0, owner=owner)
    elif record.kind != kind_of(wanted) or record.declared.get(name) == values:
        # Submissions of another kind are refused. A node of a run is not: the first kind counts.
        return None
    declared = {key: one for key, one in record.declared.items() if key != name}
    while len(declared) >= limits.MAX_DECLARING_NAMES:
        del declared[next(iter(declared))]
    declared[name] = values
    changed = msgspec.structs.replace(record, declared=declared, changed_at_ms=now_ms)
    return changed if record.is_pinned else with_values(changed, values)


def _values(wanted: Concurrency | Rate) -> tuple[int, ...]:
    """What a task declares about a limit, as numbers."""
    if isinstance(wanted, Concurrency):
        return (wanted.limit,)
    burst = wanted.cost if wanted.burst is None else wanted.burst
    return wanted.limit, wanted.per_ms, burst, int(wanted.mode == "window")


def with_values(record: LimitRecord, values: tuple[int, ...]) -> LimitRecord:
    """The limit with the values that a task has declared."""
    if record.kind == "concurrency":
        return msgspec.structs.replace(record, limit=values[0])
    limit, per_ms, burst, is_window = values
    return msgspec.structs.replace(
        record,
        limit=limit,
        per_ms=per_ms,
        burst=burst,
        mode="window" if is_window else "smooth",
    )


def is_forgettable(record: LimitRecord, *, now_ms: int) -> bool:
    """Whether a limit that no task uses says nothing that has to be kept."""
    if record.is_pinned:
        return False
    return record.kind == "concurrency" or rates.is_idle(record, now_ms=now_ms)
