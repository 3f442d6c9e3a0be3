"""Slices: a run that takes many steps takes them in events of a bounded size."""

import pytest

from rota.core.limits import MAX_DECISION_STEPS
from rota.core.workflow.decisions import CreateToken, SetTimer
from rota.core.workflow.events import RunStarted
from rota.core.workflow.runtime import reducer
from tests.core.workflow.driving import Drive

LOOP = """
name: loop
initial_node: a
nodes: {a: {output: {state.n: '"n" in state ? state.n + 1 : 1'}}, ask: {task: ask}}
transitions: [{from: a, to: a, max_iterations: 50}, {from: a, to: ask, priority: 2}]
output: {n: state.n}
"""
FAN = """
name: fan
initial_node: start
nodes: {start: {}, work: {task: work, input: {i: branch.index}}, after: {}}
transitions:
  - {id: fan, from: start, to: work, spawn_count: 30}
  - {from: work, to: after, synchronization: {joins_transition: fan, merge: {target: output.got}}}
"""


def created(drive: Drive) -> list[int]:
    """The tokens created by each event."""
    return [
        sum(isinstance(one, CreateToken) for one in decisions) for _, decisions in drive.journal
    ]


def test_a_loop_takes_its_steps_in_slices_and_comes_to_the_same_end() -> None:
    whole = Drive(LOOP, None, {"ask": lambda _: 1}).to_end()
    sliced = Drive(LOOP, None, {"ask": lambda _: 1}, slice_steps=7)
    while not sliced.tasks:
        sliced.turn_clock()
        sliced.restart()

    assert sliced.to_end().output == whole.output == {"n": 51}
    assert len(created(sliced)) == 9
    assert max(created(sliced)) <= 8
    assert sliced.of_kind(CreateToken) == whole.of_kind(CreateToken)


def test_a_fan_out_starts_its_branches_in_slices() -> None:
    drive = Drive(FAN, None, {"work": lambda payload: payload["i"]}, slice_steps=4)
    assert len(drive.tasks) < 4

    assert drive.to_end().output == {"got": list(range(30))}
    assert max(created(drive)) <= 5
    drive.restart()


def test_results_that_come_between_two_slices_take_no_steps() -> None:
    drive = Drive(FAN, None, {"work": lambda payload: payload["i"]}, slice_steps=4)
    while len(drive.tasks) < 3:
        drive.turn_clock()
    before = len(drive.tasks)

    for number in list(drive.tasks):
        drive.answer(number)
        assert drive.run.timers

    assert len(drive.tasks) <= before
    assert drive.to_end().output == {"got": list(range(30))}


@pytest.mark.parametrize("mode", ["undo", "force"])
def test_a_run_can_be_cancelled_between_two_slices(mode: str) -> None:
    drive = Drive(FAN, slice_steps=4)
    drive.turn_clock()

    drive.cancel(mode=mode)  # type: ignore[arg-type]  # one of them

    assert drive.state == "cancelled"
    assert not drive.tasks
    assert not drive.run.timers


def test_a_run_can_be_paused_between_two_slices() -> None:
    drive = Drive(FAN, None, {"work": lambda payload: payload["i"]}, slice_steps=4)
    drive.turn_clock()
    drive.pause()
    while drive.run.timers:
        drive.turn_clock()
    waiting = len(drive.tasks)

    drive.resume()

    assert waiting < 5
    assert drive.to_end().output == {"got": list(range(30))}
    drive.restart()


def test_a_failure_between_two_slices_can_be_retried() -> None:
    drive = Drive(FAN, None, {"work": lambda payload: payload["i"]}, slice_steps=4)
    while not drive.tasks:
        drive.turn_clock()
    drive.fail(min(drive.tasks))
    assert drive.state == "failed"

    drive.retry()

    assert drive.to_end().output == {"got": list(range(30))}
    drive.restart()


def test_a_slice_ends_when_its_expressions_have_taken_many_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reducer, "LEAST_EXPRESSION_STEPS", MAX_DECISION_STEPS + 1)

    drive = Drive(LOOP, slice_steps=1_000)

    assert created(drive) == [2]


def test_a_run_of_an_earlier_version_takes_all_its_steps_at_once() -> None:
    drive = Drive(FAN, rules=1)

    assert drive.journal[0][0] == RunStarted(1_000)
    assert len(drive.tasks) == 30
    assert not drive.of_kind(SetTimer)


def test_a_loop_that_does_not_end_is_stopped_over_many_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reducer, "MOST_STEPS", 40)

    drive = Drive(LOOP, slice_steps=7)
    while not drive.is_ended:
        drive.turn_clock()

    assert drive.error["type"] == "too_many_steps"
