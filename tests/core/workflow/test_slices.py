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
    take_slices(drive)

    assert drive.state == "cancelled"
    assert not drive.tasks
    assert not drive.run.timers


def test_a_run_can_be_paused_between_two_slices() -> None:
    drive = Drive(FAN, None, {"work": lambda payload: payload["i"]}, slice_steps=4)
    drive.turn_clock()
    drive.pause()
    take_slices(drive)
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
    take_slices(drive)
    assert drive.state == "failed"

    drive.retry()

    assert drive.to_end().output == {"got": list(range(30))}
    drive.restart()


# --- joins, failures and retries ------------------------------------------------------------------

PAID = FAN.replace("task: work", "task: work, compensate: undo")


def take_slices(drive: Drive) -> int:
    """Take all slices that are due; how many there were."""
    taken = 0
    while ("slice", 0) in drive.run.timers:
        drive.restart()
        drive.turn_clock()
        taken += 1
    return taken


def at_work(text: str = FAN, rule: str = "") -> Drive:
    """A run whose thirty branches are all at work, in slices of four steps."""
    joined = text.replace("joins_transition: fan", f"joins_transition: fan{rule}")
    handlers = {"work": lambda payload: payload["i"], "undo": lambda _: None}
    drive = Drive(joined, None, handlers, slice_steps=4)
    take_slices(drive)
    assert len(drive.tasks) == 30
    return drive


def most_decisions(drive: Drive, since: int) -> int:
    return max(len(decisions) for _, decisions in drive.journal[since:])


def test_a_join_merges_and_releases_its_branches_in_slices() -> None:
    drive = at_work()
    for number in sorted(drive.tasks):
        drive.answer(number)
    before = len(drive.journal)

    slices = take_slices(drive)

    assert slices >= 14  # thirty branches are merged, and thirty are released
    assert most_decisions(drive, before) <= 20
    assert drive.state == "completed"
    assert drive.output == {"got": list(range(30))}


def test_a_large_run_is_cancelled_in_slices() -> None:
    drive = at_work()
    before = len(drive.journal)

    drive.cancel("enough")
    assert take_slices(drive) >= 7

    assert drive.state == "cancelled"
    assert len(drive.cancelled) == 30
    assert most_decisions(drive, before) <= 20


def test_a_large_run_fails_and_is_retried_in_slices() -> None:
    drive = at_work()
    before = len(drive.journal)

    drive.fail(min(drive.tasks))
    assert take_slices(drive) >= 7
    assert drive.state == "failed"
    drive.retry()
    assert take_slices(drive) >= 7

    assert most_decisions(drive, before) <= 20
    assert drive.to_end().output == {"got": list(range(30))}
    drive.restart()


def test_results_that_come_while_a_join_fires_are_as_late_as_if_it_had_fired_at_once() -> None:
    drive = at_work(rule=", wait_for: any")
    first, second, *_, last = sorted(drive.tasks)
    drive.answer(first)
    assert [one.name for one in drive.run.procedures] == ["fire"]

    drive.answer(second)
    drive.answer(last)
    assert not drive.journal[-1][1]
    take_slices(drive)

    assert drive.output == {"got": [0]}
    assert len(drive.cancelled) == 27


@pytest.mark.parametrize("mode", ["undo", "force"])
def test_work_that_is_done_while_its_run_is_cancelled_is_undone_or_listed(mode: str) -> None:
    drive = at_work(PAID)
    last = max(drive.tasks)
    drive.cancel("enough", mode)  # type: ignore[arg-type]  # one of them
    assert drive.run.procedures

    drive.answer(last)
    take_slices(drive)
    if mode == "undo":
        drive.to_end()

    assert drive.state == "cancelled"
    undone = [one for one in drive.performed if one.task == "undo"]
    assert len(undone) == (mode == "undo")
    assert len(drive.error.get("not_undone", ())) == (mode == "force")


def test_a_merge_that_fails_in_a_later_slice_fails_the_run_and_can_be_retried() -> None:
    text = FAN.replace("merge: {", "merge: {source: 'branch.output.n', ")
    answers = {"work": lambda payload: {"n": 1} if payload["i"] < 20 else {}}
    drive = Drive(text, None, answers, slice_steps=4)
    while not drive.is_ended:
        drive.step()
    assert drive.error["type"] == "merge_failed"
    assert not any(scope.is_closing for scope in drive.run.scopes.values())

    drive.retry()
    take_slices(drive)

    assert drive.error["type"] == "merge_failed"
    drive.restart()


def test_a_scope_is_cancelled_in_slices_and_takes_nothing_meanwhile() -> None:
    drive = at_work()

    drive.steer_scope(1, "cancel")
    drive.steer_scope(1, "complete")
    take_slices(drive)

    assert drive.state == "completed"
    assert not drive.visits("after")


def test_a_signal_that_comes_while_a_join_fires_is_taken_up_afterwards() -> None:
    text = FAN.replace("after: {}", "after: {wait_for: {event: go}}")
    drive = at_work(text, ", wait_for: any")
    drive.answer(min(drive.tasks))

    drive.signal("go", 1)
    take_slices(drive)

    assert drive.state == "completed"


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
