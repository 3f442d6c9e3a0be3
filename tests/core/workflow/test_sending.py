"""Nodes that send signals, and nodes that cancel their run."""

import pytest

from rota.core.workflow.decisions import SendSignal
from rota.core.workflow.definition.parser import read
from rota.core.workflow.events import RunStarted, Signalled, SignalSent
from rota.core.workflow.runtime import reducer
from rota.core.workflow.states import TokenState
from tests.core.workflow.driving import Drive

TELL = """
name: tell
initial_node: tell
nodes:
  tell: {signal: {run: input.other, name: go, payload: {n: input.n, all: input}}}
  after: {task: after}
transitions: [{from: tell, to: after}]
"""
# One branch waits for what the other one sends.
SELF = """
name: self
initial_node: start
nodes:
  start: {}
  wait: {wait_for: {event: go}, output: {state.got: result}}
  say: {signal: {name: go, payload: "'hello'"}}
  after: {}
transitions:
  - {from: start, to: wait, sibling_group: both}
  - {from: start, to: say, sibling_group: both}
  - from: wait
    to: after
    synchronization: {joins_transition: both, merge: {source: state, target: output.got}}
  - from: say
    to: after
    synchronization: {joins_transition: both, merge: {source: state, target: output.got}}
"""
CIRCLE = """
name: circle
initial_node: say
nodes: {say: {signal: {name: go}}, wait: {wait_for: {event: go}}}
transitions: [{from: say, to: wait}, {from: wait, to: say, max_iterations: 1000000}]
"""


def test_a_signal_has_what_its_expressions_give() -> None:
    drive = Drive(TELL, {"other": "abc", "n": 3})

    (sent,) = drive.of_kind(SendSignal)
    payload = {"n": 3, "all": {"other": "abc", "n": 3}}
    assert sent == SendSignal(1, "go", "abc", payload)
    assert len(drive.at("after")) == 1
    drive.restart()


@pytest.mark.parametrize(("written", "given"), [("input.n", 3), ("7", 7), ("[1]", [1])])
def test_a_payload_may_be_one_expression_or_a_value(written: str, given: object) -> None:
    text = (
        f"{{name: s, initial_node: n, nodes: {{n: {{signal: {{name: go, payload: {written}}}}}}}}}"
    )

    (sent,) = Drive(text, {"n": 3}).of_kind(SendSignal)

    assert sent.payload == given


def test_a_run_signals_itself() -> None:
    drive = Drive(SELF).to_end()

    assert drive.output == {"got": [{"got": "hello"}, {}]}
    drive.restart()


def test_a_signal_that_is_refused_fails_its_node() -> None:
    run = Drive(TELL, {"other": "x", "n": 1}, begin=False).run
    error = {"type": "signal_refused", "message": "gone", "code": "run_not_found"}
    reducer.reduce(run, RunStarted(1))

    reducer.reduce(run, SignalSent(2, 1, error))

    assert run.state == "failed"
    assert run.error == {**error, "node": "tell"}


def test_what_a_node_signals_to_must_be_a_text() -> None:
    drive = Drive(TELL, {"other": 7, "n": 1})

    assert drive.error["type"] == "mapping_failed"
    assert drive.error["place"] == "nodes.tell.signal.run"


def test_a_refused_signal_can_be_caught() -> None:
    text = TELL.replace("after: {task: after}", "after: {task: after}\n  caught: {}").replace(
        "tell: {signal",
        "tell: {on_error: [{match: error.code == 'run_not_found', to: caught}], signal",
    )
    run = Drive(text, {"other": "x", "n": 1}, begin=False).run
    reducer.reduce(run, RunStarted(1))
    assert run.tokens[1].state is TokenState.EXECUTING

    reducer.reduce(run, SignalSent(2, 1, {"type": "signal_refused", "code": "run_not_found"}))

    assert run.state == "completed"


def test_the_outcome_of_a_signal_reaches_no_token_that_is_gone() -> None:
    drive = Drive(TELL, {"other": "x", "n": 1})

    assert drive.feed(SignalSent(5_000, 1)) == []
    drive.cancel()
    assert drive.feed(SignalSent(5_001, 1)) == []


def test_the_steps_of_an_event_that_says_later_follow_in_a_slice() -> None:
    drive = Drive(SELF.replace("say: {signal: {name: go, payload: \"'hello'\"}}", "say: {}"))

    drive.feed(Signalled(2_000, "go", 1, sender="x", later=True))

    assert drive.state == "running"
    assert ("slice", 0) in drive.run.timers
    drive.turn_clock()
    assert drive.state == "completed"
    drive.restart()


def test_a_circle_of_signals_comes_to_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reducer, "MOST_STEPS", 200)
    drive = Drive(CIRCLE, slice_steps=10).to_end()

    assert drive.error["type"] == "too_many_steps"
    drive.restart()


def test_a_run_knows_its_own_id_and_that_of_its_parent() -> None:
    node = "{input: {of: run}, output: {output.run: result.of}}"
    text = f"{{name: r, initial_node: n, nodes: {{n: {node}}}}}"
    drive = Drive(text, run_id="me", parent_id="above")

    assert drive.output == {"run": {"id": "me", "parent_id": "above"}}
    drive.restart()


def test_a_node_can_cancel_its_run_which_undoes_what_it_has_done() -> None:
    text = """
name: stop
initial_node: pay
nodes:
  pay: {task: pay, compensate: undo}
  slow: {task: slow}
  stop: {end: cancelled, input: {why: "'no stock'"}}
transitions: [{from: pay, to: slow}, {from: pay, to: stop}]
"""
    done: list[str] = []
    drive = Drive(
        text, None, {"pay": lambda _: "paid", "undo": lambda one: done.append(one["result"])}
    )
    drive.step()
    assert list(drive.tasks) == [4], "the slow task is cancelled, and what was paid is undone"

    drive.to_end()

    assert drive.state == "cancelled"
    assert done == ["paid"]
    assert drive.error == {
        "type": "cancelled",
        "message": "the run ended at 'stop'",
        "node": "stop",
        "details": {"why": "no stock"},
    }
    drive.restart()


@pytest.mark.parametrize(
    ("signal", "path", "code"),
    [
        ("{name: go, run: nothing.there}", "nodes.n.signal.run", "unknown_name"),
        ("{name: go, run: result}", "nodes.n.signal.run", "name_out_of_scope"),
        ("{name: go, payload: '1 +'}", "nodes.n.signal.payload", "bad_expression"),
        ("{name: go, payload: {a: '1 +'}}", "nodes.n.signal.payload.a", "bad_expression"),
        ("{name: '\"go\"'}", "nodes.n.signal.name", "quoted_name"),
        ("{run: input.r}", "nodes.n.signal", "bad_shape"),
        ("{name: go, to: x}", "nodes.n.signal.to", "unknown_field"),
    ],
)
def test_problems_of_a_signal_are_told_with_their_place(signal: str, path: str, code: str) -> None:
    _, problems = read(f"name: s\ninitial_node: n\nnodes:\n  n:\n    signal: {signal}\n")

    assert [(one.path, one.code, one.line) for one in problems] == [(path, code, 5)]
