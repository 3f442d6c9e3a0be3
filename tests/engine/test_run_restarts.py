# ruff: noqa: E501 - a definition reads best with a line for each node
"""Does a run notice that its coordinator is another one? After no step of any workflow."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import TurnedClock
from tests.engine.flows import Failure, Flows, Handler, Story, flowing, tell

FAN_OUT = """
name: fan_out
initial_node: begin
nodes:
  begin: {task: begin, output: {state.base: result}}
  work: {task: work, input: {item: branch.item, base: state.base}, output: {state.mine: result}}
  check: {task: check, input: {mine: state.mine}}
  end: {task: end, input: {all: state.all}, output: {output.sum: result}}
transitions:
  - {id: each, from: begin, to: work, foreach: input.items, max_parallel: 3}
  - {from: work, to: check}
  - {from: check, to: end, synchronization: {joins_transition: each, merge: {target: state.all}}}
output: {sum: output.sum, all: state.all}
"""
NESTED = """
name: nested
initial_node: begin
nodes:
  begin: {}
  region: {task: region, input: {name: branch.item.name}, output: {state.region: result}}
  shop: {task: shop, input: {region: state.region, shop: branch.item, outer: branch.parent.index}}
  total: {task: total, input: {counts: state.counts}}
  all: {}
transitions:
  - {id: regions, from: begin, to: region, foreach: input.regions}
  - {id: shops, from: region, to: shop, foreach: branch.item.shops}
  - {from: shop, to: total, synchronization: {joins_transition: shops, merge: {target: state.counts}}}
  - {from: total, to: all, synchronization: {joins_transition: regions, merge: {target: output.totals, strategy: keyed, key: branch.item.name}}}
"""
CHILD = """
name: child
initial_node: double
nodes: {double: {task: double, input: {number: input.number}, output: {output.number: result}}}
"""
PARENT = """
name: parent
initial_node: begin
nodes:
  begin: {}
  child: {workflow: child, input: {number: branch.index}}
  end: {}
transitions:
  - {id: children, from: begin, to: child, spawn_count: 3}
  - {from: child, to: end, synchronization: {joins_transition: children, merge: {source: branch.output.number, target: output.numbers}}}
"""
TIMERS = """
name: timers
initial_node: nap
nodes:
  nap: {sleep_ms: 1000}
  wait: {wait_for: {event: never, timeout_ms: 2000}, on_error: [{match: 'error.type == "timeout"', to: late}]}
  late: {}
  slow: {sleep_ms: 5000}
  quick: {task: quick}
  end: {}
transitions:
  - {from: nap, to: wait}
  - {from: late, to: quick, sibling_group: race}
  - {from: late, to: slow, sibling_group: race}
  - {from: quick, to: end, synchronization: {joins_transition: race, timeout_ms: 3000, on_timeout: proceed, merge: {target: output.got}}}
  - {from: slow, to: end, synchronization: {joins_transition: race, timeout_ms: 3000, on_timeout: proceed, merge: {target: output.got}}}
"""
SIGNALS = """
name: signals
initial_node: first
nodes:
  first: {task: first}
  wait: {wait_for: {event: go}, output: {output.go: result.why}}
  sign: {approval: {title: "may it?"}, on_error: [{to: refused}]}
  refused: {task: tidy}
transitions: [{from: first, to: wait}, {from: wait, to: sign}]
"""
COMPENSATION = """
name: compensation
initial_node: book
nodes:
  book: {task: book, compensate: unbook}
  pay: {task: pay, compensate: refund}
  ship: {task: ship, retry: {max_attempts: 1}}
transitions: [{from: book, to: pay}, {from: pay, to: ship}]
"""
LOOP = """
name: loop
initial_node: round
nodes:
  round: {task: round, input: {n: '"n" in state ? state.n : 0'}, output: {state.n: result}}
  half: {task: half, input: {n: state.n, i: branch.index}}
  done: {}
transitions:
  - {id: halves, from: round, to: half, spawn_count: 2}
  - {id: joined, from: half, to: done, synchronization: {joins_transition: halves, merge: {target: state.halves}}}
  - {from: done, to: round, condition: state.n < 3, max_iterations: 5}
