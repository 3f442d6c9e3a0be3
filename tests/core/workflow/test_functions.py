"""The rules of functions: whatever happens in whatever order, the outcome is one."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.workflow.decisions import ResumeFunction
from rota.core.workflow.events import (
    FunctionStopped,
    OperationsReported,
    RunStarted,
    Signalled,
    TaskEnded,
)
from rota.core.workflow.functions.model import (
    CallRequest,
    EventRequest,
    FunctionReport,
    Operation,
    OperationKind,
    name_of,
    scope_of,
)
from rota.core.workflow.functions.reducer import new_run, reduce
from rota.core.workflow.functions.rewriting import take_over
from rota.core.workflow.functions.run import CodeRun
from rota.core.workflow.states import RunState
from tests.core.workflow.scripts import (
    FUNCTION,
    Kind,
    World,
    outcome_of,
    replayed,
)

MOST_STEPS = 500
KINDS: list[Kind] = ["step", "call", "map", "run", "sleep", "event"]

statements = st.lists(st.sampled_from(KINDS), min_size=1, max_size=4).map(tuple)
scripts = st.lists(statements, min_size=1, max_size=4).map(tuple)


@given(scripts, st.data())
def test_any_interleaving_with_crashes_and_repeats_leads_to_one_outcome(
    script: tuple[tuple[Kind, ...], ...], data: st.DataObject
) -> None:
    world = World(script)
    world.start()

    for _ in range(MOST_STEPS):
        if world.run.is_ended:
            break
        choices = world.choices()
        assert choices, "nothing can happen, and the run has not ended"
        choice = data.draw(st.sampled_from(choices))
        world.happen(choice, data.draw(st.integers(0, 7)))

    assert world.run.state is RunState.COMPLETED
    assert world.run.output == outcome_of(script)
    again = replayed(world.journal)
    assert (again.log, again.output, again.reported) == (
        world.run.log,
        world.run.output,
        world.run.reported,
    )


@given(scripts, st.data())
def test_an_operation_is_logged_once_and_its_end_is_delivered_once(
    script: tuple[tuple[Kind, ...], ...], data: st.DataObject
) -> None:
    world = World(script)
    world.start()
    for _ in range(MOST_STEPS):
        if world.run.is_ended:
            break
        choice = data.draw(st.sampled_from(world.choices()))
        world.happen(choice, data.draw(st.integers(0, 7)))

    entries = Counter((one.path, one.state) for one in world.run.operations())

    assert set(entries.values()) == {1}
    assert all(world.run.first == 0 for _ in entries)
    # A group of operations wakes the function at most once, and it starts once.
    assert world.resumes <= len(script) + 1


# --- single rules ---------------------------------------------------------------------------------


def call(path: str) -> Operation:
    return Operation(path=path, kind="call", state="pending", request=CallRequest(task="t"))


def test_ends_are_logged_in_the_order_in_which_they_come() -> None:
    run = new_run(FUNCTION, None)
    reduce(run, RunStarted(0, None))
    report = FunctionReport(operations=[call("a#1"), call("b#1")], waits=[["a#1", "b#1"]])
    reduce(run, FunctionStopped(1, report))

    reduce(run, TaskEnded(2, 2, ok=True, result="b"))
    decisions = reduce(run, TaskEnded(3, 1, ok=True, result="a"))

    assert [one.path for one in run.operations()[2:]] == ["b#1", "a#1"]
    assert ResumeFunction(2) in decisions


def test_a_stopped_function_is_not_resumed_before_its_group_has_ended() -> None:
    run = new_run(FUNCTION, None)
    reduce(run, RunStarted(0, None))
    report = FunctionReport(operations=[call("a#1"), call("b#1")], waits=[["a#1", "b#1"]])
    reduce(run, FunctionStopped(1, report))

    decisions = reduce(run, TaskEnded(2, 1, ok=True))

    assert not run.is_held
    assert not any(isinstance(one, ResumeFunction) for one in decisions)


def test_a_report_of_a_function_that_is_not_held_changes_nothing() -> None:
    run = new_run(FUNCTION, None)
    reduce(run, RunStarted(0, None))
    reduce(run, FunctionStopped(1, FunctionReport(operations=[call("a#1")], waits=[["a#1"]])))

    late = reduce(run, OperationsReported(2, [call("b#1")]))

    assert (late, len(run.log)) == ([], 1)


@pytest.mark.parametrize(
    "operations",
    [
        [Operation(path="a#1", kind="call", state="pending")],
        [Operation(path="a#1", kind="call", state="delivered")],
        [Operation(path="a#1", kind="publish", state="done", result=1)],
        [call("a#1"), call("a#1")],
    ],
)
def test_a_report_that_no_function_makes_fails_the_run(operations: list[Operation]) -> None:
    run = new_run(FUNCTION, None)
    reduce(run, RunStarted(0, None))

    reduce(run, OperationsReported(1, operations))

    assert run.state is RunState.FAILED
    assert run.error is not None
    assert run.error["type"] == "report_invalid"


def test_a_function_that_does_not_take_up_what_it_waits_for_is_not_resumed_for_ever() -> None:
    run = new_run(FUNCTION, None)
    reduce(run, RunStarted(0, None))
    reduce(run, FunctionStopped(1, FunctionReport(operations=[call("a#1")], waits=[["a#1"]])))
    reduce(run, TaskEnded(2, 1, ok=True))
    assert run.is_held

    reduce(run, FunctionStopped(3, FunctionReport(after=1, waits=[["a#1"]])))

    assert run.state is RunState.FAILED


def test_signals_are_taken_in_order_by_name() -> None:
    run = new_run(FUNCTION, None)
    reduce(run, RunStarted(0, None))
    for number in (1, 2):
        reduce(run, Signalled(number, "go", number))
    waiting = [
        Operation(path=f"go#{n}", kind="event", state="pending", request=EventRequest(name="go"))
        for n in (1, 2, 3)
    ]

    reduce(run, OperationsReported(3, waiting))
    reduce(run, Signalled(4, "go", 3))

    ends = [one for one in run.operations() if one.state == "done"]
    assert [(one.path, one.result) for one in ends] == [("go#1", 1), ("go#2", 2), ("go#3", 3)]


@pytest.mark.parametrize("is_answered", [False, True])
def test_a_signal_that_a_withdrawn_operation_had_taken_goes_to_the_next(
    is_answered: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    run = new_run(FUNCTION, None)
    reduce(run, RunStarted(0, None))
    kind: OperationKind = "receive" if is_answered else "event"
    request = EventRequest(name="go", is_answered=is_answered)
    first = Operation(path="go#1", kind=kind, state="pending", request=request)
    reduce(run, OperationsReported(1, [first]))
    reduce(run, Signalled(2, "go", "value", key="k"))
    lost = Operation(path="go#1", kind=kind, state="failed", error={"type": "withdrawn"})
    second = Operation(path="go#2", kind=kind, state="pending", request=request)

    reduce(run, OperationsReported(3, [lost, second]))

    last = run.operations()[-1]
    value = {"number": 1, "payload": "value"} if is_answered else "value"
    assert (last.path, last.state, last.result) == ("go#2", "done", value)
    assert (1 in run.answerable) == is_answered


def raced(signals: int) -> CodeRun:
    """A run whose function has asked for signals, all of which have come."""
    run = new_run(FUNCTION, None)
    reduce(run, RunStarted(0, None))
    for number in range(signals):
        name = f"go-{number}"
        asked = Operation(
            path=f"{name}#1", kind="event", state="pending", request=EventRequest(name=name)
        )
        reduce(run, OperationsReported(1, [asked]))
        reduce(run, Signalled(2, name, number))
    return run


def withdrawal(number: int) -> Operation:
    error = {"type": "withdrawn"}
    return Operation(path=f"go-{number}#1", kind="event", state="failed", error=error)


def test_a_withdrawal_reads_no_other_entry_of_the_log() -> None:
    run = raced(3)
    end = run.unseen["go-1#1"].place - 1
    run.log = [entry if place == end else b"unreadable" for place, entry in enumerate(run.log)]

    reduce(run, OperationsReported(3, [withdrawal(1)]))

    assert [kept.payload for kept in run.signals["go-1"]] == [1]


def test_a_fork_keeps_the_signal_of_an_operation_that_it_withdraws() -> None:
    fork = new_run(FUNCTION, None)
    reduce(fork, RunStarted(0, None))
    take_over(fork, raced(2).operations())

    reduce(fork, OperationsReported(3, [withdrawal(1)]))

    assert [kept.payload for kept in fork.signals["go-1"]] == [1]


@pytest.mark.parametrize(
    ("path", "scope", "name"),
    [
        ("price#1", "", "price"),
        ("x/gather#1.0/ship#12", "x/gather#1.0", "ship"),
        ("x/charge[a/b#1]", "x", "charge"),
    ],
)
def test_a_path_has_a_scope_and_a_name(path: str, scope: str, name: str) -> None:
    assert (scope_of(path), name_of(path)) == (scope, name)
