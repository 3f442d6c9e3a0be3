# ruff: noqa: E501 - a definition reads best with a line for each transition
"""Steering of a run: pause, resume, cancel, retry, fork, compensation, timeouts."""

import pytest

from rota.core.workflow.decisions import CreateToken, SetRunState, StartChild
from rota.core.workflow.events import (
    ChildEnded,
    RunPaused,
    RunResumed,
    RunRetried,
    RunStarted,
    TaskEnded,
    TimerFired,
)
from rota.core.workflow.states import RunState, TokenState
from tests.core.workflow.driving import Drive

LINE = """
name: line
initial_node: a
nodes: {a: {task: a, output: {state.a: result}}, b: {task: b, input: {a: state.a}, output: {output.b: result}}}
transitions: [{from: a, to: b}]
"""
FAN = """
name: fan
initial_node: start
nodes: {start: {}, work: {task: work, input: {i: branch.index}}, next: {task: next}, after: {}}
transitions:
  - {id: fan, from: start, to: work, spawn_count: 3}
  - {from: work, to: next}
  - {from: next, to: after, synchronization: {joins_transition: fan, merge: {target: output.got}}}
"""


def test_nothing_is_dispatched_while_a_run_is_paused() -> None:
    drive = Drive(LINE)

    drive.pause()
    drive.finish(1, "A")

    assert drive.state == "paused"
    assert not drive.tasks
    assert drive.run.tokens[2].state is TokenState.PENDING
    drive.resume()
    assert drive.tasks[2].payload == {"a": "A"}


def test_a_paused_run_whose_last_task_ends_completes_when_it_is_resumed() -> None:
    drive = Drive(LINE)
    drive.finish(1)
    drive.pause()
    drive.finish(2, "B")
    assert drive.state == "paused"

    drive.resume()

    assert drive.output == {"b": "B"}


def test_timers_that_fire_while_paused_are_not_lost() -> None:
    text = """
name: slow
initial_node: start
nodes: {start: {}, nap: {sleep_ms: 10}, work: {task: work}, after: {}}
transitions:
  - {id: fan, from: start, to: nap, spawn_count: 1}
  - {from: nap, to: work}
  - {from: work, to: after, synchronization: {joins_transition: fan, timeout_ms: 50, on_timeout: proceed}}
"""
    drive = Drive(text)
    drive.pause()
    drive.turn_clock(drive.now_ms + 20)
    assert not drive.tasks

    drive.turn_clock(drive.now_ms + 50)
    assert drive.state == "paused"
    drive.resume()

    assert drive.state == "completed"
    assert drive.visits("after") == 1


def test_a_signal_for_a_paused_run_is_kept() -> None:
    text = "{name: w, initial_node: a, nodes: {a: {task: a}, b: {wait_for: {event: go}}}, transitions: [{from: a, to: b}]}"
    drive = Drive(text)
    drive.pause()
    drive.finish(1)
    drive.signal("go", 1)

    drive.resume()

    assert drive.state == "completed"


def test_cancelling_reaches_tasks_children_and_timers() -> None:
    text = """
name: all
initial_node: start
nodes: {start: {}, a: {task: a}, b: {workflow: child}, c: {sleep_ms: 5}, d: {wait_for: {event: go, timeout_ms: 9}}}
transitions: [{from: start, to: a}, {from: start, to: b}, {from: start, to: c}, {from: start, to: d}]
"""
    child = "{name: child, initial_node: a, nodes: {a: {task: a}}}"
    drive = Drive(text, workflows={"child": child})
    (child_run,) = drive.children.values()

    drive.cancel("enough")

    assert drive.state == "cancelled"
    assert drive.error == {"type": "cancelled", "message": "enough"}
    assert child_run.state == "cancelled"
    assert not drive.run.timers
    assert set(drive.states.values()) == {TokenState.COMPLETED, TokenState.CANCELLED}


def test_what_comes_for_an_ended_run_changes_nothing() -> None:
    drive = Drive(LINE)
    drive.cancel()

    for event in (
        TaskEnded(9_999, 1, ok=True),
        ChildEnded(9_999, 1, ok=True),
        TimerFired(9_999, "sleep", 1),
    ):
        assert drive.feed(event) == []
    assert drive.cancel() == drive.pause() == drive.resume() == drive.retry() == []
    assert drive.signal("x") == []