output: {n: state.n, halves: state.halves}
"""


def note(performed: list[str], name: str, handler: Handler, payload: Any) -> Any:
    performed.append(name)
    return handler(payload)


def refuse(_payload: Any) -> None:
    raise Failure("not today")


async def pause(flows: Flows, run_id: int) -> None:
    await flows.steer(run_id, "pause")


async def resume(flows: Flows, run_id: int) -> None:
    await flows.steer(run_id, "resume")


async def say_go(flows: Flows, run_id: int) -> None:
    await flows.signal(run_id, "go", {"why": "because"})


async def say_no(flows: Flows, run_id: int) -> None:
    await flows.signal(run_id, "sign", {"approved": False, "by": "me"})


FAN_HANDLERS = {
    "begin": lambda _: 100,
    "work": lambda payload: payload["base"] + payload["item"],
    "check": lambda payload: payload["mine"] * 2,
    "end": lambda payload: sum(payload["all"]),
}
STORIES: dict[str, tuple[Story, str, Any]] = {
    "fan-out": (
        Story(workflows=(FAN_OUT,), input={"items": [1, 2, 3, 4, 5]}, handlers=FAN_HANDLERS),
        "completed",
        {"sum": 1030, "all": [202, 204, 206, 208, 210]},
    ),
    "fan-out, paused": (
        Story(
            workflows=(FAN_OUT,),
            input={"items": [1, 2, 3]},
            handlers=FAN_HANDLERS,
            happenings={2: pause, 8: resume},
        ),
        "completed",
        {"sum": 612, "all": [202, 204, 206]},
    ),
    "nested": (
        Story(
            workflows=(NESTED,),
            input={
                "regions": [
                    {"name": "north", "shops": ["a", "bb"]},
                    {"name": "south", "shops": []},
                    {"name": "east", "shops": ["ccc"]},
                ]
            },
            handlers={
                "region": lambda payload: payload["name"].upper(),
                "shop": lambda payload: [payload["region"], payload["shop"], payload["outer"]],
                "total": lambda payload: payload["counts"],
            },
        ),
        "completed",
        {
            "totals": {
                "north": ["NORTH", "a", 0, "NORTH", "bb", 0],
                "south": [],
                "east": ["EAST", "ccc", 2],
            }
        },
    ),
    "sub-workflows": (
        Story(
            workflows=(CHILD, PARENT), handlers={"double": lambda payload: payload["number"] * 2}
        ),
        "completed",
        {"numbers": [0, 2, 4]},
    ),
    "timers": (
        Story(workflows=(TIMERS,), handlers={"quick": lambda _: "quick"}),
        "completed",
        {"got": ["quick"]},
    ),
    "signals": (
        Story(
            workflows=(SIGNALS,),
            handlers={"first": lambda _: None, "tidy": lambda _: "tidied"},
            happenings={0: say_go, 5: say_no},
        ),
        "completed",
        {"go": "because"},
    ),
    "compensation": (
        Story(
            workflows=(COMPENSATION,),
            handlers={
                "book": lambda _: "seat 1",
                "pay": lambda _: "receipt",
                "ship": refuse,
                "refund": lambda payload: payload["result"],
                "unbook": lambda payload: payload["result"],
            },
        ),
        "failed",
        None,
    ),
    "loop": (
        Story(
            workflows=(LOOP,),
            handlers={
                "round": lambda payload: payload["n"] + 1,
                "half": lambda payload: payload["n"] + payload["i"] / 2,
            },
        ),
        "completed",
        {"n": 3, "halves": [3, 3.5]},
    ),
}


@pytest.mark.parametrize("name", STORIES)
async def test_a_new_coordinator_after_every_step_changes_nothing(
    tmp_path: Path, name: str
) -> None:
    story, state, output = STORIES[name]

    undisturbed = await tell(story, tmp_path / "undisturbed.db", restarts=lambda _: False)
    restarted = await tell(story, tmp_path / "restarted.db", restarts=lambda _: True)

    first = undisturbed.records[0]
    assert (first.state, first.output) == (state, output), first
    assert restarted == undisturbed
    assert restarted.steps >= 3


@pytest.mark.parametrize("name", STORIES)
async def test_a_memory_that_holds_no_run_changes_nothing(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    story, *_ = STORIES[name]
    undisturbed = await tell(story, tmp_path / "undisturbed.db", restarts=lambda _: False)

    monkeypatch.setattr("rota.engine.runs.cache.MOST_CACHED", 0)
    forgetful = await tell(story, tmp_path / "forgetful.db", restarts=lambda _: False)

    assert forgetful == undisturbed


async def test_the_journals_of_all_these_runs_can_be_replayed(
    tmp_path: Path, clock: TurnedClock
) -> None:
    for number, (story, *_) in enumerate(STORIES.values()):
        path = tmp_path / f"{number}.db"
        told = await tell(story, path, restarts=lambda _: False)
        async with flowing(path, clock) as flows:
            assert all([await flows.replays(one.id) for one in told.records])


async def test_undone_work_is_undone_in_reverse_order_after_restarts_too(tmp_path: Path) -> None:
    story, *_ = STORIES["compensation"]
    performed: list[str] = []
    handlers = {
        name: partial(note, performed, name, handler) for name, handler in story.handlers.items()
    }
    watched = Story(workflows=story.workflows, handlers=handlers)

    told = await tell(watched, tmp_path / "rota.db", restarts=lambda _: True)

    assert performed == ["book", "pay", "ship", "refund", "unbook"]
    error = told.records[0].error
    assert error is not None
    assert (error["type"], error["message"], error["node"]) == ("Failure", "not today", "ship")
