"""The changes that callers make to schedules: put, sync with the code, pause, resume."""

import hashlib
from typing import NamedTuple

from msgspec.structs import replace

from rota.core import access, limits
from rota.core.access import Caller
from rota.core.schedules.commands import PutSchedule
from rota.core.schedules.model import (
    SchedulePause,
    ScheduleRecord,
    ScheduleSpec,
    ScheduleState,
    decode_spec,
)
from rota.core.schedules.times import due_ms, next_nominal_ms
from rota.errors import Invalid, ScheduleNotFound, TooMany


def check_access(caller: Caller | None, spec: ScheduleSpec, name: str) -> None:
    """Refuse a caller without the queue of a schedule. Runs are shared by all queues."""
    if caller is None:
        return
    queue = spec.queue
    if queue is None:
        access.check_unbound(caller)
    else:
        access.check_queue(caller, queue, of=f"schedule {name!r}")


def may_see(caller: Caller, spec: ScheduleSpec) -> bool:
    return caller.queues is None or spec.queue in caller.queues


def known(record: ScheduleRecord | None, name: str, by: Caller | None) -> ScheduleRecord:
    """The schedule, if there is one that the caller may change."""
    if record is None:
        raise ScheduleNotFound(name)
    check_access(by, record.spec, name)
    return record


def due_at_ms(record: ScheduleRecord) -> int | None:
    """When a schedule fires next; None: it is paused, or has no further time."""
    nominal_ms = record.state.next_nominal_ms
    if nominal_ms is None or record.state.pause is not None:
        return None
    spec = record.spec
    return due_ms(record.name, spec, nominal_ms) if spec.jitter_ms else nominal_ms


def put(
    before: ScheduleRecord | None, command: PutSchedule, *, count: int, now_ms: int
) -> ScheduleRecord:
    """Make or change a schedule. `count`: how many there are."""
    if before is not None:
        check_access(command.by, before.spec, command.name)
    check_access(command.by, decode_spec(command.document), command.name)
    after = _written(before, command.name, command.document, count=count, now_ms=now_ms)
    state = after.state
    if state.source is not None:
        is_pinned = True if command.pinned is None else command.pinned
        state = replace(state, is_pinned=is_pinned)
    after = replace(after, state=state)
    if command.paused is True and state.pause is None:
        return paused(after, "", command.by, now_ms=now_ms)
    if command.paused is False:
        return resumed(after, now_ms=now_ms)
    return after


def _written(
    before: ScheduleRecord | None,
    name: str,
    document: bytes,
    *,
    count: int,
    now_ms: int,
) -> ScheduleRecord:
    if before is not None and before.document == document:
        return replace(before, state=replace(before.state, updated_at_ms=now_ms))
    spec = decode_spec(document)
    if before is None:
        _check_count(count)
        state = ScheduleState(created_at_ms=now_ms, updated_at_ms=now_ms)
        is_timed_anew = True
    else:
        state = replace(before.state, updated_at_ms=now_ms, failures=0)
        is_timed_anew = before.spec.timing != spec.timing
    if is_timed_anew:
        next_ms = next_nominal_ms(spec, now_ms)
        if next_ms is None:
            raise Invalid("the schedule has no time in the future", field="cron")
        state = replace(state, next_nominal_ms=next_ms, firings=0, caught_up=0)
    return ScheduleRecord(name=name, document=document, state=state)


def _check_count(count: int) -> None:
    most = limits.MAX_SCHEDULES
    if count >= most:
        raise TooMany(f"there are already {most} schedules; delete one", limit="max_schedules")


def paused(record: ScheduleRecord, note: str, by: Caller | None, *, now_ms: int) -> ScheduleRecord:
    name = None if by is None or by.token_id is None else by.name
    pause = SchedulePause(at_ms=now_ms, by=name, note=note)
    return replace(record, state=replace(record.state, pause=pause))


def resumed(record: ScheduleRecord, *, now_ms: int) -> ScheduleRecord:
    """Fire again from the next time on: times during a pause are not missed."""
    state = record.state
    if state.pause is None:
        return record
    next_ms = state.next_nominal_ms
    if next_ms is not None:
        next_ms = next_nominal_ms(record.spec, max(now_ms, next_ms - 1))
    state = replace(state, pause=None, failures=0, next_nominal_ms=next_ms, caught_up=0)
    return replace(record, state=state)


# --- schedules in code --------------------------------------------------------------------------


class SyncOutcome(NamedTuple):
    """A schedule of an app after it was compared with the code."""

    record: ScheduleRecord
    is_changed: bool


def hash_of(document: bytes) -> str:
    return hashlib.sha256(document).hexdigest()


def synced(
    before: ScheduleRecord | None,
    name: str,
    document: bytes,
    *,
    source: str,
    by: Caller | None,
    count: int,
    now_ms: int,
) -> SyncOutcome:
    """The schedule as the code has it, unless an operator has changed it."""
    check_access(by, decode_spec(document), name)
    found = hash_of(document)
    if before is not None:
        check_access(by, before.spec, name)
        state = before.state
        # A schedule that was not made by code was made by an operator.
        is_pinned = state.is_pinned or state.source is None
        noted = replace(
            state, source=source, code_hash=found, is_pinned=is_pinned, is_orphaned=False
        )
        if is_pinned or state.code_hash == found:
            return SyncOutcome(replace(before, state=noted), is_changed=False)
    after = _written(before, name, document, count=count, now_ms=now_ms)
    noted = replace(after.state, source=source, code_hash=found, is_orphaned=False)
    return SyncOutcome(replace(after, state=noted), is_changed=True)


def orphaned(record: ScheduleRecord) -> ScheduleRecord:
    """The schedule, marked as one that its app no longer has in its code."""
    return replace(record, state=replace(record.state, is_orphaned=True))
