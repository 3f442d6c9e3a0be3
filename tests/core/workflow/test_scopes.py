"""Open scopes: quorums that are evaluated, and scopes that a signal or a caller ends."""

import pytest

from rota.core.workflow.commands import SignalRun, SteerScope
from rota.core.workflow.decisions import CloseScope, KeepSignal, OpenScope
from rota.core.workflow.definition.parser import read
from rota.core.workflow.runtime import signals
from rota.core.workflow.runtime.scopes import requests
from rota.core.workflow.states import ScopeAction, TokenState
from rota.errors import IllegalState, ScopeNotFound
from tests.core.workflow.driving import Drive
from tests.core.workflow.fans import ECHO, fan, items

MAJORITY = ", wait_for: {m_of_n: size(input.items) / 2 + 1}"
ENOUGH = ", complete_on: {signal: enough}"
NESTED = """
name: nested
initial_node: start
nodes: {start: {}, mid: {}, work: {task: work}, inner: {}, last: {task: last}}
transitions:
  - {id: out, from: start, to: mid, spawn_count: 2}
  - {id: in, from: mid, to: work, spawn_count: "branch.index + 2"}
  - from: work
    to: inner
    synchronization: {joins_transition: in, wait_for: {m_of_n: branch.index + 1}}
  - {from: inner, to: last, synchronization: {joins_transition: out}}
"""


# --- quorums --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("judges", "majority"), [(1, 1), (2, 2), (3, 2), (5, 3)])
def test_a_majority_of_the_branches_fires_the_join(judges: int, majority: int) -> None:
    drive = Drive(fan(MAJORITY), items(*range(judges)), ECHO)

    for number in sorted(drive.tasks)[: majority - 1]:
        drive.answer(number)
    assert not drive.at("after")
    drive.answer(min(drive.tasks))

    assert drive.at("after")
    assert drive.of_kind(OpenScope)[0].needed == {"after": majority}
    assert drive.to_end().output == {"got": list(range(majority))}
    drive.restart()


def test_a_majority_of_nothing_is_joined_at_once() -> None:
    assert Drive(fan(MAJORITY), items(), ECHO).at("after")


def test_a_quorum_is_evaluated_where_its_scope_opens_for_each_scope_by_itself() -> None:
    drive = Drive(NESTED, None, {"work": lambda _: 1, "last": lambda _: 1})

    assert [one.needed for one in drive.of_kind(OpenScope)] == [None, {"inner": 1}, {"inner": 2}]
    assert drive.to_end().state == "completed"
    drive.restart()


@pytest.mark.parametrize(
    ("quorum", "words"),
    [
        ("size(input.items) - 3", "gave 0, not a count from 1 to 100000"),
        ("size(input.items) * 100000", "gave 300000, not a count from 1 to 100000"),
        ("1.5", "gave 1.5, not a count"),
        ("true", "gave True, not a count"),
        ("input.missing", "missing"),
    ],
)
def test_a_quorum_that_is_no_count_fails_the_run_before_anything_is_opened(
    quorum: str, words: str
) -> None:
    drive = Drive(fan(f", wait_for: {{m_of_n: '{quorum}'}}"), items(1, 2, 3), ECHO)

    assert drive.error["type"] == "quorum_failed"
    assert drive.error["place"] == "transitions[1].synchronization.wait_for.m_of_n"
    assert words in drive.error["message"]
    assert not drive.of_kind(OpenScope)


def test_a_quorum_of_more_branches_than_there_are_fails_the_run_at_once() -> None:
    drive = Drive(fan(", wait_for: {m_of_n: size(input.items) + 1}"), items(1, 2), ECHO)

    assert drive.error["type"] == "quorum_unreachable"
    assert "3 branches of 'fan' were needed, and at most 2 can arrive" in drive.error["message"]


def test_a_quorum_sees_the_names_of_the_place_where_its_scope_opens() -> None:
    _, problems = read(fan(", wait_for: {m_of_n: branch.index}"))

    assert [(one.path, one.code) for one in problems] == [
        ("transitions[1].synchronization.wait_for.m_of_n", "name_out_of_scope")
    ]


# --- completing -----------------------------------------------------------------------------------


def test_a_signal_completes_a_scope_with_what_has_arrived() -> None:
    drive = Drive(fan(ENOUGH), items(*"abc"), ECHO)
    first, second, third = sorted(drive.tasks)
    drive.finish(second, "b")

    drive.signal("enough")

    assert drive.cancelled == [first, third]
    assert drive.states[second] is TokenState.COMPLETED
    assert drive.of_kind(CloseScope) == [CloseScope(1, "signal 'enough' came")]
    assert drive.to_end().output == {"got": ["b"]}
    drive.restart()


def test_a_scope_that_is_completed_before_anything_arrives_merges_nothing() -> None:
    drive = Drive(fan(ENOUGH), items(*"abc"), ECHO)

    drive.signal("enough")

    assert drive.to_end().output == {"got": []}


