"""Commands about limits and the settings of queues, and the rules that decide them."""

from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from rota.core.flows import rates
from rota.core.flows.declaring import with_values
from rota.core.flows.model import LimitKind, LimitRecord, RateMode
from rota.core.flows.queue_settings import DEFAULT_SETTINGS, Fairness, QueueRate, QueueSettings
from rota.core.replies import CommandBase, Done
from rota.core.tasks.model import Lane
from rota.errors import IllegalState, Invalid


class LimitState(Struct, frozen=True, kw_only=True):
    """A limit with what uses it now."""

    record: LimitRecord
    running: int = 0  # slots that are taken
    waiting: int = 0  # queued tasks that name it
    opens_at_ms: int | None = None  # of a rate that lets no start through now


class LimitStates(Struct, frozen=True):
    items: list[LimitState]


class PutLimit(CommandBase[LimitState], frozen=True, kw_only=True, tag="PutLimit"):
    """Set a limit. What is not given stays; a limit that is set is pinned unless said otherwise."""

    key: str
    limit: int | None = None
    per_ms: int | None = None  # makes it a rate
    burst: int | None = None
    mode: RateMode | None = None
    pinned: bool = True


class DropLimit(CommandBase[LimitStates], frozen=True, kw_only=True, tag="DropLimit"):
    """Unpin a limit; without tasks it is forgotten, otherwise what they declared last counts."""

    key: str


class ConsumeLimit(CommandBase[LimitState], frozen=True, kw_only=True, tag="ConsumeLimit"):
    """Count a use of a rate outside tasks. It is counted only if the reply says that it is free."""

    key: str
    cost: int = 1


class CloseLimit(CommandBase[LimitState], frozen=True, kw_only=True, tag="CloseLimit"):
    """Let no task of a rate start for a while."""

    key: str
    for_ms: int


class LookAtLimits(CommandBase[LimitStates], frozen=True, kw_only=True, tag="LookAtLimits"):
    """Return these limits; unknown keys are left out."""

    keys: tuple[str, ...]


class QueueChange(Struct, frozen=True, kw_only=True):
    """Changed settings of a queue; what is not given stays, None resets."""

    max_running: int | UnsetType | None = UNSET
    max_queued: int | UnsetType | None = UNSET
    rate: QueueRate | UnsetType | None = UNSET
    weights: dict[str, float] | UnsetType | None = UNSET
    fairness: Fairness | UnsetType | None = UNSET
    target_wait_ms: int | UnsetType | None = UNSET
    aging_ms: int | UnsetType | None = UNSET


class ChangeSettings(CommandBase[QueueSettings], frozen=True, kw_only=True, tag="ChangeSettings"):
    queue: str
    change: QueueChange = QueueChange()


class TenantState(Struct, frozen=True, kw_only=True):
    """A tenant of a queue, with what it has of it now."""

    key: str
    weight: float
    waiting: int  # queued tasks
    running: int
    share: float | None = None  # of what the tenants have had lately; None: they had nothing


class TenantStates(Struct, frozen=True):
    items: list[TenantState]  # those with the most tasks
    total: int  # tenants that have tasks


class LookAtTenants(CommandBase[TenantStates], frozen=True, kw_only=True, tag="LookAtTenants"):
    """Return the tenants of a queue that have the most tasks."""

    queue: str
    most: int


class BlockedLane(Struct, frozen=True, kw_only=True):
    """A lane whose queued tasks all wait for a limit."""

    lane: Lane
    limit: LimitState  # one of the limits that they wait for
    keys: int  # how many limits they wait for


class BlockedLanes(Struct, frozen=True):
    items: list[BlockedLane]


class LookAtBlocked(CommandBase[BlockedLanes], frozen=True, tag="LookAtBlocked"):
    """Return the lanes whose queued tasks all wait for a limit."""


