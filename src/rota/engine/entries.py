"""What is on its way through the engine? Events, whoever waits for them, and what became of them.

An entry knows how much it stands for, and whether it is carried out in no time: by that the writer
tells where to run it, and when enough is waiting.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from rota.core.decisions import TellCancelled
from rota.core.events import (
    CompleteJob,
    FailJob,
    Heartbeat,
    LeaseWork,
    ReportProgress,
    ReportResults,
    StartJob,
    SubmitTasks,
)
from rota.core.ids import TaskId
from rota.core.locks import LockAnswer
from rota.core.sessions import ClearNews
from rota.core.shards.events import BeatMember, SaveCheckpoint
from rota.core.shards.members import Assignment
from rota.core.workflow.commands import StartRun
from rota.engine.batch import Anything, Outcome
from rota.engine.notices import Told

LIGHT_TASKS = 20  # an event about no more tasks than this is a matter of microseconds
LIGHT_SHARDS = 1_000  # the same for the shards that a beat lists


Answer = Callable[[Any], None]  # takes the outcome, or the exception


class Entry:
    """One event on its way through the engine, and whoever waits for its answer."""

    __slots__ = (
        "answer",
        "event",
        "future",
        "is_gone",
        "is_light",
        "is_parked",
        "on_answered",
        "rest",
        "stands",
        "stays",
        "weight",
    )

    def __init__(
        self,
        event: Anything,
        future: "asyncio.Future[Any]",
        *,
        stays: bool,
        answer: Answer | None = None,
        stands: bool = False,
    ) -> None:
        self.event = event
        self.future = future
        self.answer = answer  # called with what became of it, instead of the future
        # Called as soon as the future is done, before anybody who waits for a future goes on.
        self.on_answered: Callable[[], None] | None = None
        self.stays = stays  # a call for work that may be parked
        self.stands = stands  # one that waits on for what it was not given
        self.rest: Entry | None = None  # which does that, when it was given something
        self.is_parked = False  # it has been looked at, and there was nothing for it
        self.is_gone = False  # the caller has stopped waiting
        self.weight, self.is_light = _burden(event)


def _burden(event: Anything) -> tuple[int, bool]:
    """How many changes an event stands for, and whether they are carried out in no time."""
    burden = BURDENS.get(type(event))
    return (1, False) if burden is None else burden(event)


def _of_tasks(count: int) -> tuple[int, bool]:
    return count, count <= LIGHT_TASKS


def _trifle(_: Any) -> tuple[int, bool]:
    return 1, True


# Those that are not listed take their time. A table, since all of them are asked for this.
BURDENS: dict[type[Any], Callable[[Any], tuple[int, bool]]] = {
    SubmitTasks: lambda event: _of_tasks(len(event.tasks)),
    ReportResults: lambda event: _of_tasks(len(event.results)),
    LeaseWork: lambda event: (1, event.most <= LIGHT_TASKS),
    BeatMember: lambda event: (1, len(event.holds) <= LIGHT_SHARDS),
    Heartbeat: _trifle,
    ReportProgress: _trifle,
    StartJob: _trifle,
    CompleteJob: _trifle,
    FailJob: _trifle,
    StartRun: _trifle,
    SaveCheckpoint: _trifle,
    ClearNews: _trifle,
}


class Delivery(Struct):
    """What a committed batch means to those who wait."""

    answers: list[tuple[Entry, Outcome | Exception]] = []
    finished: list[TaskId] = []
    next_moment_ms: int | None = None
    pushes: list[Assignment] = []
    next_sweep_ms: int | None = None
    granted_locks: list[LockAnswer] = []  # to those in line
    told: list[Told] = []
    sessions: set[str] = set()  # that there is news for
    cancelled: list[TellCancelled] = []

    def add(self, other: "Delivery") -> None:
        self.answers += other.answers
        self.finished += other.finished
        moments = [one for one in (self.next_moment_ms, other.next_moment_ms) if one is not None]
        self.next_moment_ms = min(moments, default=None)
        self.pushes += other.pushes
        sweeps = [one for one in (self.next_sweep_ms, other.next_sweep_ms) if one is not None]
        self.next_sweep_ms = min(sweeps, default=None)
        self.granted_locks += other.granted_locks
        self.told += other.told
        self.sessions |= other.sessions
        self.cancelled += other.cancelled
