"""Scopes of runs over HTTP: seen by number, completed and cancelled."""

from typing import Any

import pytest

from tests.gateways.serving import Api, Json, held
from tests.gateways.working import HOLD, Bench, Broken

PANEL = """
name: panel
initial_node: begin
nodes: {begin: {}, judge: {task: judge, input: {by: branch.item}}, tally: {}}
transitions:
  - {id: judges, from: begin, to: judge, foreach: input.judges, max_parallel: 3}
  - from: judge
    to: tally
    synchronization:
      joins_transition: judges
      wait_for: {m_of_n: size(input.judges) / 2 + 1}
      complete_on: {signal: enough}
      merge: {target: output.verdicts, strategy: collect}
"""


def judge(payload: Any) -> Any:
    return payload["by"] if payload["by"] == "a" else HOLD


def fail(_: Any) -> Any:
    raise Broken("no")


@pytest.fixture
async def bench(api: Api) -> Bench:
    return await Bench.at(api)


async def waiting(bench: Bench) -> str:
    """A run of five judges, the first of whom has spoken."""
    run = await bench.carry_out(PANEL, {"judges": list("abcde")}, {"judge": judge})
    return str(run["id"])


async def scopes(bench: Bench, run: str, more: str = "") -> list[Json]:
    return await bench.items(f"/api/runs/{run}/scopes{more}")


async def test_an_open_scope_is_listed_with_its_branches_and_joins(bench: Bench) -> None:
    run = await waiting(bench)

    (scope,) = await scopes(bench, run)

    assert scope["number"] == 1
    assert scope["is_open"]
    assert scope["fan_out_transition_id"] == "judges"
    assert scope["node_id"] == "begin"
    assert scope["parent_token_id"] == f"{run}.1"
    assert scope["branches"] == {"waiting": 1, "live": 3, "arrived": 1}
    assert scope["joins"] == [
        {"node_id": "tally", "arrived": 1, "needed": 3, "complete_on": "enough"}
    ]
    graph = (await bench.api.get(f"/api/runs/{run}/graph")).json()
    assert graph["transitions"][1]["join"]["open_scopes"] == [1]
    assert graph["transitions"][1]["join"]["needed"] == 3
    before = (await bench.api.get(f"/api/runs/{run}/graph?at=1")).json()
    assert before["transitions"][1]["join"]["open_scopes"] == [1]
    tokens = await bench.tokens(run)
    assert [one["scope"] for one in tokens] == [None, 1, 1, 1, 1]


async def test_a_scope_is_completed_by_its_number(bench: Bench) -> None:
    run = await waiting(bench)

    done = await bench.steer(run, "scopes/1/complete", {"reason": "one will do"})

    assert (done["state"], done["output"]) == ("completed", {"verdicts": ["a"]})
    assert await scopes(bench, run) == []
    (closed,) = await scopes(bench, run, "?closed=true")
    assert not closed["is_open"]
    assert closed["because"] == "one will do"
    assert closed["branches"] == {"arrived": 1, "cancelled": 4}
    again = await bench.api.post(f"/api/runs/{run}/scopes/1/complete")
    assert (again.status_code, again.json()["code"]) == (409, "illegal_state")


async def test_a_scope_is_completed_by_its_signal_once(bench: Bench) -> None:
    run = await waiting(bench)

    done = await bench.steer(run, "signal", {"name": "enough"})

    assert done["output"] == {"verdicts": ["a"]}


async def test_a_signal_that_completes_nothing_is_refused(bench: Bench) -> None:
    text = PANEL.replace("begin: {}", "begin: {wait_for: {event: go}}")
    name = (await bench.put(text))["name"]
    run = await bench.start(name, {"judges": ["a"]})

    early = await bench.api.post(f"/api/runs/{run}/signal", {"name": "enough"})

    assert (early.status_code, early.json()["code"]) == (409, "illegal_state")
    assert "no scope" in early.json()["detail"]


async def test_a_cancelled_scope_leaves_the_rest_of_the_run(bench: Bench) -> None:
    run = await waiting(bench)

    done = await bench.steer(run, "scopes/1/cancel")

    assert (done["state"], done["output"]) == ("completed", {})
    assert [one["node_id"] for one in await bench.tokens(run)] == ["begin"] + ["judge"] * 4


@pytest.mark.parametrize("scope", ["2", "0", "x", "9" * 40])
async def test_a_scope_that_never_was_is_not_found(bench: Bench, scope: str) -> None:
    run = await waiting(bench)

    answer = await bench.api.post(f"/api/runs/{run}/scopes/{scope}/cancel")

    assert (answer.status_code, answer.json()["code"]) == (404, "scope_not_found")


async def test_scopes_come_in_pages(bench: Bench) -> None:
    text = """
name: many
initial_node: a
nodes: {a: {}, b: {}, c: {task: never}}
transitions:
  - {id: out, from: a, to: b, spawn_count: 4}
  - {id: in, from: b, to: c, spawn_count: 1}
"""
    name = (await bench.put(text))["name"]
    run = await bench.start(name)

    first = (await bench.api.get(f"/api/runs/{run}/scopes?limit=3")).json()
    rest = (
        await bench.api.get(f"/api/runs/{run}/scopes?limit=3&cursor={first['next_cursor']}")
    ).json()

    assert [one["number"] for one in first["items"] + rest["items"]] == [1, 2, 3, 4, 5]
    assert rest["next_cursor"] is None
    assert first["items"][0]["joins"] == []