class LimitsRecounted(Struct, frozen=True, kw_only=True):
    """What limits count, compared with what the store has."""

    limits: int  # that are known
    slots: int  # tasks that have a slot
    flows: int  # that have queued tasks
    differences: list[str]  # sentences; there should be none


class RecountLimits(CommandBase[LimitsRecounted], frozen=True, tag="RecountLimits"):
    """Count the slots and flows again, from leases and queued tasks. It changes nothing."""


class WatchTargets(CommandBase[Done], frozen=True, tag="WatchTargets"):
    """Note which queues miss their target for how long tasks wait, and which meet it again."""


FlowCommand = (
    PutLimit
    | DropLimit
    | ConsumeLimit
    | CloseLimit
    | LookAtLimits
    | ChangeSettings
    | LookAtTenants
    | LookAtBlocked
    | RecountLimits
    | WatchTargets
)
FlowReply = LimitState | LimitStates | QueueSettings | TenantStates | BlockedLanes | LimitsRecounted


def put_limit(before: LimitRecord | None, command: PutLimit, *, now_ms: int) -> LimitRecord:
    """The limit after an operator has set it; a rate that a handler has closed is open again."""
    record = before
    if record is None:
        if command.limit is None:
            raise Invalid("limit: must be given for a new limit", field="limit")
        kind: LimitKind = "concurrency" if command.per_ms is None else "rate"
        record = LimitRecord(key=command.key, kind=kind, limit=command.limit)
    elif record.kind == "concurrency" and command.per_ms is not None:
        raise Invalid(
            "per_ms: this key is a concurrency limit, which has no period", field="per_ms"
        )
    given: dict[str, Any] = {
        name: value
        for name in ("limit", "per_ms", "burst", "mode")
        if (value := getattr(command, name)) is not None
    }
    if given:
        given["closed_until_ms"] = 0
    changed = msgspec.structs.replace(
        record, **given, is_pinned=command.pinned, changed_at_ms=now_ms
    )
    _check_kind(changed, given)
    return changed


def _check_kind(record: LimitRecord, given: dict[str, Any]) -> None:
    if record.kind == "concurrency" and given.keys() & {"burst", "mode"}:
        raise Invalid("burst: a concurrency limit has no burst and no mode", field="burst")
    if record.kind == "rate" and record.mode == "window" and record.limit > rates.MOST_IN_WINDOW:
        most = rates.MOST_IN_WINDOW
        raise Invalid(f"limit: a window counts at most {most} starts", field="limit")


def unpin(record: LimitRecord, *, now_ms: int) -> LimitRecord:
    """The limit as tasks have declared it last."""
    released = msgspec.structs.replace(record, is_pinned=False, changed_at_ms=now_ms)
    last = next(reversed(record.declared.values()), None)
    return released if last is None else with_values(released, last)


def consume(record: LimitRecord, command: ConsumeLimit, *, now_ms: int) -> LimitRecord | None:
    """The rate after a use outside tasks; None: it is not free now, and not counted."""
    check_rate(record)
    if rates.opens_at_ms(record, command.cost, now_ms=now_ms) is not None:
        return None
    used = msgspec.structs.replace(record)
    rates.start(used, command.cost, now_ms=now_ms)
    return used


def check_rate(record: LimitRecord) -> None:
    if record.kind != "rate":
        raise IllegalState(
            f"the limit {record.key!r} is not a rate; only rates count uses", key=record.key
        )


def changed_settings(before: QueueSettings, change: QueueChange) -> QueueSettings:
    """The settings of a queue after a change."""
    given: dict[str, Any] = {}
    for name in QueueChange.__struct_fields__:
        value = getattr(change, name)
        if value is not UNSET:
            given[name] = getattr(DEFAULT_SETTINGS, name) if value is None else value
    after = msgspec.structs.replace(before, **given)
    if (after.aging_ms is None) == (before.aging_ms is None):
        return after
    return msgspec.structs.replace(after, era=before.era + 1)
