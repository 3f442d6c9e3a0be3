"""Broken rules about limits of keys."""

from collections.abc import Iterable, Iterator
from typing import Any
from unittest.mock import patch

from rota.core.ids import TaskId
from rota.engine.working_set.held_flows import HeldFlows
from rota.engine.working_set.held_limits import HeldLimits
from rota.engine.working_set.working_set import WorkingSet
from tests.simulation import profiles
from tests.simulation.mutation import Mutants
from tests.simulation.profiles import Profile

MUTANTS = Mutants[Profile](seeds=10)
mutant = MUTANTS.add


@mutant(profiles.LIMITED_TASKS)
def slot_is_returned_twice() -> Iterator[None]:
    """The end of an attempt frees its slots, and so does the next heartbeat without it."""
    finished = HeldLimits.note_finished

    def twice(self: HeldLimits, task_id: TaskId) -> list[str]:
        freed = finished(self, task_id)
        for key in freed:
            if self.running.get(key):
                self.running[key] -= 1
        return freed

    with patch.object(HeldLimits, "note_finished", twice):
        yield


@mutant(profiles.LIMITED_TASKS)
def slot_is_free_while_a_cancelled_handler_runs() -> Iterator[None]:
    with patch.object(HeldFlows, "note_lingering", lambda *_: None):
        yield


@mutant(profiles.LIMITED_TASKS)
def slot_is_leaked_by_a_cancelled_attempt() -> Iterator[None]:
    """The worker lets go of a cancelled attempt, and its slot stays taken."""
    with patch.object(HeldFlows, "note_let_go", lambda *_, **__: None):
        yield


@mutant(profiles.LIMITED_TASKS)
def running_tasks_are_not_counted_after_a_restart() -> Iterator[None]:
    with patch.object(HeldFlows, "_count_slots", lambda *_: None):
        yield


@mutant(profiles.LIMITED_TASKS)
def lease_takes_no_slot() -> Iterator[None]:
    leased = WorkingSet.note_leased

    def without_flows(self: WorkingSet, *given: Any, **more: Any) -> None:
        def ignored(_: HeldFlows, _tasks: Iterable[Any], *, now_ms: int) -> None:
            del now_ms

        with patch.object(HeldFlows, "note_leased", ignored):
            leased(self, *given, **more)

    with patch.object(WorkingSet, "note_leased", without_flows):
        yield
