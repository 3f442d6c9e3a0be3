"""Schedules and the history of their firings."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from rota.core import limits
from rota.core.schedules.changes import due_at_ms
from rota.core.schedules.firing import FiredEnd
from rota.core.schedules.model import FiredItem, Firing, ScheduleRecord, ScheduleState
from rota.core.tasks.model import TaskState
from rota.core.workflow.states import RUN_ENDED, RunState
from rota.store.database import Transaction, decoding

ADVANCE_COLUMNS = ("due_ms", "is_waiting", "state", "name")
FIRING_COLUMNS = ("schedule", "slot", "number", "firing")

_encode = msgspec.json.Encoder().encode
_record = decoding(ScheduleRecord, document=bytes, state=msgspec.json.Decoder(ScheduleState).decode)
_firing = msgspec.json.Decoder(Firing).decode

# None: neither a success nor a failure.
_TASK_ENDS = {TaskState.SUCCEEDED: True, TaskState.FAILED: False, TaskState.CANCELLED: None}
_RUN_ENDS = {
    RunState.COMPLETED: True,
    RunState.FAILED: False,
    RunState.TIMED_OUT: False,
    RunState.CANCELLED: None,
}
assert _RUN_ENDS.keys() == RUN_ENDED


class ScheduleAlarm(NamedTuple):
    """When a schedule has to be looked at."""

    name: str
    due_ms: int | None
    is_waiting: bool


class ScheduleStore:
    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    # --- reading --------------------------------------------------------------------------------

    def alarms(self) -> list[ScheduleAlarm]:
        """The alarms of all schedules."""
        return [
            ScheduleAlarm(name, due_ms, bool(is_waiting))
            for name, due_ms, is_waiting in self._tx.rows("schedules.alarms")
        ]

    def by_names(self, names: Iterable[str]) -> dict[str, ScheduleRecord]:
        wanted = [*names]
        found = self._tx.records(_record, "schedules.by_names", names=wanted) if wanted else []
        return {one.name: one for one in found}

    def of_source(self, source: str) -> list[str]:
        return self._tx.column("schedules.of_source", source=source)

    def page(self, *, queues: Sequence[str] | None, after: str, limit: int) -> list[ScheduleRecord]:
        """The next schedules in the order of their names, of these queues or of all."""
        if queues is None:
            return self._tx.records(_record, "schedules.page", after=after, limit=limit)
        found = [
            record
            for queue in queues
            for record in self._tx.records(
                _record, "schedules.page_of_queue", queue=queue, after=after, limit=limit
            )
        ]
        return sorted(found, key=lambda one: one.name)[:limit]

    def firings(self, name: str) -> list[Firing]:
        """The history of a schedule, the newest first."""
        found = [_firing(one) for one in self._tx.column("schedules.firings", schedule=name)]
        return sorted(found, key=lambda one: one.number, reverse=True)

    def last_firings(self, names: Sequence[str]) -> dict[str, Firing]:
        """The newest row of the history of each schedule that has one."""
        if not names:
            return {}
        rows = self._tx.rows("schedules.last_firings", names=[*names])
        return {name: _firing(one) for name, one in rows}

    def ends(self, items: Sequence[FiredItem]) -> dict[int, FiredEnd]:
        """The ends of those of these tasks and runs that have ended, or are no longer known."""
        ended: dict[int, FiredEnd] = {}
        if tasks := [one.id for one in items if not one.is_run]:
            for task_id, state, at_ms in self._tx.rows("schedules.ended_tasks", ids=tasks):
                ended[task_id] = FiredEnd(_TASK_ENDS[TaskState(state)], at_ms)
            if unknown := [one for one in tasks if one not in ended]:
                live = set(self._tx.column("schedules.live_tasks", ids=unknown))
                ended |= {one: FiredEnd(None) for one in unknown if one not in live}
        if runs := [one.id for one in items if one.is_run]:
            states = {
                run_id: (RunState(state), at_ms)
                for run_id, state, at_ms in self._tx.rows("schedules.run_states", ids=runs)
            }
            for run_id in runs:
                state, at_ms = states.get(run_id, (RunState.CANCELLED, None))
                if state in RUN_ENDED:
                    ended[run_id] = FiredEnd(_RUN_ENDS[state], at_ms or 0)
        return ended

    # --- writing --------------------------------------------------------------------------------

    def put(self, record: ScheduleRecord) -> None:
        self._tx.pipeline(
            "schedules.put",
            name=record.name,
            queue=record.spec.queue,
            source=record.state.source,
            due_ms=due_at_ms(record),
            is_waiting=int(is_waiting(record.state)),
            document=record.document,
            state=_encode(record.state),
        )

    def advance(self, records: Sequence[ScheduleRecord]) -> None:
        """Write the states of schedules that have fired; every one of them must be there."""
        if not records:
            return
        rows = [
            (due_at_ms(one), int(is_waiting(one.state)), _encode(one.state), one.name)
            for one in records
        ]
        self._tx.pipeline_each("schedules.advance", ADVANCE_COLUMNS, rows)

    def delete(self, name: str) -> None:
        self._tx.pipeline("schedules.delete", name=name)
        self._tx.pipeline("schedules.drop_firings", schedule=name)

    def add_firings(self, firings: Mapping[str, Sequence[Firing]]) -> None:
        """Write rows of the history, which keeps the newest ones of each schedule."""
        most = limits.MAX_KEPT_FIRINGS
        newest = {
            (name, one.number % most): (name, one.number % most, one.number, _encode(one))
            for name, rows in firings.items()
            for one in rows
        }
        if newest:
            self._tx.pipeline_many("schedules.put_firing", FIRING_COLUMNS, [*newest.values()])


def is_waiting(state: ScheduleState) -> bool:
    return bool(state.waiting) and state.pause is None
