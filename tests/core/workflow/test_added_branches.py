"""Branches that are added to an open scope."""

from typing import Any

import pytest

from rota.core.workflow.decisions import CloseScope, ExtendScope
from rota.core.workflow.definition.model import MAX_SPAWN
from rota.core.workflow.definition.parser import read
from rota.core.workflow.events import BranchesAdded
from rota.core.workflow.runtime.scopes import requests
from rota.errors import IllegalState, Invalid, TooLarge
from tests.core.workflow.driving import Drive
from tests.core.workflow.fans import ECHO, fan, items

UNTIL_DONE = "foreach: input.items, open: until_done"
UNTIL_CLOSED = "foreach: input.items, open: until_closed"
INSIDE = """
name: inside
initial_node: start
nodes: {start: {}, mid: {}, work: {task: work}, inner: {}, last: {task: last}}
transitions:
  - {id: out, from: start, to: mid, spawn_count: 2}
  - {id: in, from: mid, to: work, foreach: "[]", open: until_closed}
  - {from: work, to: inner, synchronization: {joins_transition: in}}
  - {from: inner, to: last, synchronization: {joins_transition: out}}
"""


def check(drive: Drive, count: int, *, scope: int = 1, is_last: bool = False) -> None:
    found = requests.find_open(drive.run, 1, scope)
    requests.check_addition(drive.run, 1, found, count, is_last=is_last)


def test_branches_are_added_while_others_are_under_way_and_joined_with_them() -> None:
    drive = Drive(fan(fan_out=UNTIL_DONE), items("a"), ECHO)

    check(drive, 2)
    drive.add_branches(1, ["b", "c"])

    assert len(drive.tasks) == 3
    assert drive.of_kind(ExtendScope) == [ExtendScope(1, 2)]
    assert drive.to_end().output == {"got": ["a", "b", "c"]}
    drive.restart()


def test_a_scope_that_is_open_until_done_is_joined_when_all_have_arrived() -> None:
    drive = Drive(fan(fan_out=UNTIL_DONE), items("a"), ECHO)
    drive.answer(min(drive.tasks))

    assert drive.at("after")
    with pytest.raises(IllegalState, match="is closed"):
        check(drive, 1)


def test_a_scope_that_is_open_until_closed_waits_for_more_when_all_have_arrived() -> None:
    drive = Drive(fan(fan_out=UNTIL_CLOSED), items("a"), ECHO)
    drive.answer(min(drive.tasks))
    assert drive.state == "running"
    assert not drive.at("after")

    drive.add_branches(1, ["b"])
    drive.answer(min(drive.tasks))
    assert not drive.at("after")
    drive.add_branches(1, [], is_last=True)

    assert drive.to_end().output == {"got": ["a", "b"]}
    drive.restart()


def test_an_empty_scope_that_is_open_until_closed_keeps_its_run_alive() -> None:
    drive = Drive(fan(fan_out=UNTIL_CLOSED), items(), ECHO)
    assert drive.state == "running"

    drive.add_branches(1, ["a"], is_last=True)

    assert drive.to_end().output == {"got": ["a"]}


def test_the_branch_outside_waits_for_a_scope_inside_it_that_may_get_more() -> None:
    drive = Drive(INSIDE, None, {"work": lambda _: 1, "last": lambda _: 1})
    assert drive.state == "running"

    drive.add_branches(2, [1], is_last=True)
    drive.answer(min(drive.tasks))
    assert not drive.at("last")
    drive.add_branches(3, [], is_last=True)

    assert drive.at("last")
    assert drive.to_end().state == "completed"
    drive.restart()


def test_an_open_scope_without_a_join_is_closed_by_its_last_branches() -> None:
    text = """
name: plain
initial_node: start
nodes: {start: {}, work: {task: work}}
transitions: [{id: fan, from: start, to: work, foreach: "[]", open: until_closed}]
"""
    drive = Drive(text, None, {"work": lambda _: 1})
    assert drive.state == "running"

    drive.add_branches(1, [1, 2], is_last=True)

    assert drive.to_end().state == "completed"
    assert drive.visits("work") == 2


def test_a_quorum_is_out_of_reach_only_when_no_more_can_come() -> None:
    drive = Drive(fan(", wait_for: {m_of_n: 3}", UNTIL_CLOSED), items("a"), ECHO)
    drive.answer(min(drive.tasks))
    assert drive.state == "running"

    drive.add_branches(1, ["b"], is_last=True)

    assert drive.error["type"] == "quorum_unreachable"


