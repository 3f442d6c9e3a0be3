"""Mistakes in the firing of schedules, each of which a seed must find."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from rota.core.schedules import firing
from rota.core.schedules.model import ScheduleRecord
from rota.engine.schedules.schedule_domain import ScheduleDomain
from rota.engine.working_set.held_schedules import HeldSchedules
from rota.engine.working_set.working_set import WorkingSet
from rota.store.database import Transaction
from rota.store.schedules import ScheduleStore
from rota.store.tasks.lanes import Lanes
from tests.simulation.mutation import Mutants
from tests.simulation.schedules.world import Weather

MUTANTS = Mutants[Weather](seeds=8)
mutant = MUTANTS.add


@mutant(Weather.ROUGH)
def next_time_advanced_in_another_transaction() -> Iterator[None]:
    """The firing is committed first, and the next time with whatever comes next."""
    write, begin = ScheduleDomain.write, WorkingSet.begin
    later: dict[int, Sequence[ScheduleRecord]] = {}  # by leader

    def half(self: ScheduleDomain) -> None:
        def keep(_: ScheduleStore, records: Sequence[ScheduleRecord]) -> None:
            later[id(self.batch.held)] = records

        with patch.object(ScheduleStore, "advance", keep):
            write(self)

    def other_half(self: WorkingSet, tx: Transaction, lanes: Lanes) -> None:
        is_known = self._is_certain
        begin(self, tx, lanes)
        records = later.pop(id(self), ())
        if is_known:
            ScheduleStore(tx).advance(records)

    with (
        patch.object(ScheduleDomain, "write", half),
        patch.object(WorkingSet, "begin", other_half),
    ):
        yield


@mutant(Weather.ROUGH)
def overlap_ignored() -> Iterator[None]:
    """A schedule fires although the last task has not ended."""
    with patch.object(firing, "_is_busy", lambda _: False):
        yield


@mutant(Weather.ROUGH)
def missed_times_forgotten() -> Iterator[None]:
    """Times that passed without a leader never fire."""
    sort_due = firing._sort_due

    def impatient(name: str, spec: Any, plan: Any, now_ms: int, most: int) -> Any:
        ready, missed = sort_due(name, replace(spec, missed="skip"), plan, now_ms, most)
        late = [one for one in ready if one < now_ms - 2_000]
        return [one for one in ready if one not in late], [*missed, *late]

    with patch.object(firing, "_sort_due", impatient):
        yield


@mutant(Weather.ROUGH)
def ends_unnoticed() -> Iterator[None]:
    """A firing that waits for the end of a task is not looked at when the task ends."""

    def deaf(_: HeldSchedules, ids: Iterable[int]) -> None:
        del ids

    with patch.object(HeldSchedules, "note_ended", deaf):
        yield
