# ruff: noqa: E501 - a definition reads best with a line for each transition
"""Joins: when they fire, and with which branches."""

from typing import Any

import pytest

from rota.core.workflow.decisions import CloseScope, SetBranchState
from rota.core.workflow.states import BranchState, TokenState
from tests.core.workflow.driving import Drive
from tests.core.workflow.fans import ECHO, fan, items


@pytest.mark.parametrize("seed", range(8))
def test_a_join_fires_exactly_once_and_merges_by_index_in_any_order(seed: int) -> None:
    drive = Drive(fan(), items(*range(7)), ECHO, seed=seed).to_end()

    assert drive.output == {"got": list(range(7))}
    assert drive.visits("after") == 1
    assert len(drive.of_kind(CloseScope)) == 1


def test_an_empty_fan_out_is_joined_at_once_whatever_is_waited_for() -> None:
    for rule in ("", ", wait_for: any", ", wait_for: {m_of_n: 3}"):
        drive = Drive(fan(rule), items(), ECHO)

        assert drive.at("after")
        assert drive.to_end().output == {"got": []}


def test_the_first_to_arrive_fires_any_and_the_rest_is_cancelled() -> None:
    drive = Drive(fan(", wait_for: any"), items(*"abc"), ECHO)
    first, second, third = sorted(drive.tasks)

    drive.finish(second, "b")

    assert drive.cancelled == [first, third]
    assert drive.states[second] is TokenState.COMPLETED
    assert drive.states[first] is TokenState.CANCELLED
    assert drive.to_end().output == {"got": ["b"]}


def test_absorbed_branches_finish_and_are_ignored_late_errors_too() -> None:
    drive = Drive(fan(", wait_for: {m_of_n: 1}, late: absorb"), items(*"abc"), ECHO)
    first, second, third = sorted(drive.tasks)

    drive.finish(first, "a")
    (after,) = drive.at("after")
    drive.finish(after)

    assert not drive.cancelled
    assert drive.state == "running"
    drive.fail(second)
    drive.finish(third, "c")
    assert drive.state == "completed"
    assert drive.output == {"got": ["a"]}


def test_a_late_result_after_a_quorum_changes_nothing() -> None:
    drive = Drive(fan(", wait_for: {m_of_n: 2}, late: absorb"), items(*"abc"), ECHO)
    first, second, third = sorted(drive.tasks)

    drive.finish(third, "c")
    drive.finish(first, "a")
    assert len(drive.at("after")) == 1
    drive.finish(second, "b")

    assert len(drive.at("after")) == 1
    assert drive.to_end().output == {"got": ["a", "c"]}


def test_an_error_in_a_branch_fails_the_run_by_default() -> None:
    drive = Drive(fan(), items(*"ab"), ECHO)
    first, second = sorted(drive.tasks)

    drive.fail(first)

    assert drive.state == "failed"
    assert drive.error == {"type": "Broken", "message": "broken", "node": "work"}
    assert drive.cancelled == [second]


def test_all_branches_may_fail_where_the_join_goes_on() -> None:
    drive = Drive(fan(", on_branch_failure: continue"), items(1, 2), ECHO)
    for number in sorted(drive.tasks):
        drive.fail(number)

    assert drive.to_end().output == {"got": []}


def test_a_quorum_that_cannot_be_met_any_more_fails_the_run_at_once() -> None:
    rule = ", wait_for: {m_of_n: 2}, on_branch_failure: continue"
    drive = Drive(fan(rule), items(*"abc"), ECHO)
    first, second, third = sorted(drive.tasks)

    drive.fail(first)
    assert drive.state == "running"
    drive.fail(second)

    assert drive.state == "failed"
    assert drive.error["type"] == "quorum_unreachable"
    assert drive.cancelled == [third]


def test_a_quorum_above_the_number_of_items_fails_at_once() -> None:
    drive = Drive(fan(", wait_for: {m_of_n: 3}"), items("a"), ECHO)

    assert drive.error["type"] == "quorum_unreachable"
    assert drive.error["message"] == "3 branches of 'fan' were needed, and at most 1 can arrive"


def test_a_join_time_out_counts_from_the_opening_and_fails() -> None:
    drive = Drive(fan(", timeout_ms: 100"), items(*"ab"), ECHO)
    first, second = sorted(drive.tasks)
    opened_ms = drive.now_ms

    drive.turn_clock(opened_ms + 99)
    drive.finish(first)
    assert drive.state == "running"
    drive.turn_clock(opened_ms + 101)

    assert drive.state == "failed"
    assert drive.error["type"] == "join_timeout"
    assert drive.cancelled == [second]


def test_a_join_time_out_may_proceed_with_what_has_arrived() -> None:
    rule = ", wait_for: {m_of_n: 2}, timeout_ms: 100, on_timeout: proceed"
    drive = Drive(fan(rule), items(*"abc"), ECHO)
    drive.finish(min(drive.tasks), "a")

    drive.turn_clock()

    assert len(drive.cancelled) == 2
    assert drive.to_end().output == {"got": ["a"]}


def test_a_join_that_fired_has_no_timer_left() -> None:
    drive = Drive(fan(", timeout_ms: 100"), items("a"), ECHO)
    drive.finish(min(drive.tasks))

    assert not drive.run.timers


