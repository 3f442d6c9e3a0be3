"""A journal gives the same decisions again; the cost of a fan-out."""

import sys

import msgspec
import pytest

from rota.core.workflow.decisions import RunDecision
from rota.core.workflow.definition.model import Graph
from rota.core.workflow.events import RunEvent, RunStarted, Signalled, TaskEnded
from rota.core.workflow.runtime.reducer import new_run, reduce
from tests.core.workflow.driving import Drive, defined
from tests.core.workflow.test_nesting import ECHO, GROUPS, NESTED

BIG = """
name: big
initial_node: start
nodes: {start: {}, work: {task: work, input: {i: branch.item}}, after: {}}
transitions:
  - {id: fan, from: start, to: work, foreach: input.items}
  - {from: work, to: after, synchronization: {joins_transition: fan, merge: {target: output.got}}}
"""
CONTINUE = BIG.replace(
    "{joins_transition: fan,", "{joins_transition: fan, on_branch_failure: continue,"
)
PARALLEL = BIG.replace("foreach: input.items}", "foreach: input.items, max_parallel: 10}")


def test_events_and_decisions_survive_being_stored() -> None:
    drive = Drive(NESTED, GROUPS, ECHO, seed=3).to_end()

    for event, decisions in drive.journal:
        assert msgspec.json.decode(msgspec.json.encode(event), type=RunEvent) == event
        stored = msgspec.json.encode(decisions)
        again = msgspec.json.decode(stored, type=list[RunDecision])
        assert msgspec.json.encode(again) == stored


def test_replaying_a_journal_gives_the_same_decisions_and_the_same_run() -> None:
    drive = Drive(NESTED, GROUPS, ECHO, seed=4)
    while not drive.is_ended:
        drive.step()
        drive.restart()

    assert drive.output == {"all": [["a1", "a2"], [], ["c3"]]}


def _work(text: str, size: int, *, ok: bool = True) -> tuple[int, int]:
    """The decisions of a fan-out of a size, and the function calls made for them."""
    run = new_run(Graph(defined(text)), {"items": list(range(size))})
    calls = decisions = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        decisions += len(reduce(run, RunStarted(0, run.context.input)))
        for number in range(2, size + 2):
            error = None if ok else {"type": "Broken", "message": ""}
            decisions += len(reduce(run, TaskEnded(number, number, ok, 1, error)))
    finally:
        sys.setprofile(before)
    assert run.state == "completed"
    return decisions, calls


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "ok"), [(BIG, True), (PARALLEL, True), (CONTINUE, False)], ids=["all", "few", "failed"]
)
def test_a_fan_out_and_its_join_cost_in_proportion_to_their_size(text: str, *, ok: bool) -> None:
    each = {size: _work(text, size, ok=ok) for size in (100, 1_000, 10_000)}

    for size in (1_000, 10_000):
        for small, large in zip(each[100], each[size], strict=True):
            assert large <= small * (size / 100) * 1.05


def test_a_thousand_waiting_tokens_are_found_by_name_and_not_one_by_one() -> None:
    text = """
name: waiting
initial_node: start
nodes: {start: {}, wait: {wait_for: {event: e}}, after: {}}
transitions:
  - {id: fan, from: start, to: wait, spawn_count: 1000}
  - {from: wait, to: after, synchronization: {joins_transition: fan, merge: {target: output.got}}}
"""
    run = new_run(Graph(defined(text)), None)
    reduce(run, RunStarted(0, None))
    for number in range(1_000):
        reduce(run, Signalled(number, "e", number))

    assert run.output == {"got": list(range(1_000))}
