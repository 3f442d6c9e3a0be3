"""What a bound token reaches: its own queues and services, and nothing that operators do."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rota.core.access import Action
from rota.gateways.http.endpoints import ENDPOINTS
from tests.gateways.serving import Api, Json, served
from tests.gateways.tenants import Tenant, tenant

BINDINGS: list[dict[str, Any]] = [
    {"queues": ("a",)},
    {"services": ("feed",)},
    {"worker_id": "w1"},
]


@pytest.fixture
async def closed(tmp_path: Path) -> AsyncIterator[Api]:
    """A coordinator that asks everybody for a token."""
    async with served(tmp_path, zmq_port=None, require_token=True) as running:
        yield running


# --- tokens that make tokens ----------------------------------------------------------------------


@pytest.mark.parametrize("bound", [{"queues": ["a"]}, {"services": ["s"]}, {"worker_id": "w"}])
async def test_no_token_of_the_scope_admin_is_bound(closed: Api, bound: Json) -> None:
    admin = await tenant(closed, "admin")

    refused = await admin.post("/api/tokens", {"scopes": ["read", "admin"], **bound})
    made = await admin.post("/api/tokens", {"scopes": ["submit", "worker"], **bound})

    assert (refused.status_code, refused.json()["field"]) == (400, "scopes")
    assert made.status_code == 201


@pytest.mark.parametrize("bound", BINDINGS)
async def test_a_bound_admin_from_before_is_no_operator(closed: Api, bound: Json) -> None:
    """Whatever it was made for, nothing that an operator does is open to it."""
    admin, other = await tenant(closed, "admin"), await tenant(closed, "read")
    who = await tenant(closed, "admin", **bound)
    await admin.post("/api/workers", {"worker_id": "w1", "queues": ["a"]})
    operating = [one for one in ENDPOINTS if one.action is Action.OPERATE]
    assert len(operating) >= 11

    for endpoint in operating:
        path = endpoint.path
        for name, value in (
            ("{token_id}", other.token_id),
            ("{worker_id}", "w1"),
            ("{name}", "feed" if "services" in path else "a"),
            ("{queue}", "a"),
        ):
            path = path.replace(name, value)
        answer = await who.call(endpoint.method, path, {})
        assert answer.status_code == 403, (endpoint.method, path)
    scopes = (await who.get("/api/me")).json()["scopes"]
    assert sorted(scopes) == ["submit", "worker"]


async def test_no_token_makes_one_that_is_good_for_longer(closed: Api) -> None:
    until_ms = closed.clock.now_ms() + 60_000
    admin = await tenant(closed, "admin", expires_at_ms=until_ms)

    async def made(**more: Json) -> int:
        return (await admin.post("/api/tokens", {"scopes": ["admin"], **more})).status_code

    assert await made() == 403
    assert await made(expires_in_ms=60_001) == 403
    assert await made(expires_in_ms=60_000) == 201


# --- what all share -------------------------------------------------------------------------------


async def work_of(who: Tenant, queue: str) -> None:
    await who.post("/api/tasks", {"name": f"task-of-{queue}", "queue": queue})
    await who.post("/api/workers", {"worker_id": f"worker-of-{queue}", "queues": [queue]})


async def test_metrics_are_of_the_tokens_own_queues_and_services(closed: Api) -> None:
    admin = await tenant(closed, "admin")
    for queue in ("a", "secret"):
        await work_of(admin, queue)
    for service in ("feed", "hidden"):
        body = {"workerId": "m", "maxShardCount": 2}
        await admin.post(f"/api/services/{service}/members", body)
    await closed.node.coordinator.tick()

    whole = (await admin.get("/metrics")).text
    of_queue = (await (await tenant(closed, "read", queues=("a",))).get("/metrics")).text
    of_service = (await (await tenant(closed, "read", services=("feed",))).get("/metrics")).text

    for name in ('"a"', '"secret"', '"feed"', '"hidden"', "rota_http_answers", "process_"):
        assert name in whole
    assert 'rota_queue_depth{queue="a"} 1.0' in of_queue
    assert 'rota_workers{health="healthy",state="active"} 1.0' in of_queue
    for name in ("secret", "feed", "hidden", "rota_http_answers", "rota_commits", "process_"):
        assert name not in of_queue
    assert 'rota_service_members{service="feed"} 1.0' in of_service
    for name in ('"a"', "secret", "hidden", "rota_http_answers"):
        assert name not in of_service


async def test_series_are_of_the_tokens_own_queues(closed: Api) -> None:
    admin = await tenant(closed, "admin")
    for queue in ("a", "secret"):
        await work_of(admin, queue)

    async def charted(who: Tenant) -> list[Json]:
        return [one["queue"] for one in (await who.get("/api/series")).json()["items"]]

    assert None in await charted(admin)
    assert await charted(await tenant(closed, "read", queues=("a",))) == ["a"]
    assert await charted(await tenant(closed, "read", services=("feed",))) == []
    refused = await (await tenant(closed, "read", queues=("a",))).get("/api/series?queue=secret")
    assert refused.status_code == 403


async def test_the_overview_counts_the_tokens_own(closed: Api) -> None:
    admin = await tenant(closed, "admin")
    for queue in ("a", "secret"):
        await work_of(admin, queue)
    await admin.post("/api/services/hidden/members", {"workerId": "m", "maxShardCount": 2})
    await closed.node.coordinator.tick()
    who = await tenant(closed, "read", queues=("a",))

    seen = (await who.get("/api/overview")).json()

    assert (seen["workers"], seen["shards"]["services"]) == ({"healthy": 1}, 0)


async def test_workers_are_seen_by_tokens_for_one_of_their_queues(closed: Api) -> None:
    admin = await tenant(closed, "admin")
    for queue in ("a", "secret"):
        await work_of(admin, queue)
    await admin.post("/api/workers", {"worker_id": "of-all"})
    who = await tenant(closed, "read", queues=("a",))

    listed = (await who.get("/api/workers")).json()["items"]

    assert [one["id"] for one in listed] == ["of-all", "worker-of-a"]
    assert (await who.get("/api/workers/worker-of-a")).status_code == 200
    assert (await who.get("/api/workers/worker-of-secret")).status_code == 404


async def test_events_of_workers_are_told_as_the_workers_are_seen(closed: Api) -> None:
    admin, who = await tenant(closed, "admin"), await tenant(closed, "read", queues=("a",))
    for queue in ("a", "secret"):
        await work_of(admin, queue)
        await admin.post(f"/api/workers/worker-of-{queue}/drain")
    await closed.turn(1_000)
    for _ in range(7):  # degraded, but not taken for dead
        await closed.turn(2_000)
    for queue in ("a", "secret"):
        await admin.call("DELETE", f"/api/workers/worker-of-{queue}")

    async def told(whom: Tenant) -> set[tuple[str, str]]:
        items = (await whom.get("/api/events?type=worker-*")).json()["items"]
        return {(one["type"], one["subject"]) for one in items}

    kinds = {"worker-registered", "worker-state", "worker-health", "worker-unregistered"}
    assert {kind for kind, _ in await told(admin)} == kinds
    assert await told(who) == {(kind, "worker-of-a") for kind in kinds}


@pytest.mark.parametrize("bound", BINDINGS[:2])
async def test_what_all_share_is_not_shown_to_a_bound_token(closed: Api, bound: Json) -> None:
    admin, who = await tenant(closed, "admin"), await tenant(closed, "read", **bound)
    definition = {"name": "w", "initial_node": "n", "nodes": {"n": {"task": "t"}}}
    assert (await admin.call("PUT", "/api/workflows/w", definition)).status_code == 201

    for path in (
        "/api/workflows",
        "/api/workflows/w",
        "/api/workflows/w/versions/1",
        "/api/runs",
        "/api/system",
    ):
        assert (await admin.get(path)).status_code == 200, path
        assert (await who.get(path)).status_code == 403, path


# --- why tasks wait -------------------------------------------------------------------------------


async def reasons(who: Tenant, task_id: str) -> list[Json]:
    """Why the tasks of the caller wait, in its backlog and in the timeline of one task."""
    (waiting,) = (await who.get("/api/backlog")).json()["items"]
    timeline = (await who.get(f"/api/tasks/{task_id}/timeline")).json()
    return [waiting["why"], timeline["why"]]


async def until_backlog_says(operator: Tenant, code: str) -> None:
    """Wait until the backlog, which is read a moment before it is asked for, has this reason."""
    codes: set[str] = set()
    async with asyncio.timeout(30):
        while code not in codes:
            items = (await operator.get("/api/backlog")).json()["items"]
            codes = {one["why"]["code"] for one in items if one["queue"] == "a"}


async def test_why_a_task_waits_says_nothing_of_workers_of_other_tenants(closed: Api) -> None:
    admin = await tenant(closed, "admin")
    mine = await tenant(closed, "submit", "worker", queues=("a",))
    other = await tenant(closed, "submit", "worker", queues=("theirs",))
    task = {"name": "work", "requires": ["gpu"], "queue": "a"}
    task_id = (await mine.post("/api/tasks", task)).json()["id"]
    await other.post("/api/tasks", {"name": "secret", "queue": "theirs"})

    await until_backlog_says(admin, "no_workers")
    before = await reasons(mine, task_id)
    worker = {"queues": ["theirs"], "capabilities": ["gpu", "hidden"], "tasks": ["work", "secret"]}
    await other.post("/api/workers", {**worker, "worker_id": "their-worker"})
    await until_backlog_says(admin, "no_worker_for_queue")
    after = await reasons(mine, task_id)
    await mine.post("/api/workers", {"worker_id": "mine", "capabilities": ["cpu"]})
    await until_backlog_says(admin, "no_worker_with_capability")
    told = await reasons(mine, task_id)

    assert [one["code"] for one in before] == ["no_worker_for_queue"] * 2
    assert after == before
    assert [one["code"] for one in told] == ["no_worker_with_capability"] * 2
    assert not any(word in str([*after, *told]) for word in ("their", "hidden", "secret"))
