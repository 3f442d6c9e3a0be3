"""Caches active runs in memory between batches.

A rolled-back batch drops the runs it touched. The next batch that needs such a run replays its
journal.
"""

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass, field

from msgspec import UNSET

from rota.core.decisions import Decision, FinishTask, RequeueTask
from rota.core.quotas import Usage
from rota.core.workflow.program import AnyRun, Program
from rota.core.workflow.records import RunRecord
from rota.core.workflow.waits import WaitChanges, all_waits, take_changes

MOST_CACHED = 10_000  # runs kept in memory between batches


@dataclass
class LiveRun:
    """A run in memory: its state, and the tasks and child runs of its tokens."""

    record: RunRecord
    run: AnyRun
    number: int = 0  # of its last journal entry
    has_timers: bool = False  # False: none was ever set
    has_waits: bool = False  # False: none was ever stored
    links: dict[int, int] = field(default_factory=dict)  # token -> task or run
    ran_on: int = 0  # the incarnation of the worker that ran its function last

    @property
    def headers(self) -> dict[str, str] | None:
        """The headers of the tasks of the run."""
        started = self.run.started
        return None if started is None or started.headers is UNSET else started.headers

    def changed_waits(self, *, was_ended: bool) -> WaitChanges:
        """Return what the last event has changed of what the run waits for.

        `was_ended`: the run had ended before that event. A retry goes on where it was.
        """
        changed = take_changes(self.run)
        if self.run.is_ended:
            return WaitChanges(is_whole=self.has_waits)
        if was_ended:
            return self.whole_waits()
        self.has_waits = self.has_waits or bool(changed)
        return WaitChanges(changed)

    def whole_waits(self) -> WaitChanges:
        """Return everything that the run waits for."""
        self.has_waits = True
        return WaitChanges({one.number: one for one in all_waits(self.run)}, is_whole=True)


class RunCache:
    """Active runs, and the programs of their definitions. The cache belongs to the writer."""

    def __init__(self) -> None:
        self.runs: OrderedDict[int, LiveRun] = OrderedDict()
        self.programs: dict[tuple[str, int], Program] = {}
        self.current: dict[str, int] = {}  # version of each workflow that was looked up
        self.has_tasks = False  # whether any task works for a run
        self.has_staged = False  # whether any artifact waits for the end of its attempt
        self.artifacts: Usage | None = None  # of all artifacts; None: not known
        self.touched: set[int] = set()  # runs used by the current batch

    def keep(self, run_id: int, live: LiveRun) -> None:
        self.runs[run_id] = live
        self.touched.add(run_id)

    def is_concerned(self, kinds: Collection[type[Decision]]) -> bool:
        """Whether decisions of these kinds may be about tasks of runs."""
        return (self.has_tasks or self.has_staged) and (FinishTask in kinds or RequeueTask in kinds)

    def roll_back(self) -> None:
        """Drop what the uncommitted batch has changed in memory."""
        for run_id in self.touched:
            self.runs.pop(run_id, None)
        self.artifacts = None
        self.programs.clear()
        self.current.clear()
        self.touched.clear()

    def trim(self) -> None:
        while len(self.runs) > MOST_CACHED:
            self.runs.popitem(last=False)
