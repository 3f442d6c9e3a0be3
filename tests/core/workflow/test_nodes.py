# ruff: noqa: E501 - a definition reads best with a line for each transition
"""The kinds of nodes, and what follows from their outcomes."""

from typing import Any

import pytest

from rota.core.workflow.decisions import Considered, DispatchTask, StartChild
from rota.core.workflow.definition.model import Approval, NodeDefinition, WaitFor
from rota.core.workflow.states import TokenState
from tests.core.workflow.driving import Drive, Failed


def one(node: str, more: str = "") -> str:
    return f"{{name: one, initial_node: n, nodes: {{n: {node}, caught: {{}}}}, {more} transitions: [{{from: n, to: caught, condition: 'false'}}]}}"


def test_a_task_is_dispatched_with_all_that_its_node_says() -> None:
    node = """{task: t, input: {a: input.a, b: 5, c: "'x'"}, queue: gpu, priority: 7,
        requires: [llm], timeout_ms: 50, retry: {max_attempts: 9, backoff: {kind: linear}}}"""

    (task,) = Drive(one(node), {"a": [None, {"z": 1, "a": 2.0}]}).of_kind(DispatchTask)

    assert task.payload == {"a": [None, {"z": 1, "a": 2.0}], "b": 5, "c": "x"}
    assert (task.task, task.queue, task.priority, task.requires) == ("t", "gpu", 7, ("llm",))
    assert (task.timeout_ms, task.max_attempts, task.backoff.kind) == (50, 9, "linear")


@pytest.mark.parametrize(
    "value",
    [2**80, -(2**70), 1.0, 1e300, None, "", "é😀", [], {}, {"z": 1, "a": [None]}, True, 0.1],
)
def test_values_come_back_as_they_went_in(value: Any) -> None:
    text = one("{task: t, input: {v: input.v}, output: {state.v: result.v, output.v: result.v}}")

    drive = Drive(text, {"v": value}, {"t": lambda payload: payload}).to_end()

    assert repr(drive.output) == repr({"v": value})
    assert repr(drive.document("nodes")["n"]["result"]) == repr({"v": value})


def test_results_are_there_for_later_nodes_without_any_mapping() -> None:
    text = """
name: later
initial_node: a
nodes: {a: {task: a}, b: {task: b, input: {got: nodes.a.result.x}}}
transitions: [{from: a, to: b}]
"""
    drive = Drive(text)
    drive.finish(1, {"x": 3})

    assert drive.tasks[2].payload == {"got": 3}


def test_output_without_a_mapping_is_what_was_written_to_output() -> None:
    text = one("{input: {v: '1'}, output: {output.a.b: result.v, state.x: '2'}}")

    assert Drive(text).output == {"a": {"b": 1}}


@pytest.mark.parametrize(
    ("text", "kind", "place"),
    [
        (one("{task: t, input: {v: input.nothing}}"), "mapping_failed", "nodes.n.input.v"),
        (one("{output: {state.v: result.no}}"), "mapping_failed", "nodes.n.output.state.v"),
        (one("{}", "output: {v: state.no},"), "output_failed", "output.v"),
        (one("{}", "output: {v: '1 / 0'},"), "output_failed", "output.v"),
        (
            one("{output_schema: {type: string}}"),
            "output_invalid",
            "nodes.n.output_schema",
        ),
        (
            one("{}", "output: {v: '1'}, output_schema: {required: [w]},"),
            "output_invalid",
            "output_schema",
        ),
        (one("{}", "state: {required: [w]},"), "state_invalid", "state"),
        (
            one("{}").replace("'false'", "input.no"),
            "condition_failed",
            "transitions[0].condition",
        ),
        (one("{}").replace("'false'", "'1'"), "condition_failed", "transitions[0].condition"),
        (one("{}", "on_no_route: fail,"), "no_route", "nodes.n"),
    ],
)
def test_what_cannot_be_followed_fails_the_run_with_place_and_reason(
    text: str, kind: str, place: str
) -> None:
    drive = Drive(text, {})

    assert drive.state == "failed"
    assert (drive.error["type"], drive.error["place"]) == (kind, place)
    assert drive.error["message"]


def test_no_route_ends_the_token_by_default() -> None:
    assert Drive(one("{}")).state == "completed"


