"""Schedules inside a batch: a firing, its history and the next time are one transaction.

The tasks that schedules fire are submitted by the rules of any submission, and their runs are
started like any other. So this domain comes after those of tasks and runs, which write what it
decides about tasks.
"""

from collections.abc import Sequence
from typing import assert_never, get_args

from rota.core import limits
from rota.core.events import Event
from rota.core.ids import to_text
from rota.core.replies import Done
from rota.core.schedules import changes
from rota.core.schedules.commands import (
    BackfillSchedule,
    CodeSchedule,
    DeleteSchedule,
    FireSchedules,
    FiringShown,
    PauseSchedule,
    PutSchedule,
    ResumeSchedule,
    RunSchedule,
    ScheduleCommand,
    ScheduleReply,
    ScheduleShown,
    SchedulesSynced,
    SyncSchedules,
)
from rota.core.schedules.firing import plan_backfill, plan_due, plan_now
from rota.core.schedules.model import Firing, ScheduleRecord, ScheduleSpec
from rota.core.schedules.times import upcoming
from rota.engine.commit.batch import Batch, Domain, tally
from rota.engine.schedules.schedule_firer import (
    FiredSchedule,
    PlannedSchedule,
    ScheduleFirer,
)
from rota.errors import Invalid, RotaError
from rota.store.schedules import ScheduleStore

SCHEDULES_PER_STEP = 500  # looked at in one transaction; the rest follow in the next
FIRED_PER_STEP = 1_000  # tasks and runs fired in one transaction

EVENT_TYPES = {
    "fired": "schedule-fired",
    "skipped_overlap": "schedule-skipped",
    "skipped_missed": "schedule-skipped",
    "dropped": "schedule-skipped",
    "queued": "schedule-queued",
    "refused": "schedule-refused",
}


