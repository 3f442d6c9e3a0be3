# ruff: noqa: E501 - a definition reads best with a line for each transition
"""Nested scopes, loops around them, and the data of each."""

from typing import Any

import pytest

from rota.core.workflow.decisions import OpenScope
from tests.core.workflow.driving import Drive, Failed

NESTED = """
name: nested
initial_node: start
nodes:
  start: {}
  enter: {task: echo, input: {v: branch.item.name}, output: {state.mine: result.v}}
  leaf: {task: echo, input: {v: branch.item, of: branch.parent.item.name, mine: state.mine}}
  sum: {task: echo, input: {v: state.inner, mine: state.mine}, output: {state.sum: result.v}}
  done: {}
transitions:
  - {id: outer, from: start, to: enter, foreach: input.groups}
  - {id: inner, from: enter, to: leaf, foreach: branch.item.members}
  - from: leaf
    to: sum
    synchronization:
      joins_transition: inner
      merge: {source: 'branch.output.mine + string(branch.output.v)', target: state.inner}
  - from: sum
    to: done
    synchronization: {joins_transition: outer, merge: {source: state.sum, target: output.all, strategy: collect}}
"""
ECHO = {"echo": lambda payload: payload}
GROUPS = {
    "groups": [
        {"name": "a", "members": [1, 2]},
        {"name": "b", "members": []},
        {"name": "c", "members": [3]},
    ]
}


@pytest.mark.parametrize("seed", range(8))
def test_an_inner_join_merges_into_the_outer_branch_only(seed: int) -> None:
    drive = Drive(NESTED, GROUPS, ECHO, seed=seed).to_end()

    assert drive.output == {"all": [["a1", "a2"], [], ["c3"]]}
    assert drive.document("state") == {}
    assert set(drive.document("nodes")) == {"start", "done"}


def test_a_branch_sees_what_was_there_when_its_scope_opened() -> None:
    text = """
name: snapshot
initial_node: start
nodes:
  start: {input: {v: 'true'}, output: {state.before: result.v}}
  side: {task: side, output: {state.aside: 'true'}}
  work: {task: work, input: {v: 'has(state.aside)', before: state.before}}
  after: {}
transitions:
  - {from: start, to: side}
  - {id: fan, from: start, to: work, foreach: '[1, 2]', max_parallel: 1}
  - {from: work, to: after, synchronization: {joins_transition: fan, merge: {target: output.saw}}}
"""
    drive = Drive(text, None, {"work": lambda payload: [payload["v"], payload["before"]]})
    side, *_ = drive.at("side")

    drive.answer(drive.at("work")[0])
    drive.finish(side)
    drive.answer(drive.at("work")[0])

    assert drive.output == {"saw": [False, True, False, True]}
    assert drive.document() == {"before": True, "aside": True}


def test_an_outer_scope_may_be_joined_from_inside_an_inner_one() -> None:
    text = """
name: leap
initial_node: start
nodes: {start: {}, a: {}, b: {task: echo, input: {v: branch.item}}, end_: {}}
transitions:
  - {id: outer, from: start, to: a, foreach: '[1, 2]'}
  - {id: inner, from: a, to: b, foreach: '[10, 20]'}
  - {from: b, to: end_, synchronization: {joins_transition: outer, merge: {source: branch.index, target: output.got}}}
"""
    for seed in range(4):
        drive = Drive(text, None, ECHO, seed=seed).to_end()

        assert drive.output == {"got": [0, 1]}
        assert drive.visits("end_") == 1


def test_a_failed_outer_branch_takes_its_inner_scopes_and_their_timers_with_it() -> None:
    text = """
name: takes
initial_node: start
nodes: {start: {}, a: {}, leaf: {task: leaf}, bad: {task: bad}, b: {}, done: {}}
transitions:
  - {id: outer, from: start, to: a, spawn_count: 2}
  - {id: inner, from: a, to: leaf, spawn_count: 3, max_parallel: 2}
  - {from: a, to: bad}
  - {from: leaf, to: b, synchronization: {joins_transition: inner, timeout_ms: 50}}
  - {from: b, to: done, synchronization: &j {joins_transition: outer, on_branch_failure: continue, merge: {source: branch.index, target: output.got}}}
  - {from: bad, to: done, synchronization: &j {joins_transition: outer, on_branch_failure: continue, merge: {source: branch.index, target: output.got}}}
""".replace("&j ", "")
    drive = Drive(text)

    first = drive.at("bad")[0]
    drive.fail(first)

    assert len(drive.run.timers) == 1
    assert len(drive.at("leaf")) == 2
    for number in drive.at("leaf") + drive.at("bad"):
        drive.finish(number)
    drive.finish(drive.at("leaf")[0])
    assert drive.state == "completed"
    assert drive.output == {"got": [1]}


LOOP = """
name: refine
initial_node: draft
nodes:
  draft: {task: draft, output: {state.round: result}}
  vote: {task: vote, input: {round: state.round}}
  tally: {}
  done: {}
transitions:
  - {id: fan, from: draft, to: vote, spawn_count: 3}
  - {from: vote, to: tally, synchronization: {joins_transition: fan, merge: {target: state.votes}}}
  - {from: tally, to: draft, condition: state.round < input.good, max_iterations: 4}
  - {from: tally, to: done, priority: 2}
output: {votes: state.votes}
"""