def test_the_lowest_tier_with_a_match_wins_and_all_its_matches_fire() -> None:
    text = """
name: tiers
initial_node: n
nodes: {n: {}, a: {}, b: {}, c: {}, d: {}}
transitions:
  - {from: n, to: a, priority: 1, condition: 'input.v == 1'}
  - {from: n, to: d, priority: 9}
  - {from: n, to: b, priority: 2, condition: 'input.v < 9'}
  - {from: n, to: c, priority: 2}
"""

    def visited(value: int) -> list[str]:
        drive = Drive(text, {"v": value})
        return [name for name in "abcd" if drive.visits(name)]

    assert visited(1) == ["a"]
    assert visited(2) == ["b", "c"]
    assert visited(9) == ["c"]
    considered = Drive(text, {"v": 9}).of_kind(Considered)
    assert (considered[0].because, considered[0].taken) == ("input.v == 1 is false", False)


def test_waiting_for_an_event() -> None:
    drive = Drive(one("{wait_for: {event: paid}, output: {output.sum: result.sum}}"))
    assert drive.run.tokens[1].state is TokenState.WAITING_FOR_EVENT

    drive.signal("other")
    drive.signal("paid", {"sum": 5})

    assert drive.output == {"sum": 5}


def test_signals_that_come_before_anyone_waits_are_kept_in_order() -> None:
    text = """
name: two
initial_node: n
nodes: {n: {task: t}, a: {wait_for: {event: e}, output: {output.a: result}}, b: {wait_for: {event: e}, output: {output.b: result}}}
transitions: [{from: n, to: a}, {from: a, to: b}]
"""
    drive = Drive(text)
    drive.signal("e", 1)
    drive.signal("e", 2)

    drive.finish(1)

    assert drive.output == {"a": 1, "b": 2}
    assert not drive.run.signals


def test_each_signal_is_for_one_token_the_longest_waiting_first() -> None:
    text = """
name: many
initial_node: n
nodes: {n: {}, w: {wait_for: {event: e}}, z: {}}
transitions:
  - {id: f, from: n, to: w, spawn_count: 2}
  - {from: w, to: z, synchronization: {joins_transition: f, merge: {target: output.got}}}
"""
    drive = Drive(text)
    drive.signal("e", "first")
    assert drive.state == "running"
    drive.signal("e", "second")

    assert drive.output == {"got": ["first", "second"]}


@pytest.mark.parametrize(
    "node", ["{wait_for: {event: e, timeout_ms: 50}", "{approval: {timeout_ms: 50}"]
)
def test_a_wait_that_lasts_too_long_fails_or_takes_its_error_route(node: str) -> None:
    drive = Drive(one(node + "}"))
    drive.turn_clock()
    assert drive.error["type"] == "timeout"
    assert drive.states[1] is TokenState.TIMED_OUT

    caught = Drive(one(node + ", on_error: [{to: caught}]}"))
    caught.turn_clock()
    assert caught.state == "completed"


def test_an_approval_waits_for_a_yes() -> None:
    drive = Drive(one("{approval: {title: really}, output: {output.by: result.by}}"))
    drive.signal("n", {"approved": True, "by": "ann"})

    assert drive.output == {"by": "ann"}


@pytest.mark.parametrize("payload", [{"approved": False, "why": "no"}, False, None, {}])
def test_an_approval_refused_is_an_error(payload: Any) -> None:
    drive = Drive(one("{approval: true}"))
    drive.signal("n", payload)

    assert drive.error["type"] == "rejected"
    assert drive.error["details"] == payload


def test_sleeping_takes_its_time() -> None:
    drive = Drive(one("{sleep_ms: 250}"))
    assert drive.run.timers == {("sleep", 1): drive.now_ms + 250}

    drive.turn_clock()

    assert drive.state == "completed"


def test_an_end_ends_the_run_at_once_whatever_else_is_under_way() -> None:
    text = """
name: ends
initial_node: n
nodes: {n: {}, slow: {task: slow}, stop: {end: completed, input: {v: '7'}, output: {output.v: result.v}}}
transitions: [{from: n, to: slow, spawn_count: 2}, {from: n, to: stop}]
"""
    drive = Drive(text)

    assert drive.state == "completed"
    assert drive.output == {"v": 7}
    assert len(drive.cancelled) + drive.visits("slow") >= 2
    assert not drive.tasks


def test_an_end_may_be_a_failure() -> None:
    drive = Drive(
        one("{end: failed, input: {why: '3'}}")
        .replace("transitions: [{from: n, to: caught, condition: 'false'}]", "transitions: []")
        .replace(", caught: {}", "")
    )

    assert drive.error["type"] == "ended_failed"
    assert drive.error["details"] == {"why": 3}


