"""Functions over HTTP and streams: deploy, report, read their logs."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rota.cli.render.run_model import counts_of
from rota.messages import RunGraph
from tests.gateways.replicas import served_pair
from tests.gateways.serving import Api, Json
from tests.gateways.test_access import closed, token
from tests.gateways.websocket.streaming import streaming_peer
from tests.gateways.websocket.talking import until
from tests.gateways.working import Bench

__all__ = ["closed"]  # a fixture

CODE = {"fingerprint": "f" * 16, "source": "async def order(ctx, cart): ...", "first_line": 7}
STEP = {"path": "price#1", "kind": "step", "state": "done", "result": 12}


@pytest.fixture
async def bench(api: Api) -> Bench:
    return await Bench.at(api)


async def deploy(api: Api, name: str = "order", status: int = 201, **more: Any) -> Json:
    headers = more.pop("headers", None)
    body = {"code": {**CODE, **more}}
    answer = await api.client.put(f"/api/workflows/{name}", json=body, headers=headers)
    assert answer.status_code == status, answer.text
    return answer.json()


async def tell(bench: Bench, lease: Json, after: int, *operations: Json) -> Json:
    item = {
        "task_id": lease["task_id"],
        "fence": lease["fence"],
        "after": after,
        "operations": operations,
    }
    body = {"incarnation": bench.worker.incarnation, "items": [item]}
    answer = await bench.worker.call("operations", body)
    assert answer.status_code == 200, answer.text
    (outcome,) = answer.json()["outcomes"]
    return outcome


async def test_a_function_is_deployed_run_and_read(api: Api, bench: Bench) -> None:
    await deploy(api)
    run_id = await bench.start("order", {"cart": 1})
    (lease,) = await bench.worker.lease()
    assert (lease["name"], lease["payload"]["input"]) == ("workflow:order", {"cart": 1})

    first = await tell(bench, lease, 0, STEP)
    again = await tell(bench, lease, 0, STEP)
    page = (await api.get(f"/api/runs/{run_id}/operations")).json()
    await bench.worker.finish(lease, {"after": 1, "operations": [], "output": "done"})

    assert (first["outcome"], again["outcome"]) == ("accepted", "duplicate")
    assert (page["items"], page["next_after"], page["reported"]) == ([STEP], None, 1)
    run = await bench.run(run_id)
    assert (run["state"], run["output"]) == ("completed", "done")


async def test_each_version_of_a_function_shows_its_source(api: Api) -> None:
    await deploy(api)
    await deploy(api, status=200)
    await deploy(api, fingerprint="g" * 16, source="async def order(ctx): return 1")

    newest = (await api.get("/api/workflows/order")).json()
    first = (await api.get("/api/workflows/order/versions/1")).json()

    assert [one["version"] for one in newest["versions"]] == [2, 1]
    assert newest["code"]["source"] == "async def order(ctx): return 1"
    assert first["code"]["source"] == CODE["source"]
    assert "definition" not in first or first["definition"] is None


async def test_a_definition_that_is_not_right_is_refused_by_field(api: Api) -> None:
    refused = await deploy(api, status=400, fingerprint="f")
    unknown = await deploy(api, status=400, colour="red")
    body = {"code": {**CODE, "name": "other"}}
    named = (await api.client.put("/api/workflows/order", json=body)).json()

    assert refused["path"] == "fingerprint"
    assert unknown["field"] == "colour"
    assert named["field"] == "name"


async def test_operations_that_are_not_right_are_refused(api: Api, bench: Bench) -> None:
    await deploy(api)
    await bench.start("order")
    (lease,) = await bench.worker.lease()
    item = {"task_id": lease["task_id"], "fence": lease["fence"], "after": 0}

    for operations in ([{"path": "a#1"}], {"path": "a#1"}, [{**STEP, "kind": "dance"}]):
        body = {
            "incarnation": bench.worker.incarnation,
            "items": [{**item, "operations": operations}],
        }
        answer = await bench.worker.call("operations", body)
        assert (answer.status_code, answer.json()["field"]) == (400, "operations")


async def test_a_cancelled_function_is_told_by_the_answer_to_its_report(
    api: Api, bench: Bench
) -> None:
    await deploy(api)
    run_id = await bench.start("order")
    (lease,) = await bench.worker.lease()
    await bench.steer(run_id, "cancel", {"reason": "changed my mind"})

    told = await tell(bench, lease, 0, STEP)

    assert told == {
        "task_id": lease["task_id"],
        "outcome": "accepted",
        "cancelled": "changed my mind",
    }


async def test_a_streaming_worker_reports_operations_of_many_functions(api: Api) -> None:
    await deploy(api)
    bench = await Bench.at(api)
    runs = [await bench.start("order") for _ in range(2)]
    async with streaming_peer(api) as worker:
        await worker.open("streamer")
        await worker.credit(10)
        leases = await worker.leases()
        operations = msgspec.json.encode([STEP])
        items = [[lease[0], lease[1], 0, operations] for lease in leases]

        noted = await worker.ask("stream_operations", payload={"items": items})
        again = await worker.ask("stream_operations", payload={"items": items[:1]})

        assert (noted["count"], noted.get("refused", [])) == (2, [])
        assert again["refused"] == [[leases[0][0], "duplicate"]]
    for run_id in runs:
        page = (await api.get(f"/api/runs/{run_id}/operations")).json()
        assert page["items"] == [STEP]


async def test_a_caller_waits_for_the_values_of_a_stream_and_for_a_reply(
    api: Api, bench: Bench
) -> None:
    await deploy(api)
    run_id = await bench.start("order")
    (lease,) = await bench.worker.lease()
    ask = {"name": "add", "is_answered": True, "type": "event"}
    asking = {"path": "add#1", "kind": "receive", "state": "pending", "request": ask}
    await tell(bench, lease, 0, asking)
    await bench.steer(run_id, "signal", {"name": "add", "payload": 1, "key": "k"})
    waiting = [
        asyncio.ensure_future(api.get(f"/api/runs/{run_id}/{path}?wait_ms=30000"))
        for path in ("streams/log", "replies/k")
    ]
    await until(lambda: len(api.node.coordinator._notifier.ends) == 1)
    operations = [
        {"path": "add#1", "kind": "receive", "state": "delivered"},
        {**STEP, "path": "log#1", "kind": "stream", "result": {"stream": "log", "value": 5}},
        {**STEP, "path": "reply#1", "kind": "reply", "result": {"number": 1, "value": 2}},
    ]

    await tell(bench, lease, 1, *operations)
    values, reply = [(await one).json() for one in waiting]

    assert values == {"items": [5], "next_after": 1, "ended": False}
    assert reply == {"ready": True, "value": 2, "ended": False}
    await bench.worker.finish(lease, {"after": 4, "output": 1})
    later = (await api.get(f"/api/runs/{run_id}/streams/log?after=1&wait_ms=30000")).json()
    assert later == {"items": [], "next_after": 1, "ended": True}


async def test_a_function_goes_on_over_two_coordinators(tmp_path: Path) -> None:
    async with served_pair(tmp_path) as (leader, follower):
        bench = await Bench.at(follower)
        await deploy(follower)
        run_id = await bench.start("order", {"cart": 1})
        (lease,) = await bench.worker.lease()
        path = f"/api/runs/{run_id}/streams/log"
        waiting = asyncio.ensure_future(follower.get(f"{path}?wait_ms=30000"))
        await until(lambda: len(follower.node.coordinator._notifier.ends) == 1)
        value = {**STEP, "path": "log#1", "kind": "stream"}

        streamed = {**value, "result": {"stream": "log", "value": {"huge": 10**40}}}
        outcome = await tell(bench, lease, 0, streamed)
        values = (await waiting).json()["items"]
        page = (await leader.get(f"/api/runs/{run_id}/operations")).json()
        await bench.worker.finish(lease, {"after": 1, "output": "done"})

        assert outcome["outcome"] == "accepted"
        assert values == [{"huge": 10**40}]
        assert [one["path"] for one in page["items"]] == ["log#1"]
        assert (await bench.run(run_id))["output"] == "done"


# --- looking ----------------------------------------------------------------------------------


async def test_the_items_of_a_map_are_counted_also_those_that_are_held_back(
    api: Api, bench: Bench
) -> None:
    await deploy(api)
    run_id = await bench.start("order")
    (lease,) = await bench.worker.lease()
    call = {"type": "call", "task": "resize"}
    request = {"type": "map", "call": call, "payloads": [*range(10)], "max_parallel": 3}
    photos = {"path": "photos#1", "kind": "map", "state": "pending", "request": request}
    await bench.worker.finish(lease, {"operations": [photos], "waits": [["photos#1"]]})
    (first, _) = await bench.worker.lease(most=2)
    await bench.worker.finish(first, 1)

    answer = await api.get(f"/api/runs/{run_id}/graph")
    (view,) = msgspec.json.decode(answer.content, type=RunGraph).nodes

    assert view.items is not None
    assert msgspec.to_builtins(view.items) == {
        "total": 10,
        "ended": 1,
        "running": 1,
        "queued": 2,
        "held_back": 6,
        "cancelled": 0,
    }
    assert counts_of(view, view.tokens) == {
        "done": 1,
        "running": 1,
        "queued": 2,
        "held back": 6,
    }


async def test_a_function_is_drawn_by_the_names_and_scopes_of_its_operations(
    api: Api, bench: Bench
) -> None:
    await deploy(api)
    run_id = await bench.start("order")
    (lease,) = await bench.worker.lease()
    call = {"type": "map", "call": {"type": "call", "task": "resize"}, "payloads": [1, 2]}
    approval = {"type": "approval", "title": "Ship?"}
    operations = [
        {**STEP, "path": "price#1", "line": 3},
        {**STEP, "path": "gather#1.0/reserve#1"},
        {**STEP, "path": "gather#1.1/notify#1"},
        {**STEP, "path": "gather#1.1/inner/log#1"},
        {"path": "photos#1", "kind": "map", "state": "pending", "request": call, "line": 9},
        {"path": "ship#1", "kind": "approval", "state": "pending", "request": approval},
    ]
    stop = {"operations": operations, "waits": [["photos#1", "ship#1"]]}
    await bench.worker.finish(lease, stop)
    (item, _) = await bench.worker.lease()
    await bench.worker.finish(item, 1)

    tokens = {one["path"]: one for one in await bench.tokens(run_id)}
    graph = (await api.get(f"/api/runs/{run_id}/graph")).json()
    before = (await api.get(f"/api/runs/{run_id}/graph?at=1")).json()

    assert {path: one["state"] for path, one in tokens.items()} == {
        "price#1": "completed",
        "gather#1.0/reserve#1": "completed",
        "gather#1.1/notify#1": "completed",
        "gather#1.1/inner/log#1": "completed",
        "photos#1": "executing",
        "ship#1": "waiting_for_event",
    }
    assert tokens["gather#1.1/notify#1"]["path_id"] == "gather#1.1"
    assert tokens["ship#1"]["id"] == f"{run_id}.6"
    assert (tokens["ship#1"]["title"], tokens["ship#1"]["signal"]) == ("Ship?", "ship")
    assert (tokens["photos#1"]["items"], tokens["photos#1"]["items_ended"]) == (2, 1)
    journal = (await api.get(f"/api/runs/{run_id}/journal")).json()["items"]
    assert journal[-1]["text"] == "photos#1[0] done, 1 of 2"
    assert "photos#1" in journal[-1]["token_names"].values()
    edges = {(one["from"], one["to"]) for one in graph["transitions"]}
    assert edges == {
        ("price", "reserve"),
        ("price", "notify"),
        ("notify", "log"),
        ("reserve", "photos"),
        ("log", "photos"),
        ("photos", "ship"),
    }
    assert graph["function"]["state"] == "waiting"
    assert graph["function"]["waits_for"] == ["photos#1", "ship#1"]
    assert graph["function"]["lines"] == [9]
    assert before["nodes"] == []


async def test_an_operation_that_ends_by_the_clock_says_when(api: Api, bench: Bench) -> None:
    await deploy(api)
    run_id = await bench.start("order")
    (lease,) = await bench.worker.lease()
    now = api.clock.now_ms()
    requests: dict[str, Json] = {
        "nap#1": {"type": "sleep", "due_at_ms": now + 60_000},
        "paid#1": {"type": "event", "name": "paid", "timeout_ms": 5_000},
        "ship#1": {"type": "approval"},
    }
    operations = [
        {"path": path, "kind": request["type"], "state": "pending", "request": request}
        for path, request in requests.items()
    ]
    await bench.worker.finish(lease, {"operations": operations, "waits": [[*requests]]})

    due = {one["path"]: one["due_at_ms"] for one in await bench.tokens(run_id)}

    assert due == {"nap#1": now + 60_000, "paid#1": now + 5_000, "ship#1": None}


async def test_operations_that_a_run_left_open_are_cancelled_with_it(
    api: Api, bench: Bench
) -> None:
    await deploy(api)
    run_id = await bench.start("order")
    (lease,) = await bench.worker.lease()
    ask = {"name": "paid", "type": "event"}
    asking = {"path": "paid#1", "kind": "event", "state": "pending", "request": ask}
    await bench.worker.finish(lease, {"operations": [asking], "output": 1})

    (token,) = await bench.tokens(run_id)
    graph = (await api.get(f"/api/runs/{run_id}/graph")).json()

    assert (token["state"], graph["function"]["state"]) == ("cancelled", "ended")


# --- access -----------------------------------------------------------------------------------


async def test_a_worker_deploys_functions_and_reads_the_logs_of_those_it_runs(closed: Api) -> None:
    worker = await token(closed, "worker", queues=("own",))
    other = await token(closed, "worker", queues=("other",))
    submitter = await token(closed, "submit")
    await deploy(closed, headers=worker, queue="own")
    await deploy(closed, status=403, headers=other, queue="other")
    started = await closed.post("/api/runs", {"workflow": "order"}, headers=submitter)
    path = f"/api/runs/{started.json()['id']}/operations"
    body = {"worker_id": "w", "queues": ["own"]}
    registered = await closed.post("/api/workers", body, headers=worker)
    incarnation = registered.json()["incarnation"]

    before = await closed.get(path, headers=worker)
    await closed.post(
        "/api/workers/w/lease", {"incarnation": incarnation, "max": 1}, headers=worker
    )
    held = await closed.get(path, headers=worker)
    strange = await closed.get(path, headers=other)

    assert [one.status_code for one in (before, held, strange)] == [403, 200, 403]
    assert (await closed.get(path, headers=submitter)).status_code == 200


async def test_a_worker_cannot_put_definitions_that_are_data(closed: Api) -> None:
    worker = await token(closed, "worker")
    text = "name: one\ninitial_node: a\nnodes: {a: {}}\n"

    refused = await closed.client.put("/api/workflows/one", content=text, headers=worker)

    assert refused.status_code == 403