def test_a_failed_run_goes_on_where_it_failed() -> None:
    drive = Drive(LINE)
    drive.finish(1, "A")
    drive.fail(2)
    assert drive.state == "failed"

    drive.retry()

    assert drive.state == "running"
    assert [(one.task, one.payload) for one in drive.tasks.values()] == [("b", {"a": "A"})]
    drive.finish(min(drive.tasks), "B")
    assert drive.output == {"b": "B"}


def test_a_retry_goes_on_inside_branches_without_doing_again_what_was_done() -> None:
    handlers = {"work": lambda payload: payload["i"], "next": lambda _: "n"}
    drive = Drive(FAN, None, handlers)
    first, second, third = drive.at("work")
    drive.answer(first)
    drive.answer(drive.at("next")[0])  # waits at the join
    drive.answer(second)
    drive.fail(third)
    assert drive.state == "failed"
    assert not drive.run.tokens

    drive.retry()

    assert len(drive.at("work")) == 1
    assert len(drive.at("next")) == 1
    assert drive.to_end().output == {"got": ["n", "n", "n"]}
    assert drive.endings() == 2
    assert drive.visits("after") == 1
    drive.restart()


def test_branches_that_arrived_at_a_join_that_failed_are_not_shown_as_cancelled() -> None:
    drive = Drive(FAN, None, {"work": lambda _: 0, "next": lambda _: 1})
    first, second, third = drive.at("work")
    drive.answer(first)
    drive.answer(second)
    arrived, under_way = drive.at("next")
    drive.answer(arrived)

    drive.fail(third)

    assert drive.states[arrived] is TokenState.COMPLETED
    assert drive.states[under_way] is TokenState.CANCELLED
    drive.retry()
    assert drive.states[arrived] is TokenState.WAITING_FOR_SIBLINGS
    assert drive.to_end().output == {"got": [1, 1, 1]}
    assert drive.visits("next") == 4  # only the branch that was cut short came there again
    drive.restart()


def test_a_run_that_an_earlier_version_started_fails_by_the_rules_of_that_version() -> None:
    drive = Drive(FAN, None, {"work": lambda _: 0, "next": lambda _: 1}, rules=1)
    first, _, third = drive.at("work")
    drive.answer(first)
    (arrived,) = drive.at("next")
    drive.answer(arrived)

    drive.fail(third)

    assert drive.states[arrived] is TokenState.CANCELLED
    drive.retry()
    assert drive.to_end().output == {"got": [1, 1, 1]}


def test_a_retry_gives_a_missed_quorum_its_failed_branches_again() -> None:
    text = FAN.replace(
        "{joins_transition: fan,",
        "{joins_transition: fan, wait_for: {m_of_n: 3}, on_branch_failure: continue,",
    )
    drive = Drive(text, None, {"work": lambda _: 0, "next": lambda _: 1})
    first, second, _ = drive.at("work")
    drive.answer(first)
    drive.fail(second)
    assert drive.error["type"] == "quorum_unreachable"

    drive.retry()

    assert len(drive.at("work")) == 2
    assert drive.to_end().output == {"got": [1, 1, 1]}


def test_a_retry_after_a_join_time_out_counts_the_time_anew() -> None:
    text = FAN.replace("{joins_transition: fan,", "{joins_transition: fan, timeout_ms: 100,")
    drive = Drive(text, None, {"work": lambda _: 0, "next": lambda _: 1})
    drive.turn_clock()
    assert drive.error["type"] == "join_timeout"

    drive.retry()

    assert drive.run.timers == {("join", 1): drive.now_ms + 100}
    assert drive.to_end().state == "completed"


def test_a_retry_of_what_cannot_work_fails_again() -> None:
    text = LINE.replace("{output.b: result}", "{output.b: result.nothing}")
    drive = Drive(text, None, {"a": lambda _: 1, "b": lambda _: {}}).to_end()
    assert drive.error["type"] == "mapping_failed"

    drive.retry()

    assert drive.to_end().error["type"] == "mapping_failed"
    assert drive.visits("b") == 2


def test_a_fork_starts_in_the_middle_with_the_state_it_is_given() -> None:
    drive = Drive(LINE, None, {"b": lambda payload: payload}, from_node="b", state={"a": 7})

    assert drive.to_end().output == {"b": {"a": 7}}


def test_a_fork_has_the_results_of_the_nodes_it_is_given() -> None:
    text = LINE.replace("{a: state.a}", "{a: nodes.a.result}")
    first = Drive(text, None, {"a": lambda _: 7, "b": lambda payload: payload}).to_end()

    fork = Drive(text, None, first.handlers, from_node="b", nodes=first.document("nodes"))

    assert fork.to_end().output == {"b": {"a": 7}}
    fork.restart()