def test_an_error_takes_the_first_route_that_matches() -> None:
    text = """
name: routes
initial_node: n
nodes:
  n: {task: t, on_error: [{match: "error.type == 'A'", to: a}, {match: "error.message.startsWith('x')", to: b}]}
  a: {}
  b: {}
output: {why: nodes.n.error.message}
"""

    def visited(kind: str, message: str) -> list[str]:
        drive = Drive(text)
        drive.fail(1, Failed(message, kind).error)
        return [name for name in "ab" if drive.visits(name)] or [drive.state]

    assert visited("A", "x") == ["a"]
    assert visited("B", "xy") == ["b"]
    assert visited("B", "y") == ["failed"]


def test_an_error_route_that_is_neither_true_nor_false_fails_the_run() -> None:
    drive = Drive(one("{task: t, on_error: [{match: error.message, to: caught}]}"))
    drive.fail(1)

    assert drive.error["type"] == "condition_failed"
    assert drive.error["place"] == "nodes.n.on_error[0].match"


def test_an_error_route_inside_a_branch_keeps_the_branch_going() -> None:
    text = """
name: mended
initial_node: n
nodes: {n: {}, w: {task: w, on_error: [{to: mend}]}, mend: {input: {m: "'mended'"}}, z: {}}
transitions:
  - {id: f, from: n, to: w, spawn_count: 2}
  - {from: w, to: z, synchronization: {joins_transition: f, merge: {target: output.got}}}
  - {from: mend, to: z, synchronization: {joins_transition: f, merge: {target: output.got}}}
"""
    drive = Drive(text)
    first, second = drive.tasks
    drive.fail(first)
    drive.finish(second, "fine")

    assert drive.output == {"got": [{"m": "mended"}, "fine"]}


def test_a_sub_workflow_gets_its_input_and_its_time() -> None:
    child = "{name: c, initial_node: n, nodes: {n: {}}, output: {v: input.v}}"
    text = one(
        "{workflow: 'c@2', input: {v: input.v}, timeout_ms: 70, output: {output.v: result.v}}"
    )
    drive = Drive(text, {"v": 2**70}, workflows={"c@2": child})

    (started,) = drive.of_kind(StartChild)
    assert (started.workflow, started.timeout_ms) == ("c@2", 70)
    assert drive.to_end().output == {"v": 2**70}


def test_a_late_branch_that_comes_to_an_end_node_does_not_end_the_run() -> None:
    text = """
name: late
initial_node: n
nodes: {n: {}, w: {task: w}, stop: {end: failed}, z: {task: z}}
transitions:
  - {id: f, from: n, to: w, spawn_count: 2}
  - {from: w, to: stop, condition: branch.index == 1}
  - {from: w, to: z, priority: 2, synchronization: {joins_transition: f, wait_for: any, late: absorb}}
"""
    drive = Drive(text)
    first, second = drive.tasks
    drive.finish(first)
    drive.finish(second)
    assert drive.state == "running"

    drive.finish(drive.at("z")[0])

    assert drive.state == "completed"


def test_trouble_in_a_late_branch_is_ignored_like_any_late_error() -> None:
    text = """
name: late
initial_node: n
nodes: {n: {}, w: {task: w, output: {state.v: result.v}}, inner: {task: w}, y: {}, z: {task: z}}
transitions:
  - {id: f, from: n, to: w, spawn_count: 3}
  - {id: g, from: w, to: inner, foreach: state.v, condition: branch.index == 1}
  - {from: inner, to: y, synchronization: {joins_transition: g, wait_for: {m_of_n: 5}}}
  - {from: w, to: z, priority: 2, synchronization: {joins_transition: f, wait_for: any, late: absorb}}
"""
    drive = Drive(text)
    first, second, third = drive.tasks
    drive.finish(first, {"v": []})
    drive.finish(second, {"v": [1]})  # a quorum out of reach
    drive.finish(third, {})  # a mapping that fails
    drive.finish(drive.at("z")[0])

    assert drive.state == "completed"


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"task": "work"}, "task"),
        ({"workflow": "w"}, "workflow"),
        ({"wait_for": WaitFor(event="e")}, "wait_for"),
        ({"approval": True}, "approval"),
        ({"approval": Approval()}, "approval"),
        ({"approval": False}, "pass"),
        ({"sleep_ms": 0}, "sleep_ms"),
        ({"end": "failed"}, "end"),
        ({}, "pass"),
    ],
)
def test_a_node_is_of_the_kind_that_its_field_makes_it(fields: dict[str, Any], kind: str) -> None:
    assert NodeDefinition(**fields).kind == kind
