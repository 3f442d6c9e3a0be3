import asyncio
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from tests.gateways.serving import Api, Worker, until


async def waiting_socket(api: Api, worker: Worker) -> asyncio.StreamWriter:
    """A long poll for work on a connection of its own, parked with the coordinator."""
    address = urlsplit(str(api.client.base_url))
    _, writer = await asyncio.open_connection(address.hostname, address.port)
    body = msgspec.json.encode({"incarnation": worker.incarnation, "max": 5, "wait_ms": 60_000})
    head = f"POST /api/workers/{worker.id}/lease HTTP/1.1\r\nhost: localhost\r\n"
    writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    await until(api, "rota_lease_calls_waiting", 1.0)
    return writer


# --- registering and beating ---------------------------------------------------------------------


async def test_a_worker_registers_and_is_told_what_it_needs_to_know(api: Api) -> None:
    body = {
        "worker_id": "w1",
        "node_id": "n1",
        "capabilities": ["gpu", "gpu"],
        "max_concurrent_tasks": 4,
        "tasks": ["resize"],
        "queues": ["images"],
        "heartbeat_interval_ms": 1_000,
        "group": "blue",
        "labels": {"zone": "b"},
    }

    answer = await api.post("/api/workers", body)

    assert answer.status_code == 201
    worker = answer.json()
    assert worker["id"] == "w1"
    assert worker["incarnation"] >= 1
    assert (worker["heartbeat_interval_ms"], worker["lease_ms"]) == (1_000, 3_000)
    assert worker["capabilities"] == ["gpu"]
    same = ("max_concurrent_tasks", "tasks", "queues", "group", "labels", "node_id")
    assert {name: worker[name] for name in same} == {name: body[name] for name in same}
    assert (worker["health"], worker["state"], worker["current_tasks"]) == ("healthy", "active", 0)


async def test_a_worker_without_an_id_is_given_one(api: Api) -> None:
    first = await api.post("/api/workers", {"node_id": "n"})
    second = await api.post("/api/workers", {"node_id": "n"})

    assert first.json()["id"].startswith("w-")
    assert first.json()["id"] != second.json()["id"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"max_concurrent_tasks": 0}, "max_concurrent_tasks"),
        ({"heartbeat_interval_ms": 99}, "heartbeat_interval_ms"),
        ({"capabilities": "gpu"}, "capabilities"),
        ({"worker_id": ""}, "worker_id"),
        ({"max_concurent_tasks": 1}, "max_concurent_tasks"),
    ],
)
async def test_a_bad_registration_names_its_field(api: Api, body: Any, field: str) -> None:
    answer = await api.post("/api/workers", body)

    assert (answer.status_code, answer.json()["field"]) == (400, field)


async def test_a_heartbeat_tells_what_to_cancel_and_what_is_lost(api: Api) -> None:
    worker = await api.register()
    kept, ended = await api.submit(), await api.submit()
    await worker.lease()
    await api.post(f"/api/tasks/{ended['id']}/cancel")

    running = [kept["id"], ended["id"], "0000000000000001", "nonsense"]
    answer = await worker.call(
        "heartbeat",
        {"incarnation": worker.incarnation, "running": running, "load": {"cpu": 0.5}},
    )

    beat = answer.json()
    assert (answer.status_code, beat["health"], beat["state"]) == (200, "healthy", "active")
    assert beat["cancel"] == [ended["id"]]
    assert {"0000000000000001", "nonsense"} <= set(beat["lost"])
    assert kept["id"] not in beat["lost"]
    assert (beat["heartbeat_interval_ms"], beat["lease_ms"]) == (5_000, 15_000)
    assert (await api.get(f"/api/workers/{worker.id}")).json()["load"] == {"cpu": 0.5}


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("heartbeat", {}),
        ("lease", {}),
        ("results", {"results": []}),
        ("progress", {"items": [{"task_id": "0" * 16, "fence": 1, "progress": 1}]}),
    ],
)
async def test_calls_of_a_worker_need_a_current_incarnation(
    api: Api, verb: str, body: dict[str, Any]
) -> None:
    old = await api.register()
    new = await api.register()

    stale = await old.call(verb, {**body, "incarnation": old.incarnation})
    unknown = await api.post(f"/api/workers/nobody/{verb}", {**body, "incarnation": 1})

    assert new.incarnation > old.incarnation
    assert (stale.status_code, stale.json()["code"]) == (409, "stale_incarnation")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "worker_not_found")
    assert "not found" in unknown.json()["detail"]