def test_a_signal_or_a_caller_closes_a_scope_that_is_open() -> None:
    for end in ("signal", "complete", "cancel"):
        rule = ", complete_on: {signal: enough}"
        drive = Drive(fan(rule, UNTIL_CLOSED), items("a"), ECHO)
        drive.answer(min(drive.tasks))

        if end == "signal":
            drive.signal("enough")
        else:
            drive.steer_scope(1, end)  # type: ignore[arg-type]  # one of them

        assert drive.to_end().output == ({} if end == "cancel" else {"got": ["a"]})
        assert len(drive.of_kind(CloseScope)) == 1
        drive.restart()


def test_branches_with_a_known_key_are_added_once() -> None:
    drive = Drive(fan(fan_out=UNTIL_DONE), items("a"), ECHO)

    drive.add_branches(1, ["b"], key="k")
    drive.add_branches(1, ["b"], key="k")

    assert drive.run.scopes[1].additions == {"k": (1, 1)}
    assert drive.to_end().output == {"got": ["a", "b"]}


def test_added_branches_wait_their_turn() -> None:
    drive = Drive(fan(fan_out=UNTIL_DONE + ", max_parallel: 2"), items("a"), ECHO)

    drive.add_branches(1, ["b", "c"])

    assert len(drive.tasks) == 2
    assert drive.to_end().output == {"got": ["a", "b", "c"]}


def test_many_branches_are_started_in_slices() -> None:
    drive = Drive(fan(fan_out=UNTIL_DONE), items("a"), ECHO, slice_steps=3)

    drive.add_branches(1, list(range(20)))

    assert len(drive.tasks) < 5
    assert drive.to_end().output == {"got": ["a", *range(20)]}
    drive.restart()


def test_a_run_with_an_open_scope_can_be_failed_and_retried() -> None:
    drive = Drive(fan(fan_out=UNTIL_CLOSED), items("a", "b"), ECHO)
    drive.answer(min(drive.tasks))
    drive.fail(min(drive.tasks))
    assert drive.state == "failed"

    drive.retry()
    drive.answer(min(drive.tasks))
    assert drive.state == "running"
    drive.add_branches(1, ["c"], is_last=True)

    assert drive.to_end().output == {"got": ["a", "b", "c"]}
    drive.restart()


@pytest.mark.parametrize("mode", ["undo", "force"])
def test_a_run_with_an_open_scope_can_be_cancelled(mode: Any) -> None:
    drive = Drive(INSIDE)

    drive.cancel(mode=mode)

    assert drive.state == "cancelled"
    assert not drive.run.held


def test_a_scope_that_is_not_open_takes_no_branches() -> None:
    drive = Drive(fan(), items("a"), ECHO)
    with pytest.raises(IllegalState, match="its fan-out is not `open`"):
        check(drive, 1)

    opened = Drive(fan(fan_out=UNTIL_CLOSED), items("a"), ECHO)
    opened.add_branches(1, ["b"], is_last=True)
    with pytest.raises(IllegalState, match="the last ones were added"):
        check(opened, 1)
    opened.add_branches(1, ["c"])

    assert opened.to_end().output == {"got": ["a", "b"]}


def test_a_scope_has_a_limit_and_an_addition_has_something_to_add() -> None:
    drive = Drive(fan(fan_out=UNTIL_DONE), items("a"), ECHO)

    with pytest.raises(TooLarge, match=str(MAX_SPAWN)):
        check(drive, MAX_SPAWN)
    with pytest.raises(Invalid, match="at least one item"):
        check(drive, 0)
    check(drive, 0, is_last=True)


def test_a_task_adds_to_the_innermost_scope_that_takes_branches() -> None:
    drive = Drive(INSIDE)
    drive.add_branches(2, [1])
    (number,) = drive.tasks
    token = drive.run.tokens[number]

    found = requests.scope_around(drive.run, token, None)

    assert found is not None
    assert found.number == 2
    assert requests.scope_around(drive.run, token, "out") is drive.run.scopes[1]
    assert requests.scope_around(drive.run, token, "other") is None


@pytest.mark.parametrize("how", ["spawn_count: 3", "foreach: input.items, sibling_group: g"])
def test_only_a_foreach_by_itself_can_be_open(how: str) -> None:
    _, problems = read(fan(fan_out=f"{how}, open: until_done"))

    assert "open_without_foreach" in [one.code for one in problems]


def test_branches_for_a_scope_that_is_gone_are_ignored() -> None:
    drive = Drive(fan(fan_out=UNTIL_DONE), items("a"), ECHO)
    drive.answer(min(drive.tasks))

    assert drive.feed(BranchesAdded(drive.now_ms, 1, ["b"])) == []
