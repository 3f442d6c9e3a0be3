"""Schedules on the wire."""

from typing import Annotated, Any

from msgspec import Meta

from rota.core import limits
from rota.core.schedules.model import (
    FiringOutcome,
    MissedPolicy,
    MomentMs,
    OverlapPolicy,
    ScheduleSpec,
)
from rota.core.tasks.model import Name
from rota.messages.base import Answer, Request


class SchedulePut(ScheduleSpec, frozen=True, kw_only=True):
    paused: bool | None = None  # absent: unchanged; a new schedule is not paused
    # Whether code that has the schedule leaves it alone; absent: it does, after this change.
    pinned: bool | None = None


class SchedulePauseRequest(Request, frozen=True, kw_only=True):
    note: Annotated[str, Meta(max_length=1_000)] = ""  # shown with the schedule


class ScheduleBackfill(Request, frozen=True, kw_only=True):
    from_ms: MomentMs
    to_ms: MomentMs  # times before this; those after now do not count
    overlap: OverlapPolicy | None = None  # absent: that of the schedule
    dry_run: bool = False  # count, and fire nothing


class CodeScheduleItem(Request, frozen=True, kw_only=True):
    name: Name
    schedule: ScheduleSpec


class ScheduleSync(Request, frozen=True, kw_only=True):
    source: Name  # the app that has these schedules in its code
    items: Annotated[list[CodeScheduleItem], Meta(max_length=limits.MAX_PAGE)]  # all of them


class FiringView(Answer, frozen=True, kw_only=True):
    nominal_ms: int  # the time of the schedule; of a row for several, that of the last
    fired_at_ms: int  # when it was decided
    outcome: FiringOutcome
    task_id: str | None = None
    run_id: str | None = None
    manual: bool = False  # fired by a caller, not at a time of the schedule
    count: int = 1  # times that the row stands for; of missed ones at least so many
    reason: str | None = None  # of a refusal


class ScheduleView(Answer, frozen=True, kw_only=True):
    name: str
    cron: str | tuple[str, ...] | None = None
    every_ms: int | None = None
    offset_ms: int | None = None
    at_ms: tuple[int, ...] = ()
    timezone: str
    exclude: tuple[str, ...] = ()
    starts_at_ms: int | None = None
    ends_at_ms: int | None = None
    max_firings: int | None = None
    task: Any = None  # as it was given
    run: Any = None  # as it was given
    missed: MissedPolicy
    catch_up_ms: int
    overlap: OverlapPolicy
    jitter_ms: int
    pause_on_failure: int | None = None
    with_times: bool
    paused: bool
    paused_at_ms: int | None = None
    paused_by: str | None = None  # the name of a token; absent: the schedule itself, or no token
    note: str | None = None  # of the pause
    next_at_ms: int | None = None  # when it fires, jitter included; absent: paused, or over
    next_nominal_ms: int | None = None  # the time that it fires for then
    last_fired_at_ms: int | None = None
    previous_success_ms: int | None = None  # the time of the last firing that succeeded
    fired: int  # firings at its times so far; it begins at 0 when the times change
    failures: int  # in a row, as of the last firing
    waiting: int  # firings that wait for the end of an earlier one
    # The newest first; a list of schedules has only the last one of each.
    firings: list[FiringView]
    source: str | None = None  # the app that has it in its code
    pinned: bool  # the code does not change it
    orphaned: bool  # the app no longer has it in its code
    created_at_ms: int
    updated_at_ms: int


class SchedulePage(Answer, frozen=True, kw_only=True):
    items: list[ScheduleView]
    next_cursor: str | None = None


class ScheduleTimes(Answer, frozen=True, kw_only=True):
    items: list[int]  # Unix times in milliseconds, without jitter


class BackfillCount(Answer, frozen=True, kw_only=True):
    count: int  # times in the range


class ScheduleSyncView(Answer, frozen=True, kw_only=True):
    changed: tuple[str, ...]  # new, or with another content than before
    unchanged: tuple[str, ...]
    pinned: tuple[str, ...]  # left as an operator has changed them
    orphaned: tuple[str, ...]  # kept, although the code does not have them any more