def test_a_fork_in_the_middle_of_a_branch_has_nobody_to_wait_for() -> None:
    drive = Drive(FAN, None, {"next": lambda _: 1}, from_node="next").to_end()

    assert drive.state == "completed"
    assert drive.visits("after") == 1


def test_a_fork_from_nowhere_fails() -> None:
    assert Drive(LINE, from_node="nope").error["type"] == "unknown_node"


@pytest.mark.parametrize("given", ["started", "defined"])
def test_a_run_may_take_only_so_long(given: str) -> None:
    is_started = given == "started"
    drive = Drive(LINE, timeout_ms=100) if is_started else Drive(LINE + "timeout_ms: 100\n")

    drive.turn_clock()

    assert drive.state == "timed_out"
    assert drive.error["type"] == "timeout"
    assert drive.cancelled == [1]
    drive.retry()
    assert drive.run.timers == {("run", 0): drive.now_ms + 100}


def test_a_run_ends_once_and_starts_once() -> None:
    drive = Drive(LINE, None, {"a": lambda _: 1, "b": lambda _: 2}).to_end()

    assert [one.state for one in drive.of_kind(SetRunState)] == ["completed"]
    with pytest.raises(AssertionError):
        drive.feed(RunStarted(1, None))


def test_tokens_tell_where_they_came_from() -> None:
    drive = Drive(FAN)

    created = drive.of_kind(CreateToken)
    assert [(one.node, one.parent, one.via, one.stack) for one in created[:2]] == [
        ("start", None, None, ()),
        ("work", 1, "fan", ((1, 0),)),
    ]


NEST = """
name: nest
initial_node: start
nodes: {start: {}, sub: {workflow: line}, own: {task: own}}
transitions: [{from: start, to: sub}, {from: start, to: own}]
"""


def test_a_retry_goes_on_inside_a_sub_workflow_where_it_failed() -> None:
    drive = Drive(NEST, workflows={"line": LINE}, handlers={"b": lambda _: "B", "own": lambda _: 0})
    ((token, child),) = drive.children.items()
    child.finish(1, "A")
    child.fail(2)
    drive.child_step(token)
    assert drive.error == {"type": "Broken", "message": "broken", "node": "sub"}

    drive.retry()

    assert list(drive.children.values()) == [child]
    assert [one.task for one in child.tasks.values()] == ["b"]
    assert drive.to_end().state == "completed"
    drive.restart()


def test_a_branch_whose_sub_workflow_failed_goes_on_inside_it_when_it_is_retried() -> None:
    text = """
name: many
initial_node: start
nodes: {start: {}, sub: {workflow: line}, after: {}}
transitions:
  - {id: fan, from: start, to: sub, spawn_count: 2}
  - {from: sub, to: after, synchronization: {joins_transition: fan, wait_for: {m_of_n: 2}, on_branch_failure: continue}}
"""
    drive = Drive(text, workflows={"line": LINE}, handlers={"a": lambda _: 1, "b": lambda _: 2})
    (first, failing), (second, _) = drive.children.items()
    while second in drive.children:
        drive.child_step(second)
    failing.finish(1, "A")
    failing.fail(2)
    drive.child_step(first)
    assert drive.error["type"] == "quorum_unreachable"

    drive.retry()

    assert list(drive.children.values()) == [failing]
    assert [one.task for one in failing.tasks.values()] == ["b"]
    assert drive.to_end().state == "completed"
    drive.restart()


def test_a_retry_of_an_earlier_version_starts_the_sub_workflow_again() -> None:
    drive = Drive(NEST, workflows={"line": LINE})
    ((token, child),) = drive.children.items()
    child.fail(1)
    drive.child_step(token)

    drive.feed(RunRetried(3_000))

    assert [one.resumes for one in drive.of_kind(StartChild)] == [None, None]


def test_pausing_and_resuming_reach_sub_workflows() -> None:
    drive = Drive(NEST, workflows={"line": LINE})
    (child,) = drive.children.values()

    drive.pause()
    child.finish(1, "A")

    assert child.state == "paused"
    assert not child.tasks
    drive.resume()
    assert child.state == drive.state == "running"
    assert [one.task for one in child.tasks.values()] == ["b"]
    drive.restart()


def test_a_journal_of_an_earlier_version_pauses_the_run_alone() -> None:
    drive = Drive(NEST, workflows={"line": LINE})

    decisions = drive.feed(RunPaused(2_000)) + drive.feed(RunResumed(2_001))

    assert decisions == [SetRunState(RunState.PAUSED), SetRunState(RunState.RUNNING)]
