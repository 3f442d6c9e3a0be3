"""Every command about schedules, and the replies to them."""

from msgspec import Struct

from rota.core.access import Caller
from rota.core.replies import CommandBase, Done
from rota.core.schedules.model import Firing, OverlapPolicy, ScheduleRecord


class ScheduleShown(Struct, frozen=True):
    """A schedule after the command."""

    record: ScheduleRecord
    is_new: bool = False


class FiringShown(Struct, frozen=True):
    """The outcome of a firing on demand."""

    firing: Firing


class SchedulesSynced(Struct, frozen=True, kw_only=True):
    """What became of the schedules that an app has in its code, by name."""

    changed: tuple[str, ...] = ()  # new, or with another content than before
    unchanged: tuple[str, ...] = ()
    pinned: tuple[str, ...] = ()  # left as an operator has changed them
    orphaned: tuple[str, ...] = ()  # stored, and not in the code any more


ScheduleReply = ScheduleShown | FiringShown | SchedulesSynced | Done

# `by` is the caller that sent the command. It must have the queue of the schedule. None is the
# coordinator itself, which may change every schedule.


class PutSchedule(CommandBase[ScheduleShown], frozen=True, kw_only=True, tag="PutSchedule"):
    """Make a schedule, or change it."""

    name: str
    document: bytes  # a `ScheduleSpec` as JSON, which has been checked
    paused: bool | None = None  # None: as before; a new schedule is not paused
    pinned: bool | None = None  # None: a schedule of the code is pinned by this
    by: Caller | None = None


class CodeSchedule(Struct, frozen=True):
    """A schedule in the code of an app."""

    name: str
    document: bytes


class SyncSchedules(CommandBase[SchedulesSynced], frozen=True, kw_only=True, tag="SyncSchedules"):
    """Make the schedules of an app those that it has in its code, except pinned ones."""

    source: str  # the app
    schedules: tuple[CodeSchedule, ...]
    by: Caller | None = None


class DeleteSchedule(CommandBase[ScheduleShown], frozen=True, kw_only=True, tag="DeleteSchedule"):
    """Delete a schedule with its history. What it has fired stays."""

    name: str
    by: Caller | None = None


class PauseSchedule(CommandBase[ScheduleShown], frozen=True, kw_only=True, tag="PauseSchedule"):
    name: str
    note: str = ""
    by: Caller | None = None


class ResumeSchedule(CommandBase[ScheduleShown], frozen=True, kw_only=True, tag="ResumeSchedule"):
    """Let a schedule fire again, from its next time on."""

    name: str
    by: Caller | None = None


class RunSchedule(CommandBase[FiringShown], frozen=True, kw_only=True, tag="RunSchedule"):
    """Fire a schedule now, by its rule for overlaps."""

    name: str
    by: Caller | None = None


class BackfillSchedule(CommandBase[Done], frozen=True, kw_only=True, tag="BackfillSchedule"):
    """Fire a schedule for its times from `from_ms` on and before `to_ms`."""

    name: str
    from_ms: int
    to_ms: int
    overlap: OverlapPolicy | None = None  # None: that of the schedule
    is_dry_run: bool = False  # count, and change nothing
    by: Caller | None = None


class FireSchedules(CommandBase[Done], frozen=True, tag="FireSchedules"):
    """Fire the schedules that are due."""


ScheduleCommand = (
    PutSchedule
    | SyncSchedules
    | DeleteSchedule
    | PauseSchedule
    | ResumeSchedule
    | RunSchedule
    | BackfillSchedule
    | FireSchedules
)
