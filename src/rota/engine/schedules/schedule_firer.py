"""Carries out the firings of schedules in a batch: submits tasks, starts runs, cancels both.

A task is submitted by the rules of any submission, and a run is started like any other. Both can be
refused. A firing whose key is taken already has been carried out before.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from rota.core.commands import SubmitTasks
from rota.core.decisions import AddTask
from rota.core.ids import TaskId
from rota.core.schedules.firing import (
    FiredEnd,
    FiringPlan,
    PlannedFiring,
    note_fired,
    note_refused,
    settle,
)
from rota.core.schedules.model import Firing, ScheduleRecord, ScheduleSpec
from rota.core.schedules.targets import start_of, task_of
from rota.core.tasks.model import NewTask, TaskRecord, TaskState
from rota.core.tasks.submission import submission
from rota.core.tasks.submission.holders import key_place
from rota.core.workflow.events import RunCancelRequested
from rota.engine.commit.batch import Batch
from rota.engine.commit.request import earlier
from rota.engine.runs.advancing.run_advancer import RunAdvancer
from rota.errors import RotaError
from rota.store.schedules import ScheduleStore
from rota.store.tasks.tasks import TaskStore
from rota.store.workflow.runs import RunStore


class PlannedSchedule(Struct):
    """A schedule on the way from its plan to what came of it."""

    record: ScheduleRecord  # before; what it has fired is settled
    spec: ScheduleSpec
    plan: FiringPlan


class FiredSchedule(Struct, frozen=True):
    """A schedule after its plan was carried out, with the new rows of its history."""

    record: ScheduleRecord
    spec: ScheduleSpec
    rows: list[Firing]
    is_paused: bool  # by its plan


class ScheduleFirer:
    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._store = ScheduleStore(batch.tx)
        self._advancer = RunAdvancer(batch)
        self._now_ms = batch.context.now_ms
        self._fired: set[int] = set()  # in this batch: the store does not have them yet

    def settled(self, records: Iterable[ScheduleRecord]) -> list[ScheduleRecord]:
        """The schedules, with the ends of what they have fired taken in."""
        found = [*records]
        ends = self._ends(found)
        return [replace(one, state=settle(one.state, ends)) for one in found]

    def _ends(self, records: Sequence[ScheduleRecord]) -> Mapping[int, FiredEnd]:
        """The ends of what these schedules have fired, also those of this batch."""
        known: dict[int, FiredEnd] = {}
        asked = []
        for item in (one for record in records for one in record.state.open):
            live = self._advancer.loader.cached(item.id) if item.is_run else None
            finished = self._batch.snapshot.finished.get(TaskId(item.id))
            if finished is not None:
                is_success = (
                    None
                    if finished.state is TaskState.CANCELLED
                    else finished.state is TaskState.SUCCEEDED
                )
                known[item.id] = FiredEnd(is_success, finished.finished_at_ms)
            elif item.id not in self._fired and (live is None or live.run.is_ended):
                asked.append(item)
        return known | (self._store.ends(asked) if asked else {})

    def carry_out(self, planned: Sequence[PlannedSchedule]) -> list[FiredSchedule]:
        """Submit and start what the plans fire; return the schedules afterwards."""
        tasks = {
            (one.record.name, firing.number): task_of(
                one.record.name, one.spec, firing, one.plan.state
            )
            for one in planned
            if one.spec.task is not None
            for firing in one.plan.fires
        }
        self._load_tasks(tasks.values())
        return [self._carry_out_one(one, tasks) for one in planned]

    def _load_tasks(self, tasks: Iterable[NewTask]) -> None:
        batch, snapshot = self._batch, self._batch.snapshot
        new = [*tasks]
        if not new:
            return
        places = [place for task in new if (place := key_place(task)) is not None]
        missing = [one for one in places if one not in snapshot.keys]
        snapshot.keys |= TaskStore(batch.tx, batch.lanes).by_keys(missing)
        if snapshot.lane_room is None:
            snapshot.lane_room = batch.lanes.room_for(batch.tx, new, self._now_ms)

    def _carry_out_one(
        self, one: PlannedSchedule, tasks: Mapping[tuple[str, int], NewTask]
    ) -> FiredSchedule:
        name, plan = one.record.name, one.plan
        for item in plan.cancels:
            if item.is_run:
                reason = f"schedule {name!r} fires again"
                self._advancer.feed(item.id, RunCancelRequested(self._now_ms, reason))
            else:
                self._advancer.cancel_task(TaskId(item.id))
        state, rows = plan.state, [*plan.rows]
        for firing in plan.fires:
            try:
                if one.spec.task is not None:
                    item_id, is_duplicate = self._submit(tasks[name, firing.number])
                else:
                    item_id, is_duplicate = self._start(one, firing)
            except RotaError as error:
                rows.append(note_refused(firing, error.detail, self._now_ms))
                continue
            self._fired.add(item_id)
            state, row = note_fired(
                state,
                firing,
                item_id,
                self._now_ms,
                is_run=one.spec.run is not None,
                is_duplicate=is_duplicate,
            )
            rows.append(row)
        rows.sort(key=lambda row: row.number)
        after = replace(one.record, state=state)
        return FiredSchedule(after, one.spec, rows, plan.is_paused)

    def _submit(self, task: NewTask) -> tuple[int, bool]:
        """Submit a task; return its id, and whether it was there already."""
        batch = self._batch
        added, submitted = submission.submit(batch.snapshot, SubmitTasks([task]), batch.context)
        if added:
            batch.decisions.setdefault(AddTask, []).extend(added)
        (item,) = submitted.items
        return item.id, isinstance(item, TaskRecord)

    def _start(self, one: PlannedSchedule, firing: PlannedFiring) -> tuple[int, bool]:
        """Start a run; return its id, and whether it was there already."""
        command = start_of(one.record.name, one.spec, firing, one.plan.state)
        assert command.key is not None
        known = RunStore(self._batch.tx).id_by_key(command.key)
        if known is not None:
            return known, True
        return self._advancer.begin(command).record.id, False

    def close(self) -> None:
        self._advancer.close()

    def write(self) -> None:
        """Write what the firings have changed about runs."""
        self._advancer.write()
        delivery = self._batch.delivery
        delivery.next_moment_ms = earlier(delivery.next_moment_ms, self._advancer.next_moment_ms)
