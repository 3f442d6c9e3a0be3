"""A worker id and a started job belong to the binding that came first, over real sockets."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.gateways.serving import Api, Json, served
from tests.gateways.tenants import Tenant, tenant


@pytest.fixture
async def closed(tmp_path: Path) -> AsyncIterator[Api]:
    """A coordinator that asks everybody for a token."""
    async with served(tmp_path, zmq_port=None, require_token=True) as running:
        yield running


async def register(who: Tenant, worker_id: str = "w1", **more: Json) -> tuple[int, Json]:
    answer = await who.post("/api/workers", {"worker_id": worker_id, **more})
    return answer.status_code, answer.json()


def attacks(worker: Json) -> list[tuple[str, str, Json]]:
    """All that can be said for a worker, under its current incarnation."""
    path, incarnation = f"/api/workers/{worker['id']}", worker["incarnation"]
    return [
        ("POST", f"{path}/heartbeat", {"incarnation": incarnation, "running": []}),
        ("POST", f"{path}/lease", {"incarnation": incarnation}),
        ("POST", f"{path}/results", {"incarnation": incarnation, "results": []}),
        ("POST", f"{path}/progress", {"incarnation": incarnation, "items": []}),
        ("POST", f"{path}/progress", []),
        ("DELETE", f"{path}?incarnation={incarnation}", None),
        ("DELETE", path, None),
    ]


# --- worker ids ---------------------------------------------------------------------------------


async def test_a_token_of_another_binding_cannot_take_over_a_worker_id(closed: Api) -> None:
    owner = await tenant(closed, "worker", queues=("a",))
    others = [
        await tenant(closed, "worker", queues=("b",)),
        await tenant(closed, "worker", queues=("a", "b")),
        await tenant(closed, "worker", worker_id="w1"),
        await tenant(closed, "worker"),
    ]
    _, worker = await register(owner)

    for other in others:
        status, refusal = await register(other)
        assert (status, refusal["code"]) == (403, "forbidden")
        assert "'a'" not in refusal["detail"]

    beat = {"incarnation": worker["incarnation"]}
    assert (await owner.post("/api/workers/w1/heartbeat", beat)).status_code == 200


async def test_a_token_of_another_binding_cannot_speak_for_a_worker(closed: Api) -> None:
    owner = await tenant(closed, "worker", queues=("a",))
    _, worker = await register(owner)
    others = [
        await tenant(closed, "worker", queues=("a", "b")),
        await tenant(closed, "worker", worker_id="w1"),
        await tenant(closed, "worker"),
    ]

    for other in others:
        for method, path, body in attacks(worker):
            answer = await other.call(method, path, body)
            assert answer.status_code == 403, path
        guess = await other.post("/api/workers/w1/heartbeat", {"incarnation": 10**6})
        assert (guess.status_code, "current" in guess.json()) == (403, False)

    for method, path, body in attacks(worker)[:-1]:
        assert (await owner.call(method, path, body)).status_code == 200, path


async def test_a_bound_token_cannot_take_the_worker_of_an_unbound_one(closed: Api) -> None:
    _, worker = await register(await tenant(closed, "worker"), queues=["a"])
    bound = await tenant(closed, "worker", queues=("a",))

    assert (await register(bound))[0] == 403
    for method, path, body in attacks(worker):
        assert (await bound.call(method, path, body)).status_code == 403, path


async def test_a_rotated_token_keeps_the_worker_id_and_its_leases(closed: Api) -> None:
    old = await tenant(closed, "worker", "submit", queues=("a", "b"))
    new = await tenant(closed, "worker", queues=("b", "a"))
    _, worker = await register(old)
    await old.post("/api/tasks", {"name": "x", "queue": "a"})
    (lease,) = (
        await old.post("/api/workers/w1/lease", {"incarnation": worker["incarnation"]})
    ).json()["leases"]
    await old.revoke()

    done = {"task_id": lease["task_id"], "fence": lease["fence"], "ok": True}
    report = {"incarnation": worker["incarnation"], "results": [done]}
    reported = await new.post("/api/workers/w1/results", report)

    assert reported.json()["outcomes"][0]["outcome"] == "accepted"
    assert (await register(new))[0] == 201


async def test_an_operator_may_take_over_any_worker_id(closed: Api) -> None:
    owner, admin = await tenant(closed, "worker", queues=("a",)), await tenant(closed, "admin")
    _, worker = await register(owner)

    beat = {"incarnation": worker["incarnation"]}
    assert (await admin.post("/api/workers/w1/heartbeat", beat)).status_code == 200
    assert (await register(admin))[0] == 201
    assert (await register(owner))[0] == 403


async def test_an_id_is_free_again_when_its_worker_has_left(closed: Api) -> None:
    owner = await tenant(closed, "worker", queues=("a",))
    other = await tenant(closed, "worker", queues=("b",))
    await register(owner)

    assert (await owner.call("DELETE", "/api/workers/w1")).status_code == 200

    assert (await register(other))[0] == 201


async def test_the_owner_of_a_worker_outlives_the_coordinator(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/rota.db"
    options = {"zmq_port": None, "require_token": True, "store": store}
    async with served(tmp_path, **options) as api:
        owner = await tenant(api, "worker", queues=("a",))
        other = await tenant(api, "worker", queues=("b",))
        await register(owner)

    async with served(tmp_path, **options) as again:
        owner.api = other.api = again
        assert (await register(other))[0] == 403
        assert (await register(owner))[0] == 201


# --- jobs ---------------------------------------------------------------------------------------


async def started(api: Api, starter: Tenant, queue: str = "a") -> str:
    admin = await tenant(api, "admin")
    job_id = (await admin.post("/api/tasks", {"name": "x", "queue": queue})).json()["id"]
    assert (await starter.post(f"/api/jobs/{job_id}/start")).status_code == 200
    return str(job_id)


async def test_a_job_is_ended_by_the_worker_that_started_it(closed: Api) -> None:
    holder = await tenant(closed, "worker", worker_id="y")
    other = await tenant(closed, "worker", worker_id="x")
    job_id = await started(closed, holder)

    for verb, body in (("complete", 1), ("fail", {"error": "no"})):
        refused = await other.post(f"/api/jobs/{job_id}/{verb}", body)
        assert (refused.status_code, refused.json()["success"]) == (403, False)

    assert (await holder.post(f"/api/jobs/{job_id}/complete", 1)).status_code == 200
    assert (await holder.post(f"/api/jobs/{job_id}/complete", 1)).status_code == 200
    assert (await other.post(f"/api/jobs/{job_id}/complete", 1)).status_code == 403


async def test_a_job_is_not_ended_by_a_token_of_another_binding(closed: Api) -> None:
    starter = await tenant(closed, "worker", queues=("a",))
    rotated = await tenant(closed, "worker", queues=("a",))
    others = [
        await tenant(closed, "worker", queues=("a", "b")),
        await tenant(closed, "worker", queues=("a",), worker_id="jobs-api"),
        await tenant(closed, "worker"),
    ]
    job_id = await started(closed, starter)

    for other in others:
        for verb, body in (("complete", 1), ("fail", {"error": "no"}), ("start", None)):
            answer = await other.post(f"/api/jobs/{job_id}/{verb}", body)
            assert answer.status_code == 403, verb

    assert (await rotated.post(f"/api/jobs/{job_id}/start")).status_code == 200
    assert (await rotated.post(f"/api/jobs/{job_id}/complete", 1)).status_code == 200


async def test_an_operator_may_end_any_job(closed: Api) -> None:
    starter, admin = await tenant(closed, "worker", worker_id="y"), await tenant(closed, "admin")
    job_id = await started(closed, starter)

    assert (await admin.post(f"/api/jobs/{job_id}/complete", 1)).status_code == 200


# --- members of services ------------------------------------------------------------------------

MEMBERS = "/api/services/feed/members"


async def join(who: Tenant, worker_id: str = "w1", incarnation: int = 1) -> int:
    body = {"workerId": worker_id, "maxShardCount": 4, "incarnation": incarnation}
    return (await who.post(MEMBERS, body)).status_code


async def test_a_member_belongs_to_the_binding_that_registered_it(closed: Api) -> None:
    owner = await tenant(closed, "worker", services=("feed",))
    rotated = await tenant(closed, "worker", services=("feed",))
    others = [
        await tenant(closed, "worker", services=("feed", "cart")),
        await tenant(closed, "worker", worker_id="w1"),
        await tenant(closed, "worker"),
    ]
    assert await join(owner) == 200

    beat = {"maxShardCount": 4, "assignedShards": [], "incarnation": 1, "generation": 1}
    for other in others:
        assert await join(other, incarnation=2) == 403
        assert (await other.post(f"{MEMBERS}/w1/heartbeat", beat)).status_code == 403
        assert (await other.call("DELETE", f"{MEMBERS}/w1")).status_code == 403
    told = await owner.post(f"{MEMBERS}/w1/heartbeat", {**beat, "assignedShards": [0, 1, 2, 3]})
    assert (told.json()["status"], told.json()["assignedShards"]) == ("ok", [0, 1, 2, 3])
    assert await join(rotated, incarnation=2) == 200


async def test_a_checkpoint_is_saved_by_the_binding_of_the_shards_owner(closed: Api) -> None:
    owner = await tenant(closed, "worker", services=("feed",))
    other = await tenant(closed, "worker", services=("feed", "cart"))
    assert await join(owner) == 200
    path, body = "/api/services/feed/shards/0/checkpoint", {"epoch": 1, "value": "at 7"}

    assert (await other.call("PUT", path, body)).status_code == 403
    assert (await owner.call("PUT", path, body)).status_code == 200