def test_a_completed_scope_lets_its_late_branches_finish_if_its_join_absorbs_them() -> None:
    drive = Drive(fan(ENOUGH + ", late: absorb"), items(*"ab"), ECHO)
    first, second = sorted(drive.tasks)
    drive.finish(first, "a")

    drive.signal("enough")

    assert not drive.cancelled
    drive.finish(second, "b")
    assert drive.to_end().output == {"got": ["a"]}


def test_a_signal_that_completes_a_scope_is_never_kept_for_the_next_one() -> None:
    drive = Drive(fan(ENOUGH), items(*"ab"), ECHO)
    drive.signal("enough")

    with pytest.raises(IllegalState, match=r"no scope of run .* is open that signal 'enough'"):
        signals.check(drive.run, SignalRun(run_id=1, name="enough"))
    drive.signal("enough")

    assert not drive.of_kind(KeepSignal)
    assert drive.to_end().state == "completed"


def test_one_signal_completes_the_oldest_of_several_scopes() -> None:
    text = NESTED.replace("{m_of_n: branch.index + 1}", "all, complete_on: {signal: enough}")
    drive = Drive(text, None, {"work": lambda _: 1, "last": lambda _: 1})

    drive.signal("enough")

    assert [one.number for one in drive.of_kind(CloseScope)] == [2]
    assert drive.visits("inner") == 1


def test_a_signal_goes_to_a_token_that_waits_for_it_before_it_completes_a_scope() -> None:
    text = fan(ENOUGH).replace("work: {task: work, input: {item: branch.item}}", "work: {wait_for: "
                               "{event: enough}}")  # fmt: skip
    drive = Drive(text, items(*"ab"), ECHO)

    drive.signal("enough", 1)
    drive.signal("enough", 2)

    assert drive.to_end().output == {"got": [1, 2]}


def steer(drive: Drive, action: ScopeAction, scope: int = 1, reason: str = "") -> None:
    requests.check(drive.run, SteerScope(run_id=1, scope=scope, action=action, reason=reason))
    drive.steer_scope(scope, action, reason)


def test_a_caller_completes_a_scope_with_what_has_arrived() -> None:
    drive = Drive(fan(", wait_for: {m_of_n: 3}"), items(*"abc"), ECHO)
    drive.answer(min(drive.tasks))

    steer(drive, "complete", reason="one will do")

    assert drive.of_kind(CloseScope) == [CloseScope(1, "one will do")]
    assert drive.to_end().output == {"got": ["a"]}
    drive.restart()


def test_a_caller_cancels_a_scope_and_nothing_follows_it() -> None:
    drive = Drive(fan(), items(*"abc"), ECHO)
    drive.answer(min(drive.tasks))

    steer(drive, "cancel")

    assert drive.state == "completed"
    assert not drive.visits("after")
    assert not drive.tasks
    assert drive.of_kind(CloseScope) == [CloseScope(1, "a caller cancelled it")]
    drive.restart()


def test_the_rest_of_the_run_goes_on_when_an_inner_scope_is_cancelled() -> None:
    drive = Drive(NESTED, None, {"work": lambda _: 1, "last": lambda _: 1})

    steer(drive, "cancel", scope=2)

    assert drive.to_end().state == "completed"
    assert drive.visits("inner") == 1
    assert drive.visits("last") == 1
    drive.restart()


def test_a_scope_that_is_not_open_is_refused() -> None:
    drive = Drive(fan(), items(*"ab"), ECHO)

    with pytest.raises(ScopeNotFound):
        steer(drive, "complete", scope=2)
    steer(drive, "complete")
    with pytest.raises(IllegalState, match=r"scope 1 of run .* is closed"):
        steer(drive, "complete")
    drive.to_end()
    with pytest.raises(IllegalState, match="the run has completed"):
        steer(drive, "cancel")


def test_a_scope_without_a_join_can_be_cancelled_but_not_completed() -> None:
    text = """
name: plain
initial_node: start
nodes: {start: {}, work: {task: work}}
transitions: [{id: fan, from: start, to: work, spawn_count: 3}]
"""
    drive = Drive(text)

    with pytest.raises(IllegalState, match="has no join; cancel it instead"):
        steer(drive, "complete")
    steer(drive, "cancel")

    assert drive.state == "completed"


def test_a_scope_of_a_run_that_undoes_its_work_is_refused() -> None:
    text = fan(", on_branch_failure: fail").replace(
        "start: {}", "start: {task: pay, compensate: refund}"
    )
    drive = Drive(text, items(*"ab"), {"pay": lambda _: 1, "refund": lambda _: 1})
    drive.step()
    drive.fail(min(drive.tasks))

    with pytest.raises(IllegalState, match="the run is undoing its work"):
        steer(drive, "complete")
    assert requests.scope_completed_by(drive.run, "enough") is None


def test_a_paused_run_completes_a_scope_and_goes_on_when_it_is_resumed() -> None:
    drive = Drive(fan(ENOUGH), items(*"ab"), ECHO)
    drive.pause()

    drive.signal("enough")
    assert not drive.tasks
    drive.resume()

    assert drive.to_end().output == {"got": []}
