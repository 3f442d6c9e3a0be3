"""The working set: what batches decide on, held in memory and written through.

Theory of operation. Only the leader writes to the store. So what it has loaded once stays true, if
each batch notes here what it writes there. A batch notes its decisions as it writes them,
before its commit. Until the commit nothing but the batch reads them here. When the commit fails, or
when its outcome is unknown, the working set is loaded again before the next batch uses it: a batch
that begins on a working set whose last batch has not committed loads it first. There is no undo,
so none can be wrong.
"""

from collections.abc import Collection, Mapping, Sequence

from rota.core.decisions import FinishTask, LeaseTask
from rota.core.ids import TaskId
from rota.core.tasks.model import TaskRecord, TaskState, holds_key
from rota.engine.working_set.held_flows import HeldFlows
from rota.engine.working_set.held_leases import HeldLeases
from rota.engine.working_set.held_schedules import HeldSchedules
from rota.engine.working_set.held_workers import HeldWorkers
from rota.engine.working_set.lane_windows import LaneWindows
from rota.store.database import Transaction
from rota.store.tasks.lanes import Lanes
from rota.store.tasks.row_types import FIRST_FLOW, QueuedPlace


class WorkingSet:
    def __init__(self) -> None:
        self.workers = HeldWorkers()
        self.leases = HeldLeases()
        self.windows = LaneWindows(Lanes())
        self.flows = HeldFlows(Lanes())
        self.schedules = HeldSchedules()
        self.told_full: dict[
            str, int
        ] = {}  # queues that refuse submissions, and when that was told
        self.is_fresh = False  # whether the last batch that began has loaded it
        self._is_certain = False  # False: not what the store has, or perhaps not
        self.is_outdated = False  # True: the settings of a queue have changed

    @property
    def task_count(self) -> int:
        """The number of queued tasks that are held."""
        return self.windows.task_count

    @property
    def has_work(self) -> bool:
        """Whether a queued task may be leased."""
        return bool(self.windows.by_lane or self.flows.admission.active)

    @property
    def task_bytes(self) -> int:
        """The size of the queued tasks that are held whole."""
        return self.windows.held_bytes

    def begin(self, tx: Transaction, lanes: Lanes) -> None:
        """Begin a batch: load everything again unless the last batch has committed."""
        self.is_fresh = not self._is_certain
        if self.is_fresh:
            self.load(tx, lanes)
        self._is_certain = False

    def read_ahead(self, tx: Transaction) -> None:
        """Ask for what the next batch may need, after all writes of this one."""
        self.windows.read_ahead_of_commit(tx)

    def commit(self) -> None:
        """Note that the batch has committed."""
        self.windows.commit()
        self._is_certain = not self.is_outdated
        self.is_outdated = False

    def load(self, tx: Transaction, lanes: Lanes) -> None:
        self.workers = HeldWorkers.load(tx)
        self.leases = HeldLeases.load(tx, lanes)
        self.windows = LaneWindows.load(tx, lanes)
        recent = self.flows.tenants.recent
        self.flows = HeldFlows.load(tx, lanes, self.leases)
        self.flows.tenants.recent = recent  # for people: a rolled back start may be among it
        self.schedules = HeldSchedules.load(tx)

    # --- decisions ------------------------------------------------------------------------------

    def key_holders(
        self, decisions: Sequence[FinishTask], tasks: Mapping[TaskId, TaskRecord]
    ) -> list[TaskId]:
        """Return the tasks that may hold a key when they end; `tasks` has those that waited."""
        leased, running = self.leases.key_holders, TaskState.RUNNING
        found = [one.id for one in decisions if one.id in leased] if leased else []
        waiting = [tasks[one.id] for one in decisions if one.was is not running]
        return found + [task.id for task in waiting if holds_key(task.options)]

    def note_finished(
        self, decisions: Sequence[FinishTask], tasks: Mapping[TaskId, TaskRecord], *, now_ms: int
    ) -> None:
        """Note the ends of tasks; `tasks` has those that were queued."""
        running, queued = TaskState.RUNNING, TaskState.QUEUED
        ended = [one.id for one in decisions if one.was is running]
        self.leases.note_ended(ended)
        if len(ended) < len(decisions):
            self.note_left([tasks[one.id] for one in decisions if one.was is queued])
        self.flows.note_finished((one.id for one in decisions), now_ms=now_ms)

    def note_queued(self, places: Sequence[QueuedPlace]) -> None:
        """Note tasks that have come back to the queue."""
        if not self.flows.is_used:
            self.windows.note_queued(places)
            return
        queues, numbers = self.flows.queues, self.flows.numbers
        for one in places if queues.depths else ():
            queues.count_queued(numbers.queue_of(one.lane), 1)
        self.windows.note_queued([one for one in places if one.lane < FIRST_FLOW])
        self.flows.note_queued([one for one in places if one.lane >= FIRST_FLOW])

    def note_left(self, tasks: Sequence[TaskRecord]) -> None:
        """Note that these tasks have left the queue."""
        queues = self.flows.queues
        for task in tasks if queues.depths else ():
            queues.count_queued(task.lane.queue, -1)
        if not self.flows.open:
            self.windows.note_left(tasks)
            return
        self.windows.note_left([task for task in tasks if task.flow is None])
        for task in tasks:
            if task.flow is not None:
                self.flows.note_left(task)

    def note_leased(
        self,
        decisions: Sequence[LeaseTask],
        tasks: Mapping[TaskId, TaskRecord],
        *,
        unqueued: Collection[TaskId] = (),
        now_ms: int,
    ) -> None:
        """Note leases of these tasks; `unqueued` were never put into the queue."""
        queued, leased = TaskState.QUEUED, [tasks[one.id] for one in decisions]
        self.leases.note_leased(decisions, leased)
        self.note_left(
            [
                task
                for one, task in zip(decisions, leased, strict=True)
                if one.was is queued and one.id not in unqueued
            ]
        )
        if self.flows.is_used:
            self.flows.note_leased(leased, now_ms=now_ms)
