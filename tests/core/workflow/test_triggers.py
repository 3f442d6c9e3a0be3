"""Nodes that wait again after each signal, and signals that are lost unless a node waits."""

import pytest

from rota.core.ids import to_text
from rota.core.limits import MAX_KEPT_SIGNALS
from rota.core.workflow.commands import SignalRun
from rota.core.workflow.decisions import CreateToken, KeepSignal
from rota.core.workflow.definition.parser import read
from rota.core.workflow.runtime import signals
from rota.core.workflow.states import TokenState
from rota.errors import TooMany
from tests.core.workflow.driving import Drive

DESK = """
name: desk
initial_node: desk
nodes:
  desk: {wait_for: {event: order, repeat: true, until: {event: closed}}}
  serve: {task: serve, input: {order: nodes.desk.result}}
transitions: [{from: desk, to: serve, spawn_count: 1}]
"""


def served(drive: Drive) -> list[int]:
    return [one.payload["order"] for one in drive.tasks.values()]


def test_each_signal_sends_a_token_on_until_the_signal_that_ends_the_wait() -> None:
    drive = Drive(DESK)
    for number in (1, 2, 3):
        drive.signal("order", number)
    assert served(drive) == [1, 2, 3]
    assert drive.at("desk") == [1]

    drive.signal("closed")

    assert drive.at("desk") == []
    assert drive.states[1] is TokenState.COMPLETED
    assert served(drive) == [1, 2, 3], "what was sent on goes on"
    for token in list(drive.tasks):
        drive.finish(token)
    assert drive.state == "completed"
    drive.restart()


def test_a_wait_for_so_many_signals_is_through_with_the_last_of_them() -> None:
    drive = Drive(DESK.replace("repeat: true", "repeat: 2"))

    drive.signal("order", 1)
    assert drive.at("desk") == [1]
    drive.signal("order", 2)

    assert drive.at("desk") == []
    assert served(drive) == [1, 2]
    drive.signal("order", 3)
    assert len(drive.of_kind(KeepSignal)) == 1
    drive.restart()


@pytest.mark.parametrize("slice_steps", [None, 1, 3])
def test_signals_that_came_early_are_taken_in_their_order(slice_steps: int | None) -> None:
    text = DESK.replace("initial_node: desk", "initial_node: first").replace(
        "nodes:", "nodes:\n  first: {task: first}"
    )
    text = text.replace("transitions: [", "transitions: [{from: first, to: desk}, ")
    drive = Drive(text, slice_steps=slice_steps)
    for number in range(4):
        drive.signal("order", number)
    drive.signal("closed")

    drive.finish(1)
    drive.signal("order", 4)
    drive.turn_clock(drive.now_ms)

    taken = [0, 1, 2, 3] if slice_steps is None else [0, 1, 2, 3, 4]  # before it was closed
    assert served(drive) == taken
    assert drive.at("desk") == []
    drive.restart()


def test_two_nodes_that_wait_for_each_signal_take_turns() -> None:
    text = """
name: two
initial_node: start
nodes:
  start: {}
  left: {wait_for: {event: e, repeat: 5}}
  right: {wait_for: {event: e, repeat: 5}}
  after: {}
transitions: [{from: start, to: left}, {from: start, to: right}, {from: left, to: after},
  {from: right, to: after}]
"""
    drive = Drive(text)
    for _ in range(4):
        drive.signal("e")

    triggered = [one.node for one in drive.of_kind(CreateToken) if one.via == "trigger"]
    assert triggered == ["left", "right", "left", "right"]


def test_a_branch_arrives_when_its_repeated_wait_has_ended() -> None:
    text = """
name: gather
initial_node: start
nodes:
  start: {}
  item: {wait_for: {event: item, repeat: true, until: {event: closed}}}
  work: {task: work}
  after: {task: after}
transitions:
  - {id: gather, from: start, to: item, spawn_count: 1}
  - {from: item, to: work}
  - {from: work, to: after, synchronization: {joins_transition: gather}}
"""
    drive = Drive(text)
    drive.signal("item")
    drive.signal("item")
    drive.finish(next(iter(drive.tasks)))
    drive.finish(next(iter(drive.tasks)))
    assert not drive.tasks

    drive.signal("closed")

    assert [one.task for one in drive.tasks.values()] == ["after"]
    drive.restart()