class ScheduleDomain(Domain):
    """The schedules of one batch."""

    COMMANDS = frozenset(get_args(ScheduleCommand))

    def __init__(self, batch: Batch) -> None:
        super().__init__(batch)
        self._store = ScheduleStore(batch.tx)
        self._firer = ScheduleFirer(batch)
        self._now_ms = batch.context.now_ms
        self._records: dict[str, ScheduleRecord | None] = {}  # after the commands so far
        self._count = len(batch.held.schedules)
        self._due: list[str] = []
        self._left: list[str] = []  # due, but more than one step may fire
        self._of_source: dict[str, list[str]] = {}
        self._put: set[str] = set()
        self._advanced: set[str] = set()
        self._deleted: set[str] = set()
        self._rows: dict[str, list[Firing]] = {}

    # --- loading ----------------------------------------------------------------------------------

    def load(self, commands: Sequence[ScheduleCommand]) -> None:
        batch = self.batch
        if FireSchedules in batch.kinds:
            self._due = batch.held.schedules.take_due(self._now_ms, SCHEDULES_PER_STEP)
        names = dict.fromkeys(self._due)
        for command in commands:
            if isinstance(command, SyncSchedules):
                self._of_source[command.source] = self._store.of_source(command.source)
                names |= dict.fromkeys(one.name for one in command.schedules)
                names |= dict.fromkeys(self._of_source[command.source])
            elif not isinstance(command, FireSchedules):
                names[command.name] = None
        self._records |= dict.fromkeys(names)
        self._records |= self._store.by_names(names)

    # --- reducing ---------------------------------------------------------------------------------

    def reduce(self, command: ScheduleCommand) -> ScheduleReply:  # noqa: PLR0911 - a table
        match command:
            case FireSchedules():
                return self._fire_due()
            case PutSchedule():
                return self._put_one(command)
            case SyncSchedules():
                return self._sync(command)
            case DeleteSchedule():
                return self._delete(command)
            case PauseSchedule():
                return self._pause(command)
            case ResumeSchedule():
                return self._resume(command)
            case RunSchedule():
                return self._run_now(command)
            case BackfillSchedule():
                return self._backfill(command)
            case _:
                assert_never(command)

    def _put_one(self, command: PutSchedule) -> ScheduleShown:
        before = self._records[command.name]
        after = changes.put(before, command, count=self._count, now_ms=self._now_ms)
        self._keep(after, is_new=before is None)
        if before is None or before.document != after.document:
            self._tell("schedule-put", after)
        was_paused = before is not None and before.state.pause is not None
        if was_paused != (after.state.pause is not None):
            self._tell("schedule-resumed" if was_paused else "schedule-paused", after)
        return ScheduleShown(after, is_new=before is None)

    def _sync(self, command: SyncSchedules) -> SchedulesSynced:
        synced = [self._sync_one(command, one) for one in command.schedules]
        named = {one.name for one in command.schedules}
        gone = [name for name in self._of_source[command.source] if name not in named]
        orphaned = []
        for name in gone:
            record = self._records.get(name)
            if record is not None and (
                command.by is None or changes.may_see(command.by, record.spec)
            ):
                orphaned.append(name)
                if not record.state.is_orphaned:
                    self._keep(changes.orphaned(record))
        return SchedulesSynced(
            changed=tuple(record.name for record, is_changed in synced if is_changed),
            unchanged=tuple(
                record.name
                for record, is_changed in synced
                if not is_changed and not record.state.is_pinned
            ),
            pinned=tuple(record.name for record, _ in synced if record.state.is_pinned),
            orphaned=tuple(orphaned),
        )

    def _sync_one(self, command: SyncSchedules, one: CodeSchedule) -> tuple[ScheduleRecord, bool]:
        before = self._records[one.name]
        after, is_changed = changes.synced(
            before,
            one.name,
            one.document,
            source=command.source,
            by=command.by,
            count=self._count,
            now_ms=self._now_ms,
        )
        if after != before:
            self._keep(after, is_new=before is None)
        if is_changed:
            self._tell("schedule-put", after)
        return after, is_changed

    def is_half_done(self, command: ScheduleCommand) -> bool:
        return isinstance(command, SyncSchedules) and bool(self._put)

    def _delete(self, command: DeleteSchedule) -> ScheduleShown:
        record = changes.known(self._records[command.name], command.name, command.by)
        self._records[record.name] = None
        self._put.discard(record.name)
        self._advanced.discard(record.name)
        self._rows.pop(record.name, None)
        self._deleted.add(record.name)
        self._count -= 1
        self._tell("schedule-deleted", record)
        return ScheduleShown(record)

    def _pause(self, command: PauseSchedule) -> ScheduleShown:
        record = changes.known(self._records[command.name], command.name, command.by)
        after = changes.paused(record, command.note, command.by, now_ms=self._now_ms)
        self._keep(after)
        if record.state.pause is None:
            self._tell("schedule-paused", after)
        return ScheduleShown(after)

    def _resume(self, command: ResumeSchedule) -> ScheduleShown:
        record = changes.known(self._records[command.name], command.name, command.by)
        after = changes.resumed(record, now_ms=self._now_ms)
        self._keep(after)
        if record.state.pause is not None:
            self._tell("schedule-resumed", after)
        return ScheduleShown(after)

    def _run_now(self, command: RunSchedule) -> FiringShown:
        record = changes.known(self._records[command.name], command.name, command.by)
        (record,) = self._firer.settled([record])
        plan = plan_now(record.spec, record.state, self._now_ms)
        (fired,) = self._carry_out([PlannedSchedule(record, record.spec, plan)])
        return FiringShown(fired.rows[-1])

    def _backfill(self, command: BackfillSchedule) -> Done:
        record = changes.known(self._records[command.name], command.name, command.by)
        spec, most = record.spec, limits.MAX_BACKFILL
        to_ms = min(command.to_ms, self._now_ms)
        nominals = [one for one in upcoming(spec, command.from_ms - 1, most + 1) if one < to_ms]
        if len(nominals) > most:
            raise Invalid(f"to_ms: more than {most} times; backfill a shorter range", field="to_ms")
        if nominals and not command.is_dry_run:
            (record,) = self._firer.settled([record])
            overlap = command.overlap or spec.overlap
            plan = plan_backfill(record.state, nominals, overlap, self._now_ms)
            self._carry_out([PlannedSchedule(record, spec, plan)])
        return Done(len(nominals))

    # --- firing -----------------------------------------------------------------------------------

    def _fire_due(self) -> Done:
        """Fire what is due, once even if the batch has several such commands."""
        due, self._due = self._due, []
        records = self._firer.settled(
            record for name in due if (record := self._records[name]) is not None
        )
        planned: list[PlannedSchedule] = []
        left = FIRED_PER_STEP
        for record in records:
            if left <= 0:
                self._left.append(record.name)
                continue
            one = self._planned(record, left)
            if one is not None:
                planned.append(one)
                left -= len(one.plan.fires)
        self._carry_out(planned)
        return Done(len(due))

    def _planned(self, record: ScheduleRecord, most: int) -> PlannedSchedule | None:
        try:
            spec = record.spec
            plan = plan_due(record.name, spec, record.state, self._now_ms, most=most)
        except (RotaError, ValueError) as error:
            # Such as a time zone that no longer exists. Other schedules must go on.
            note = f"its times cannot be found any more: {error}"
            after = changes.paused(record, note, None, now_ms=self._now_ms)
            self._keep(after)
            self._tell("schedule-paused", after)
            return None
        return PlannedSchedule(record, spec, plan)

    def _carry_out(self, planned: Sequence[PlannedSchedule]) -> list[FiredSchedule]:
        fired = self._firer.carry_out(planned)
        for one in fired:
            self._keep(one.record, is_advanced=True)
            self._rows.setdefault(one.record.name, []).extend(one.rows)
            for row in one.rows:
                self._tell_firing(one, row)
            if one.is_paused:
                self._tell("schedule-paused", one.record)
        return fired

    # --- writing ----------------------------------------------------------------------------------

    def _keep(
        self, record: ScheduleRecord, *, is_new: bool = False, is_advanced: bool = False
    ) -> None:
        self._records[record.name] = record
        (self._advanced if is_advanced else self._put).add(record.name)
        self._count += is_new

    def close(self) -> None:
        self._firer.close()

    def write(self) -> None:
        batch, store = self.batch, self._store
        for name in self._deleted:
            store.delete(name)
        advanced = []
        for name in self._put | self._advanced:
            record = self._records[name]
            assert record is not None, "a deleted schedule is neither put nor advanced"
            if name in self._put:
                store.put(record)
            else:
                advanced.append(record)
        store.advance(advanced)
        store.add_firings(self._rows)
        held = batch.held.schedules
        held.note_left(self._left)
        for name in self._put | self._advanced | self._deleted:
            held.note(name, self._records[name], is_checked=name in self._advanced)
        self._firer.write()

    # --- events -----------------------------------------------------------------------------------

    def _tell(self, kind: str, record: ScheduleRecord) -> None:
        data: dict[str, object] = _place(record.spec)
        pause = record.state.pause
        if kind == "schedule-paused" and pause is not None:
            data |= {"note": pause.note} | ({} if pause.by is None else {"by": pause.by})
        self.batch.events.append(Event(type=kind, subject=record.name, data=data))

    def _tell_firing(self, fired: FiredSchedule, row: Firing) -> None:
        data: dict[str, object] = _place(fired.spec) | {"nominal_ms": row.nominal_ms}
        if row.id is not None:
            data["run_id" if row.is_run else "task_id"] = to_text(row.id)
        if row.outcome not in {"fired", "queued"}:
            data |= {"outcome": row.outcome, "count": row.count}
        if row.reason:
            data["error"] = row.reason
        kind = EVENT_TYPES[row.outcome]
        self.batch.events.append(Event(type=kind, subject=fired.record.name, data=data))
        queue = fired.spec.queue or ""
        tally(self.batch.firings, (queue, row.outcome), row.count)
        delay_ms = row.fired_at_ms - row.nominal_ms
        if row.outcome == "fired" and 0 <= delay_ms <= fired.spec.catch_up_ms:  # no backfill
            tally(self.batch.late_ms, queue, delay_ms)


def _place(spec: ScheduleSpec) -> dict[str, object]:
    """The queue of a schedule, which decides who may see its events; none if it starts runs."""
    return {} if spec.queue is None else {"queue": spec.queue}
