"""The schedule: what it fires and when, its state, and the history of its firings.

A schedule is a row with its next nominal time. The transaction that fires it also advances that
time and writes the history, so no nominal time fires twice, whichever coordinator leads.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Raw, Struct

from rota.core import limits
from rota.core.tasks.model import Name, NewTask
from rota.core.workflow.commands import MAX_VERSION

MissedPolicy = Literal["last", "skip", "all"]
OverlapPolicy = Literal["skip", "queue_one", "queue_all", "cancel_running", "allow"]
FiringOutcome = Literal[
    "fired", "skipped_overlap", "skipped_missed", "queued", "dropped", "refused"
]

CronText = Annotated[str, Meta(min_length=1, max_length=limits.MAX_CRON_LENGTH)]
MomentMs = Annotated[int, Meta(ge=0, le=limits.MAX_SCHEDULE_TIME_MS)]
NO_INPUT = Raw(b"{}")


class ScheduledRun(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The run that a schedule starts."""

    # A name, or name@version; without a version the newest at the time of each firing.
    workflow: Annotated[str, Meta(min_length=1, max_length=limits.MAX_NAME_LENGTH + 11)]
    version: Annotated[int, Meta(ge=1, le=MAX_VERSION)] | None = None
    input: Raw = msgspec.field(default_factory=lambda: NO_INPUT)
    timeout_ms: Annotated[int, Meta(ge=1, le=limits.MAX_TIMEOUT_MS)] | None = None


class ScheduleSpec(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """A schedule as its author describes it. Its times are those of all rules together."""

    # Five fields, with names, `#` and `L`; one expression or several.
    cron: (
        CronText
        | Annotated[tuple[CronText, ...], Meta(min_length=1, max_length=limits.MAX_CRONS)]
        | None
    ) = None
    # Counted from the Unix epoch, so that it does not depend on when the schedule was made.
    every_ms: Annotated[int, Meta(ge=limits.MIN_EVERY_MS, le=limits.MAX_DELAY_MS)] | None = None
    offset_ms: Annotated[int, Meta(ge=0, le=limits.MAX_DELAY_MS)] = 0  # of `every_ms`
    # Single times.
    at_ms: Annotated[tuple[MomentMs, ...], Meta(max_length=limits.MAX_SCHEDULE_MOMENTS)] = ()
    timezone: Annotated[str, Meta(min_length=1, max_length=100)] = "UTC"  # an IANA name
    # Cron expressions, and dates such as 2026-12-25: times that match one do not count.
    exclude: Annotated[tuple[CronText, ...], Meta(max_length=limits.MAX_EXCLUDES)] = ()
    starts_at_ms: MomentMs | None = None  # no time is before this
    ends_at_ms: MomentMs | None = None  # every time is before this
    max_firings: Annotated[int, Meta(ge=1, le=2**53)] | None = None  # the schedule then ends
    task: NewTask | None = None  # what is submitted; its `key` is made by the schedule
    run: ScheduledRun | None = None  # what is started, instead of a task
    # The times that passed while no coordinator could fire: the last of them fires, none, or all.
    missed: MissedPolicy = "last"
    # How late a missed time may still fire.
    catch_up_ms: Annotated[int, Meta(ge=0, le=limits.MAX_CATCH_UP_MS)] = 3_600_000
    # While the last task or run has not ended: skip, let one or all wait, cancel it, or go on.
    overlap: OverlapPolicy = "skip"
    # Each firing is delayed by up to this, by an amount that follows from its name and time.
    jitter_ms: Annotated[int, Meta(ge=0, le=limits.MAX_JITTER_MS)] = 0
    # After so many failures in a row the schedule is paused.
    pause_on_failure: Annotated[int, Meta(ge=1, le=1_000)] | None = None
    # The payload or input, an object, gets `scheduled_for_ms` and `previous_success_ms`.
    with_times: bool = False

    @property
    def crons(self) -> tuple[str, ...]:
        if self.cron is None:
            return ()
        return (self.cron,) if isinstance(self.cron, str) else self.cron

    @property
    def queue(self) -> str | None:
        """The queue of its task; None: it starts runs, which belong to no queue."""
        return None if self.task is None else self.task.queue

    @property
    def timing(self) -> tuple[object, ...]:
        """What its times follow from."""
        return (
            self.crons,
            (self.every_ms, self.offset_ms),
            self.at_ms,
            self.timezone,
            self.exclude,
            (self.starts_at_ms, self.ends_at_ms),
            self.max_firings,
        )


class FiredItem(Struct, frozen=True, array_like=True):
    """A task or a run that was fired, and has not ended as far as the schedule knows."""

    id: int
    nominal_ms: int
    is_run: bool = False


class WaitingFiring(Struct, frozen=True, array_like=True):
    """A firing that waits for the end of an earlier one."""

    number: int
    nominal_ms: int
    is_manual: bool = False


class SchedulePause(Struct, frozen=True, kw_only=True, omit_defaults=True):
    at_ms: int
    by: str | None = None  # the name of the caller's token; None: the schedule itself, or no token
    note: str = ""


class ScheduleState(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What changes about a schedule from firing to firing."""

    created_at_ms: int
    updated_at_ms: int  # by a caller
    next_nominal_ms: int | None = None  # None: there is no further time
    firings: int = 0  # at its times; those on demand do not count
    last_number: int = 0  # of its history
    open: tuple[FiredItem, ...] = ()  # the newest ones
    waiting: tuple[WaitingFiring, ...] = ()  # the oldest first
    failures: int = 0  # in a row
    caught_up: int = 0  # missed times that fired since the last one on time
    last_fired_at_ms: int | None = None
    previous_success_ms: int | None = None  # the nominal time of the last firing that succeeded
    pause: SchedulePause | None = None
    source: str | None = None  # the app that has the schedule in its code; None: it has none
    code_hash: str | None = None  # of the schedule in the code
    is_pinned: bool = False  # an operator has changed it; the code does not change it any more
    is_orphaned: bool = False  # the app no longer has it in its code


class ScheduleRecord(Struct, frozen=True, kw_only=True):
    """A schedule as it is stored."""

    name: str
    document: bytes  # the `ScheduleSpec`, as JSON
    state: ScheduleState

    @property
    def spec(self) -> ScheduleSpec:
        return decode_spec(self.document)


class Firing(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One row of the history of a schedule."""

    number: int  # rises from row to row
    nominal_ms: int  # of the last time, if the row stands for several
    fired_at_ms: int  # when it was decided
    outcome: FiringOutcome
    id: int | None = None  # of the task or run
    is_run: bool = False
    is_manual: bool = False  # on demand, not at a time of the schedule
    count: int = 1  # times that the row stands for; of missed ones at least so many
    reason: str = ""  # of a refusal


_spec_decoder = msgspec.json.Decoder(ScheduleSpec)


def decode_spec(document: bytes) -> ScheduleSpec:
    return _spec_decoder.decode(document)


def encode_spec(spec: ScheduleSpec) -> bytes:
    return msgspec.json.encode(spec)


ScheduleName = Name