# --- leasing -----------------------------------------------------------------------------------


async def test_a_lease_has_what_a_handler_needs(api: Api) -> None:
    worker = await api.register()
    task = await api.submit(payload=[1, {"a": "ö"}], timeout_ms=5_000, max_attempts=2, key="k")

    (lease,) = await worker.lease()

    assert lease["task_id"] == task["id"]
    assert (lease["name"], lease["payload"]) == ("work", [1, {"a": "ö"}])
    assert (lease["attempt"], lease["max_attempts"], lease["fence"]) == (1, 2, 1)
    assert lease["deadline_ms"] == api.clock.now_ms() + 5_000
    assert (lease["queue"], lease["key"], lease["run_id"]) == ("default", "k", None)


async def test_leases_come_by_priority_and_no_more_than_asked_for(api: Api) -> None:
    worker = await api.register()
    for priority in (0, 5, 1):
        await api.submit(priority=priority)

    first, second = await worker.lease(most=2)

    assert (first["priority"], second["priority"]) == (5, 1)


async def test_a_lease_without_work_is_empty_when_the_wait_is_over(api: Api) -> None:
    worker = await api.register()

    assert await worker.lease(wait_ms=0) == []
    assert await worker.lease(wait_ms=1) == []


async def test_waiting_for_work_ends_with_the_commit_that_brings_it(api: Api) -> None:
    worker = await api.register()
    polling = asyncio.create_task(worker.lease(wait_ms=60_000))
    await until(api, "rota_lease_calls_waiting", 1.0)

    task = await api.submit()

    (lease,) = await asyncio.wait_for(polling, 10)
    assert lease["task_id"] == task["id"]


async def test_a_caller_that_hung_up_while_it_waited_is_given_nothing(api: Api) -> None:
    gone, there = await api.register("gone"), await api.register("there")
    writer = await waiting_socket(api, gone)

    writer.close()
    await until(api, "rota_http_requests_in_flight", 1.0)  # the look itself
    task = await api.submit()

    (lease,) = await there.lease(wait_ms=10_000)
    assert (lease["task_id"], lease["fence"]) == (task["id"], 1)


async def test_leases_that_nobody_will_hear_of_go_back_at_once(api: Api) -> None:
    gone, there = await api.register("gone"), await api.register("there")
    writer = await waiting_socket(api, gone)

    # The task is granted and the connection closed in whatever order the machine likes.
    submitting = asyncio.create_task(api.submit())
    writer.close()
    task = await submitting

    (lease,) = await there.lease(wait_ms=10_000)
    assert lease["task_id"] == task["id"]
    assert (await there.finish(lease)) == "accepted"
    assert (await api.task(task["id"]))["attempt"] == 1


@pytest.mark.parametrize(
    ("body", "field"),
    [({"max": 0}, "max"), ({"wait_ms": 60_001}, "wait_ms"), ({"wait": 1}, "wait")],
)
async def test_a_bad_lease_call_names_its_field(api: Api, body: Any, field: str) -> None:
    worker = await api.register()

    answer = await worker.call("lease", {"incarnation": worker.incarnation, **body})

    assert (answer.status_code, answer.json()["field"]) == (400, field)


async def test_a_lease_call_with_running_gets_again_what_was_lost(api: Api) -> None:
    worker = await api.register(max_concurrent_tasks=1)
    task = await api.submit()
    (lost,) = await worker.lease()
    body = {"incarnation": worker.incarnation, "running": ["nonsense", "0" * 16]}

    again = await worker.call("lease", body)
    known = await worker.call("lease", {**body, "running": [task["id"]]})

    assert again.json()["leases"] == [lost]
    assert known.json()["leases"] == []
