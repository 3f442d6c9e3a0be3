"""Decides what a schedule does at a moment: which of its times fire, wait, or are skipped.

Theory of operation. The engine looks up what became of the tasks and runs that the schedule fired
before (`settle`), and asks for a plan. A plan has the state afterwards, the rows of the history
that are decided, and the firings to carry out. Those are tasks to submit or runs to start, which
can be refused. The engine notes the outcome of each (`note_fired`, `note_refused`), and writes
everything in one transaction.
"""

from collections.abc import Mapping, Sequence
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from rota.core import limits
from rota.core.schedules.model import (
    FiredItem,
    Firing,
    FiringOutcome,
    OverlapPolicy,
    SchedulePause,
    ScheduleSpec,
    ScheduleState,
    WaitingFiring,
)
from rota.core.schedules.times import due_ms, next_nominal_ms

MAX_EXAMINED_TIMES = 1_000  # of one schedule in one plan; the next plan goes on from there
MAX_FIRED_AT_ONCE = 100  # by one schedule in one transaction; the rest follow in the next


class FiredEnd(Struct, frozen=True):
    """The end of a task or run."""

    is_success: bool | None  # None: cancelled, or no longer known
    at_ms: int = 0


class PlannedFiring(Struct, frozen=True):
    """A firing to carry out."""

    number: int
    nominal_ms: int
    is_manual: bool = False


class FiringPlan(Struct):
    """What a schedule does now."""

    state: ScheduleState
    fires: list[PlannedFiring] = []
    rows: list[Firing] = []  # that need nothing to be carried out
    cancels: tuple[FiredItem, ...] = ()
    is_paused: bool = False  # by this plan, after failures


# --- what became of earlier firings -----------------------------------------------------------


def settle(state: ScheduleState, ends: Mapping[int, FiredEnd]) -> ScheduleState:
    """Take in the ends of fired tasks and runs; those without an end are still open."""
    ended = sorted(
        (one for one in state.open if one.id in ends), key=lambda one: (ends[one.id].at_ms, one.id)
    )
    if not ended:
        return state
    failures, success_ms = state.failures, state.previous_success_ms
    for one in ended:
        is_success = ends[one.id].is_success
        if is_success:
            failures = 0
            success_ms = one.nominal_ms if success_ms is None else max(success_ms, one.nominal_ms)
        elif is_success is not None:
            failures += 1
    still_open = tuple(one for one in state.open if one.id not in ends)
    return replace(state, open=still_open, failures=failures, previous_success_ms=success_ms)


# --- planning ---------------------------------------------------------------------------------


def plan_due(
    name: str, spec: ScheduleSpec, state: ScheduleState, now_ms: int, *, most: int
) -> FiringPlan:
    """Plan what is due: firings that wait for nothing any more, then times that have come.

    `most`: firings to carry out at once. What is left stays due.
    """
    most = min(most, MAX_FIRED_AT_ONCE)
    plan = FiringPlan(state)
    if state.pause is not None:
        return plan
    if spec.pause_on_failure is not None and state.failures >= spec.pause_on_failure:
        note = f"{state.failures} failures in a row"
        plan.state = replace(state, pause=SchedulePause(at_ms=now_ms, note=note))
        plan.is_paused = True
        return plan
    _release_waiting(plan, spec.overlap, most)
    ready, missed = _sort_due(name, spec, plan, now_ms, most - len(plan.fires))
    if missed:
        _skip(plan, "skipped_missed", missed[-1], now_ms, count=len(missed))
    _fire_each(plan, spec.overlap, ready, now_ms, most_firings=spec.max_firings)
    if spec.max_firings is not None and _spent(plan) >= spec.max_firings:
        plan.state = replace(plan.state, next_nominal_ms=None)
    return plan


def plan_now(spec: ScheduleSpec, state: ScheduleState, now_ms: int) -> FiringPlan:
    """Plan a firing on demand, also of a paused schedule."""
    plan = FiringPlan(state)
    _fire_each(plan, spec.overlap, [now_ms], now_ms, is_manual=True)
    return plan


def plan_backfill(
    state: ScheduleState, nominals: Sequence[int], overlap: OverlapPolicy, now_ms: int
) -> FiringPlan:
    """Plan firings for times that have passed, the oldest first."""
    plan = FiringPlan(state)
    _fire_each(plan, overlap, nominals, now_ms)
    return plan


def _spent(plan: FiringPlan) -> int:
    """Firings at times of the schedule that have happened or are certain to."""
    waiting = sum(not one.is_manual for one in plan.state.waiting)
    return plan.state.firings + waiting + sum(not one.is_manual for one in plan.fires)


def _is_busy(plan: FiringPlan) -> bool:
    return bool(plan.state.open or plan.fires)


def _release_waiting(plan: FiringPlan, overlap: OverlapPolicy, most: int) -> None:
    while plan.state.waiting and len(plan.fires) < most:
        if overlap != "allow" and _is_busy(plan):
            return
        first, *rest = plan.state.waiting
        number = first.number
        if number <= plan.state.last_number - limits.MAX_KEPT_FIRINGS:
            number = _next_number(plan)  # its row has left the history
        plan.state = replace(plan.state, waiting=tuple(rest))
        plan.fires.append(PlannedFiring(number, first.nominal_ms, first.is_manual))