def test_only_so_many_branches_run_at_a_time() -> None:
    drive = Drive(fan(fan_out="foreach: input.items, max_parallel: 2"), items(*range(5)), ECHO)
    most = 0
    while not drive.is_ended:
        most = max(most, len(drive.tasks))
        drive.step()

    assert most == 2
    assert drive.output == {"got": list(range(5))}


def test_branches_that_have_not_begun_never_begin_once_the_join_has_fired() -> None:
    fan_out = "foreach: input.items, max_parallel: 1"
    drive = Drive(fan(", wait_for: any", fan_out), items(*"abc"), ECHO).to_end()

    assert drive.visits("work") == 1
    states = [(one.index, one.state) for one in drive.of_kind(SetBranchState)]
    assert (2, BranchState.CANCELLED) in states


@pytest.mark.parametrize("count", ["3", "'3'", "'input.n + 1'"])
def test_a_spawn_count_is_a_number_or_an_expression(count: str) -> None:
    text = fan(
        fan_out=f"spawn_count: {count}", merge="{target: output.got, source: branch.index}"
    ).replace("{item: branch.item}", "{item: branch.index}")

    assert Drive(text, {"n": 2}, ECHO).to_end().output == {"got": [0, 1, 2]}


@pytest.mark.parametrize(
    ("fan_out", "run_input"),
    [
        ("foreach: input.items", {"items": {"a": 1}}),
        ("foreach: input.nothing", {}),
        ("spawn_count: input.n", {"n": -1}),
        ("spawn_count: input.n", {"n": True}),
        ("spawn_count: input.n", {"n": 1.5}),
        ("spawn_count: input.n", {"n": 10**9}),
    ],
)
def test_a_fan_out_over_nonsense_fails_the_run(fan_out: str, run_input: Any) -> None:
    drive = Drive(fan(fan_out=fan_out), run_input, ECHO)

    assert drive.state == "failed"
    assert drive.error["type"] == "fan_out_failed"
    assert drive.error["place"].startswith("fan.")


SEVERAL = """
name: several
initial_node: start
nodes:
  start: {}
  work: {task: work, input: {item: branch.item}}
  even: {}
  odd: {}
transitions:
  - {id: fan, from: start, to: work, foreach: input.items}
  - from: work
    to: even
    condition: branch.item % 2 == 0
    synchronization: {joins_transition: fan, merge: {target: output.even}}
  - from: work
    to: odd
    condition: branch.item % 2 == 1
    synchronization: {joins_transition: fan, merge: {target: output.odd}}
"""


@pytest.mark.parametrize("seed", range(4))
def test_branches_of_one_scope_may_arrive_at_different_joins(seed: int) -> None:
    drive = Drive(SEVERAL, items(1, 2, 3, 4, 5), ECHO, seed=seed).to_end()

    assert drive.output == {"even": [2, 4], "odd": [1, 3, 5]}
    assert (drive.visits("even"), drive.visits("odd")) == (1, 1)


def test_a_join_nobody_arrived_at_does_not_fire_when_another_does() -> None:
    drive = Drive(SEVERAL, items(1, 3), ECHO).to_end()

    assert (drive.visits("even"), drive.visits("odd")) == (0, 1)


def test_one_node_may_arrive_at_two_joins_at_once() -> None:
    text = SEVERAL.replace("    condition: branch.item % 2 == 0\n", "").replace(
        "    condition: branch.item % 2 == 1\n", ""
    )

    drive = Drive(text, items(1, 2), ECHO).to_end()

    assert drive.output == {"even": [1, 2], "odd": [1, 2]}


def test_a_branch_that_ends_before_its_join_is_counted_as_ended() -> None:
    text = fan().replace("to: after,", "to: after, condition: branch.item != 2,")

    drive = Drive(text, items(1, 2, 3), ECHO).to_end()

    assert drive.state == "completed"
    assert drive.output == {"got": [1, 3]}


def test_a_fan_out_without_a_join_just_ends() -> None:
    text = """
name: spread
initial_node: start
nodes: {start: {}, work: {task: work, input: {item: branch.item}}}
transitions: [{from: start, to: work, foreach: input.items}]
"""
    drive = Drive(text, items(1, 2), ECHO).to_end()

    assert drive.state == "completed"
    assert not drive.run.scopes


GROUP = """
name: group
initial_node: start
nodes:
  start: {}
  a: {task: work, input: {item: "'a'"}}
  b: {task: work, input: {item: "'b'"}}
  c: {task: work, input: {item: branch.total}}
  after: {}
transitions:
  - {from: start, to: a, sibling_group: both}
  - {from: start, to: b, sibling_group: both, condition: input.b}
  - {from: start, to: c, sibling_group: both, spawn_count: 2}
  - {from: a, to: after, synchronization: &join {joins_transition: both, merge: {target: output.got}}}
""".replace(" &join", "")
for _node in ("b", "c"):
    GROUP += (
        f"  - {{from: {_node}, to: after, synchronization:"
        " {joins_transition: both, merge: {target: output.got}}}\n"
    )


def test_a_sibling_group_opens_one_scope_of_the_transitions_taken() -> None:
    assert Drive(GROUP, {"b": True}, ECHO, seed=2).to_end().output == {"got": ["a", "b", 4, 4]}
    assert Drive(GROUP, {"b": False}, ECHO, seed=2).to_end().output == {"got": ["a", 3, 3]}