async def test_scopes_left_behind_by_a_run_that_started_over_are_closed(bench: Bench) -> None:
    text = """
name: over
initial_node: pay
nodes:
  pay: {task: pay, compensate: refund}
  work: {task: work, retry: {max_attempts: 1}}
transitions: [{id: fan, from: pay, to: work, spawn_count: 2}]
"""
    answers = {"pay": lambda _: 1, "refund": lambda _: 1, "work": fail}
    run = (await bench.carry_out(text, {}, answers))["id"]
    assert await scopes(bench, run) == []
    await bench.steer(run, "retry")
    await bench.drive({"pay": lambda _: 1, "work": lambda _: HOLD})

    assert [one["number"] for one in await scopes(bench, run)] == [2]
    closed = await scopes(bench, run, "?closed=true")
    assert closed[0]["because"] == "the run started over"


# --- branches that are added ----------------------------------------------------------------------

CRAWL = """
name: crawl
initial_node: begin
nodes: {begin: {}, fetch: {task: fetch, input: {page: branch.item}}, done: {}}
transitions:
  - {id: pages, from: begin, to: fetch, foreach: input.pages, open: until_closed}
  - from: fetch
    to: done
    synchronization: {joins_transition: pages, merge: {target: output.pages, strategy: collect}}
"""


async def crawl(bench: Bench, pages: list[str]) -> str:
    name = (await bench.put(CRAWL))["name"]
    return await bench.start(name, {"pages": pages})


def page_of(payload: Any) -> Any:
    return payload["page"]


async def test_branches_are_added_to_an_open_scope_and_joined(bench: Bench) -> None:
    run = await crawl(bench, ["a"])
    await bench.drive({"fetch": page_of})
    path = f"/api/runs/{run}/scopes/1/branches"

    added = await bench.api.post(path, {"items": ["b", "c"], "key": "first"})
    again = await bench.api.post(path, {"items": ["b", "c"], "key": "first"})
    (scope,) = await scopes(bench, run)
    await bench.api.post(path, {"items": ["d"], "last": True})
    late = await bench.api.post(path, {"items": ["e"]})
    await bench.drive({"fetch": page_of})

    told = {"run_id": run, "scope": 1, "first_index": 1, "count": 2, "branch_total": 3}
    assert (added.status_code, added.json()) == (201, {**told, "duplicate": False})
    assert (again.status_code, again.json()) == (200, {**told, "duplicate": True})
    assert scope["takes_branches"]
    assert scope["branches"] == {"live": 2, "arrived": 1}
    assert (late.status_code, late.json()["code"]) == (409, "illegal_state")
    assert (await bench.run(run))["output"] == {"pages": list("abcd")}


async def test_a_leased_task_adds_branches_beside_its_own(bench: Bench) -> None:
    run = await crawl(bench, ["a"])
    (lease,) = await bench.worker.lease()
    path = f"/api/tasks/{lease['task_id']}/branches"
    request = {"items": ["b"], "fence": lease["fence"], "key": "links"}

    added = await bench.api.post(path, request)
    again = await bench.api.post(path, request)
    stale = await bench.api.post(path, {**request, "fence": lease["fence"] + 1})
    other = await bench.api.post(path, {**request, "fan_out": "others", "key": "x"})
    await bench.worker.report({**held(lease), "ok": True, "result": "a"})
    over = await bench.api.post(path, {**request, "key": "late"})
    await bench.drive({"fetch": page_of})
    await bench.steer(run, "scopes/1/complete")

    assert (added.status_code, added.json()["first_index"]) == (201, 1)
    assert (again.status_code, again.json()["duplicate"]) == (200, True)
    assert [one.json()["code"] for one in (stale, other, over)] == [
        "stale_lease",
        "illegal_state",
        "stale_lease",
    ]
    assert (await bench.run(run))["output"] == {"pages": ["a", "b"]}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"items": []}, 400),
        ({"items": list(range(1_001))}, 400),
        ({"items": "ab"}, 400),
        ({}, 400),
    ],
)
async def test_an_addition_that_is_none_is_refused(bench: Bench, body: Json, status: int) -> None:
    run = await crawl(bench, ["a"])

    answer = await bench.api.post(f"/api/runs/{run}/scopes/1/branches", body)

    assert answer.status_code == status


async def test_a_task_of_no_run_adds_no_branches(bench: Bench) -> None:
    await bench.api.post("/api/tasks", {"name": "alone"})
    (lease,) = await bench.worker.lease()

    answer = await bench.api.post(
        f"/api/tasks/{lease['task_id']}/branches", {"items": [1], "fence": lease["fence"]}
    )

    assert (answer.status_code, answer.json()["code"]) == (400, "invalid")


# --- beside long runs -----------------------------------------------------------------------------

LONG = """
name: long
initial_node: a
nodes: {a: {}}
transitions: [{from: a, to: a, max_iterations: 6000}]
"""
WIDE = """
name: wide
initial_node: begin
nodes: {begin: {}, work: {}, end: {}}
transitions:
  - {id: fan, from: begin, to: work, spawn_count: 3000}
  - {from: work, to: end, synchronization: {joins_transition: fan, merge: {target: state.all}}}
"""


async def test_heartbeats_are_answered_while_long_and_wide_runs_are_under_way(
    bench: Bench,
) -> None:
    """benchmarks/workflows.py measures the same at full size, and how long an answer takes."""
    for text in (LONG, WIDE):
        await bench.put(text)
    runs = [await bench.start("long"), await bench.start("wide")]

    beats = 0
    while await bench.items("/api/runs?state=running"):
        beat = {"incarnation": bench.worker.incarnation, "running": []}
        answer = await bench.worker.call("heartbeat", beat)
        assert answer.status_code == 200, answer.text
        beats += 1

    assert beats >= 10
    assert [(await bench.run(run))["state"] for run in runs] == ["completed"] * 2