def test_a_repeated_wait_fails_when_its_time_is_over() -> None:
    drive = Drive(DESK.replace("repeat: true", "repeat: true, timeout_ms: 100"))
    drive.signal("order", 1)

    drive.turn_clock()

    assert drive.error["type"] == "timeout"


def test_a_retry_waits_again_and_once() -> None:
    text = DESK.replace("desk: {wait_for", "desk: {output_schema: {type: integer}, wait_for")
    drive = Drive(text)
    drive.signal("order", "not a number")
    assert drive.error["type"] == "output_invalid"

    drive.retry()

    assert len(drive.at("desk")) == 1
    drive.signal("order", 7)
    assert served(drive) == [7]
    drive.restart()


def test_a_cancelled_run_waits_no_more() -> None:
    drive = Drive(DESK)
    drive.signal("order", 1)

    drive.cancel()

    assert drive.state == "cancelled"
    assert not drive.run.waiting
    assert not drive.run.triggers


TRANSIENT = """
name: transient
initial_node: first
nodes:
  first: {task: first}
  wait: {wait_for: {event: bell, transient: true}}
  after: {task: after}
transitions: [{from: first, to: wait}, {from: wait, to: after}]
"""


def test_a_transient_signal_is_lost_unless_a_node_waits_for_it() -> None:
    drive = Drive(TRANSIENT.replace("wait:", "bell:").replace(": wait", ": bell"))
    assert drive.signal("bell") == []
    drive.finish(1)
    assert drive.at("bell")

    drive.signal("bell")

    assert len(drive.at("after")) == 1
    drive.restart()


def test_lost_signals_are_not_counted_as_kept_ones() -> None:
    drive = Drive(TRANSIENT)
    for number in range(MAX_KEPT_SIGNALS):
        drive.signal(f"other {number}")

    signals.check(drive.run, SignalRun(run_id=1, name="bell"))

    with pytest.raises(TooMany, match=to_text(1)):
        signals.check(drive.run, SignalRun(run_id=1, name="other"))


def test_a_signal_that_another_node_keeps_is_not_taken_by_a_transient_wait() -> None:
    text = TRANSIENT.replace("nodes:", "nodes:\n  kept: {wait_for: {event: bell}}").replace(
        "transitions: [", "transitions: [{from: after, to: kept}, "
    )
    drive = Drive(text)
    drive.signal("bell", 1)
    drive.finish(1)
    assert drive.at("wait")

    drive.signal("bell", 2)
    drive.finish(next(iter(drive.tasks)))

    assert drive.state == "completed"
    assert drive.document("nodes")["kept"]["result"] == 1
    assert drive.document("nodes")["wait"]["result"] == 2


@pytest.mark.parametrize(
    ("wait", "path", "code"),
    [
        ("{event: e, until: {event: f}}", "nodes.n.wait_for.until", "bad_wait"),
        (
            "{event: e, repeat: true, until: {event: e}}",
            "nodes.n.wait_for.until.event",
            "bad_wait",
        ),
        ("{event: e, repeat: 0}", "nodes.n.wait_for.repeat", "bad_shape"),
        ("{event: e, repeat: 1000001}", "nodes.n.wait_for.repeat", "bad_shape"),
    ],
)
def test_problems_of_a_repeated_wait_are_told_with_their_place(
    wait: str, path: str, code: str
) -> None:
    _, problems = read(f"name: s\ninitial_node: n\nnodes:\n  n:\n    wait_for: {wait}\n")

    assert [(one.path, one.code, one.line) for one in problems] == [(path, code, 5)]