def _drafts() -> dict[str, Any]:
    rounds = iter(range(100))
    return {"draft": lambda _: next(rounds), "vote": lambda payload: payload["round"]}


def test_a_loop_round_a_fan_out_opens_a_scope_each_time() -> None:
    drive = Drive(LOOP, {"good": 2}, _drafts(), seed=1).to_end()

    assert drive.output == {"votes": [2, 2, 2]}
    assert len(drive.of_kind(OpenScope)) == 3


def test_a_loop_ends_at_its_limit() -> None:
    drive = Drive(LOOP, {"good": 99}, _drafts()).to_end()

    assert drive.output == {"votes": [4, 4, 4]}
    assert drive.visits("draft") == 5


def test_each_branch_counts_its_own_iterations() -> None:
    text = """
name: loops
initial_node: start
nodes: {start: {}, work: {task: work, input: {i: branch.index}}, after: {}}
transitions:
  - {id: fan, from: start, to: work, spawn_count: 2}
  - {from: work, to: work, condition: branch.index == 1, max_iterations: 2}
  - {from: work, to: after, priority: 2, synchronization: {joins_transition: fan}}
"""
    drive = Drive(text, None, {"work": lambda _: None}, seed=4).to_end()

    assert drive.visits("work") == 4


def test_branches_may_have_several_nodes_and_tokens() -> None:
    text = """
name: wide
initial_node: start
nodes: {start: {}, a: {task: echo, input: {v: branch.index}}, b: {task: echo}, c: {task: echo}, after: {}}
transitions:
  - {id: fan, from: start, to: a, spawn_count: 2}
  - {from: a, to: b}
  - {from: a, to: c}
  - {from: b, to: after, synchronization: {joins_transition: fan, merge: {source: branch.index, target: output.got}}}
  - {from: c, to: after, synchronization: {joins_transition: fan, merge: {source: branch.index, target: output.got}}}
"""
    drive = Drive(text, None, ECHO)
    for node in ("a", "a", "b", "b", "c"):
        drive.answer(drive.at(node)[0])

    assert not drive.at("after")
    drive.to_end()
    assert drive.output == {"got": [0, 1]}
    assert drive.visits("after") == 1


def test_sub_workflows_inside_a_fan_out_are_joined_and_losers_cancelled() -> None:
    child = """
name: child
initial_node: work
nodes: {work: {task: work, input: {v: input.v}, output: {output.v: result}}}
"""
    text = """
name: parent
initial_node: start
nodes: {start: {}, sub: {workflow: child, input: {v: branch.item}}, after: {}}
transitions:
  - {id: fan, from: start, to: sub, foreach: '[5, 6, 7]'}
  - {from: sub, to: after, synchronization: {joins_transition: fan, wait_for: {m_of_n: 2}, merge: {source: branch.output.v, target: output.got}}}
"""
    drive = Drive(text, None, {"work": lambda payload: payload["v"]}, workflows={"child": child})
    children = dict(drive.children)
    first, second, third = children

    drive.child_step(third)
    drive.child_step(first)

    assert drive.state == "completed"
    assert drive.output == {"got": [5, 7]}
    assert children[second].state == "cancelled"


def test_a_sub_workflow_that_fails_fails_its_token() -> None:
    child = "{name: child, initial_node: work, nodes: {work: {task: work}}}"
    text = """
name: parent
initial_node: sub
nodes: {sub: {workflow: child, on_error: [{match: 'error.type == "Broken"', to: caught}]}, caught: {}}
output: {why: nodes.sub.error.message}
"""

    def work(_: Any) -> Any:
        raise Failed("child broke")

    drive = Drive(text, None, {"work": work}, workflows={"child": child}).to_end()

    assert drive.output == {"why": "child broke"}


def test_an_absorbed_branch_never_holds_up_the_scopes_outside() -> None:
    text = """
name: outside
initial_node: start
nodes: {start: {}, a: {}, leaf: {task: leaf}, more: {task: more}, b: {}, done: {task: done}}
transitions:
  - {id: outer, from: start, to: a, spawn_count: 2}
  - {id: inner, from: a, to: leaf, spawn_count: 2}
  - {from: leaf, to: more, condition: branch.index == 1}
  - {from: leaf, to: b, priority: 2, synchronization: {joins_transition: inner, wait_for: any, late: absorb}}
  - {from: b, to: done, synchronization: {joins_transition: outer}}
"""
    drive = Drive(text)
    leaves = drive.at("leaf")

    drive.finish(leaves[0])
    drive.finish(leaves[2])
    assert len(drive.at("done")) == 1
    drive.finish(drive.at("done")[0])
    assert drive.state == "running"

    drive.finish(leaves[1])
    drive.finish(leaves[3])
    for number in drive.at("more"):
        drive.finish(number)
    assert drive.state == "completed"
    assert not drive.run.scopes