def _sort_due(
    name: str, spec: ScheduleSpec, plan: FiringPlan, now_ms: int, most: int
) -> tuple[list[int], list[int]]:
    """Advance the schedule over the times that have come; return the ready and the missed ones."""
    ready: list[int] = []
    missed: list[int] = []
    state = plan.state
    nominal, caught_up = state.next_nominal_ms, state.caught_up
    oldest_ms = now_ms - max(spec.catch_up_ms, limits.SCHEDULE_ON_TIME_MS)
    for _ in range(MAX_EXAMINED_TIMES):
        if nominal is None or len(ready) >= most:
            break
        at_ms = due_ms(name, spec, nominal)
        if at_ms > now_ms:
            caught_up = 0  # all that was missed has been dealt with; the next absence starts from 0
            break
        following = next_nominal_ms(spec, nominal)
        if at_ms >= now_ms - limits.SCHEDULE_ON_TIME_MS:
            caught_up = 0
            ready.append(nominal)
        elif at_ms < oldest_ms or not _is_caught_up(name, spec, following, now_ms, caught_up):
            missed.append(nominal)
        else:
            caught_up += 1
            ready.append(nominal)
        nominal = following
    if len(missed) == MAX_EXAMINED_TIMES and nominal is not None:
        # After a long absence: times that are too old under every policy are not counted further.
        nominal = next_nominal_ms(spec, max(nominal, oldest_ms - spec.jitter_ms) - 1)
    plan.state = replace(state, next_nominal_ms=nominal, caught_up=caught_up)
    return ready, missed


def _is_caught_up(
    name: str, spec: ScheduleSpec, following: int | None, now_ms: int, caught_up: int
) -> bool:
    """Whether a missed time that is not too old fires."""
    match spec.missed:
        case "skip":
            return False
        case "last":
            return following is None or due_ms(name, spec, following) > now_ms
        case "all":
            return caught_up < limits.MAX_CAUGHT_UP
        case _:
            assert_never(spec.missed)


def _fire_each(
    plan: FiringPlan,
    overlap: OverlapPolicy,
    nominals: Sequence[int],
    now_ms: int,
    *,
    is_manual: bool = False,
    most_firings: int | None = None,
) -> None:
    for place, nominal_ms in enumerate(nominals, start=1):
        if most_firings is not None and _spent(plan) >= most_firings:
            return
        if overlap == "allow" or not _is_busy(plan):
            outcome: FiringOutcome = "fired"
        else:
            outcome = _overlapping(plan, overlap, is_last=place == len(nominals))
        match outcome:
            case "fired":
                plan.fires.append(PlannedFiring(_next_number(plan), nominal_ms, is_manual))
            case "queued":
                number = _next_number(plan)
                waiting = (*plan.state.waiting, WaitingFiring(number, nominal_ms, is_manual))
                plan.state = replace(plan.state, waiting=waiting)
                row = Firing(
                    number=number,
                    nominal_ms=nominal_ms,
                    fired_at_ms=now_ms,
                    outcome="queued",
                    is_manual=is_manual,
                )
                plan.rows.append(row)
            case _:
                _skip(plan, outcome, nominal_ms, now_ms, is_manual=is_manual)


def _overlapping(plan: FiringPlan, overlap: OverlapPolicy, *, is_last: bool) -> FiringOutcome:
    """The outcome of a time that comes while an earlier firing has not ended."""
    waiting = len(plan.state.waiting)
    match overlap:
        case "skip":
            return "skipped_overlap"
        case "queue_one":
            return "dropped" if waiting else "queued"
        case "queue_all":
            return "dropped" if waiting >= limits.MAX_WAITING_FIRINGS else "queued"
        case "cancel_running":
            if plan.fires or not is_last:
                return "skipped_overlap"  # the last of these times would cancel it at once
            plan.cancels = plan.state.open
            return "fired"
        case "allow":
            return "fired"
        case _:
            assert_never(overlap)


def _skip(
    plan: FiringPlan,
    outcome: FiringOutcome,
    nominal_ms: int,
    now_ms: int,
    *,
    count: int = 1,
    is_manual: bool = False,
) -> None:
    """Add a row, or let the row before it stand for this time as well."""
    last = plan.rows[-1] if plan.rows else None
    if last is not None and last.outcome == outcome and last.number == plan.state.last_number:
        plan.rows[-1] = replace(last, nominal_ms=nominal_ms, count=last.count + count)
        return
    row = Firing(
        number=_next_number(plan),
        nominal_ms=nominal_ms,
        fired_at_ms=now_ms,
        outcome=outcome,
        is_manual=is_manual,
        count=count,
    )
    plan.rows.append(row)


def _next_number(plan: FiringPlan) -> int:
    number = plan.state.last_number + 1
    plan.state = replace(plan.state, last_number=number)
    return number


# --- outcomes -----------------------------------------------------------------------------------


def note_fired(
    state: ScheduleState,
    planned: PlannedFiring,
    item_id: int,
    now_ms: int,
    *,
    is_run: bool,
    is_duplicate: bool = False,
) -> tuple[ScheduleState, Firing]:
    """Note that a planned firing was carried out; duplicate: earlier, under the same key."""
    row = Firing(
        number=planned.number,
        nominal_ms=planned.nominal_ms,
        fired_at_ms=now_ms,
        outcome="fired",
        id=item_id,
        is_run=is_run,
        is_manual=planned.is_manual,
    )
    if is_duplicate:
        return state, row
    known = tuple(one for one in state.open if one.id != item_id)
    fired = (*known, FiredItem(item_id, planned.nominal_ms, is_run))
    after = replace(
        state,
        open=fired[-limits.MAX_KEPT_FIRINGS :],
        firings=state.firings + (not planned.is_manual),
        last_fired_at_ms=now_ms,
    )
    return after, row


def note_refused(planned: PlannedFiring, reason: str, now_ms: int) -> Firing:
    """Note that what a schedule fires was refused."""
    return Firing(
        number=planned.number,
        nominal_ms=planned.nominal_ms,
        fired_at_ms=now_ms,
        outcome="refused",
        is_manual=planned.is_manual,
        reason=reason[: limits.MAX_EVENT_TEXT],
    )
