"""Which rules of functions, if broken, would the simulation notice? All of these, by name."""

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from rota.core.workflow.functions import operations
from rota.core.workflow.functions.model import Operation
from rota.core.workflow.functions.run import CodeRun, PendingOperation
from tests.simulation.functions.world import Profile
from tests.simulation.mutation import Mutants

ANY = Profile("any")
WAITING = Profile("waiting", kinds=("call", "map", "run", "sleep", "event"))

MUTANTS = Mutants[Profile](seeds=50)
mutant = MUTANTS.add

_end = operations.end
_wait_for = operations.wait_for


@mutant(ANY)
def a_repeated_report_is_taken_twice() -> Iterator[None]:
    def unknown_part(_run: CodeRun, _after: int, reported: list[Operation]) -> list[Operation]:
        return reported

    with patch.object(operations, "unknown_part", unknown_part):
        yield


@mutant(WAITING)
def ends_are_logged_out_of_order() -> Iterator[None]:
    def end(run: CodeRun, pending: PendingOperation, **how: Any) -> None:
        _end(run, pending, **how)
        run.log.insert(0, run.log.pop())

    with patch.object(operations, "end", end):
        yield


@mutant(WAITING)
def a_function_holds_its_slot_while_it_waits() -> Iterator[None]:
    def wait_for(run: CodeRun, groups: list[list[str]]) -> None:
        _wait_for(run, groups)
        run.is_held = True

    with patch.object(operations, "wait_for", wait_for):
        yield


@mutant(WAITING)
def each_child_wakes_its_parent() -> Iterator[None]:
    def end(run: CodeRun, pending: PendingOperation, **how: Any) -> None:
        _end(run, pending, **how)
        run.is_due |= run.waits is not None

    with patch.object(operations, "end", end):
        yield


@mutant(WAITING)
def an_end_that_came_while_the_function_ran_is_forgotten() -> Iterator[None]:
    def wait_for(run: CodeRun, groups: list[list[str]]) -> None:
        _wait_for(run, groups)
        run.is_due = False

    with patch.object(operations, "wait_for", wait_for):
        yield


@mutant(ANY)
def a_delivered_end_is_delivered_again() -> Iterator[None]:
    append = CodeRun.append

    def forgetful(run: CodeRun, operation: Operation) -> int:
        if operation.state == "delivered":
            return len(run.log)
        return append(run, operation)

    with patch.object(CodeRun, "append", forgetful):
        yield
