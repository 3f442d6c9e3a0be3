"""What open runs wait for, over HTTP."""

import pytest

from tests.gateways.serving import Api
from tests.gateways.working import Bench

ASK = """
name: ask
initial_node: ship
nodes:
  ship: {approval: {title: "Ship order 17?", timeout_ms: 60000}}
  paid: {wait_for: {event: paid}}
transitions: [{from: ship, to: paid}]
"""
OUTER = "{name: outer, initial_node: order, nodes: {order: {workflow: ask}}}"


@pytest.fixture
async def bench(api: Api) -> Bench:
    bench = await Bench.at(api)
    await bench.put(ASK)
    return bench


async def test_an_approval_is_answered_by_what_the_list_says(bench: Bench) -> None:
    api, run_id = bench.api, await bench.start("ask")

    page = (await api.get("/api/waits")).json()
    (asking,) = page["items"]
    answer = await api.post(
        f"/api/runs/{asking['run_id']}/signal",
        {"name": asking["name"], "token_id": asking["token_id"], "payload": {"approved": True}},
    )

    now_ms = api.clock.now_ms()
    assert (asking["kind"], asking["title"]) == ("approval", "Ship order 17?")
    assert (asking["run_id"], asking["workflow"], asking["place"]) == (run_id, "ask", "ship")
    assert (asking["since_ms"], asking["due_at_ms"]) == (now_ms, now_ms + 60_000)
    assert answer.status_code == 200
    (waiting,) = (await api.get("/api/waits")).json()["items"]
    assert (waiting["kind"], waiting["title"]) == ("signal", "Signal 'paid' at paid")


async def test_the_list_of_waits_has_pages_and_counts(bench: Bench) -> None:
    api = bench.api
    runs = [await bench.start("ask") for _ in range(5)]
    await api.post(f"/api/runs/{runs[0]}/signal", {"name": "ship", "payload": True})
    page = (await api.get("/api/waits?limit=2")).json()
    found = [one["run_id"] for one in page["items"]]

    while page["next_cursor"] is not None:
        page = (await api.get(f"/api/waits?limit=2&cursor={page['next_cursor']}")).json()
        found += [one["run_id"] for one in page["items"]]

    assert found == [*runs[1:], runs[0]]
    assert page["counts"] == {"approval": 4, "signal": 1}
    only = (await api.get("/api/waits?kind=signal")).json()["items"]
    assert [one["run_id"] for one in only] == [runs[0]]
    assert (await api.get("/api/overview")).json()["waits"] == {"approval": 4, "signal": 1}


@pytest.mark.parametrize(
    "cursor", ["x", "approval.1.2", "approval.x.y.z", "branches.1.0000000000000001.1", "a" * 999]
)
async def test_a_cursor_that_is_not_ours_is_refused(bench: Bench, cursor: str) -> None:
    answer = await bench.api.get(f"/api/waits?cursor={cursor}")

    assert (answer.status_code, answer.json()["field"]) == (400, "cursor")


async def test_a_child_run_names_its_parent(bench: Bench) -> None:
    await bench.put(OUTER)
    outer = await bench.start("outer")
    api = bench.api

    (asking,) = (await api.get("/api/waits")).json()["items"]
    child = await bench.run(asking["run_id"])
    listed = {one["id"]: one for one in (await api.get("/api/runs")).json()["items"]}

    assert (asking["parent_run_id"], asking["parent_workflow"]) == (outer, "outer")
    assert (child["parent_run_id"], child["parent_workflow"]) == (outer, "outer")
    assert listed[asking["run_id"]]["parent_workflow"] == "outer"
    assert listed[outer]["parent_workflow"] is None
