"""Whatever one token stores, the others can store something, too. Over real sockets."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from rota.core import limits
from rota.core.quotas import LOCAL_OWNER
from tests.gateways.serving import Api, Json, served
from tests.gateways.tenants import Tenant, tenant
from tests.gateways.test_artifacts import files
from tests.gateways.test_quotas import head, raw, until

VALUES = 16
SHARE = VALUES - VALUES // limits.LEFT_PART
KIB = 1024
ARTIFACTS_BYTES = 1_600 * KIB  # of which one token has 1,400
FLOW = "{name: one, initial_node: a, nodes: {a: {task: work, queue: q}}}"
HOUR_MS = 3_600_000


@pytest.fixture
async def closed(tmp_path: Path) -> AsyncIterator[Api]:
    bounds: Any = {
        "max_values": VALUES,
        "max_values_bytes": VALUES * KIB,
        "max_artifacts_bytes": ARTIFACTS_BYTES,
    }
    async with served(tmp_path, zmq_port=None, require_token=True, **bounds) as running:
        yield running


# --- values -------------------------------------------------------------------------------------


async def put(who: Tenant, key: object, value: Json = 1) -> tuple[int, str | None, int | None]:
    """Put a value; the status, and of a refusal the setting and its limit."""
    answer = await who.call("PUT", f"/api/memory/{key}", {"value": value})
    body = answer.json()
    return answer.status_code, body.get("setting"), body.get("limit")


DONE = (200, None, None)


async def test_a_token_that_fills_its_share_of_values_leaves_some_to_others(closed: Api) -> None:
    greedy, other = await tenant(closed, "submit"), await tenant(closed, "worker")
    admin = await tenant(closed, "admin")

    assert {await put(greedy, key) for key in range(SHARE)} == {DONE}

    assert await put(greedy, "more") == (429, "max_values", SHARE)
    assert await put(greedy, 0, 2) == DONE  # in the place of another
    assert await put(other, "theirs") == DONE
    assert await put(other, "last") == (429, "max_values", VALUES - 1)
    assert await put(admin, "last") == DONE


async def test_a_token_that_fills_its_share_of_bytes_leaves_some_to_others(closed: Api) -> None:
    greedy, other = await tenant(closed, "submit"), await tenant(closed, "submit")

    assert await put(greedy, "a", "x" * (SHARE * KIB - 2)) == DONE

    assert await put(greedy, "b") == (429, "max_values_bytes", SHARE * KIB)
    assert await put(other, "b", "x" * KIB) == (429, "max_values_bytes", (VALUES - 1) * KIB)
    assert await put(other, "b", "x" * (KIB - 2)) == DONE


async def test_a_value_counts_for_the_token_that_put_it_last(closed: Api) -> None:
    one, two = await tenant(closed, "submit"), await tenant(closed, "submit")
    for key in range(SHARE):
        await put(one, key)

    assert await put(two, 0) == DONE
    assert await put(one, "more") == DONE
    assert (await put(one, 0))[0] == 429
    await two.call("DELETE", "/api/memory/1")
    assert await put(one, 0) == DONE


async def test_callers_without_a_token_have_one_share(tmp_path: Path) -> None:
    async with served(tmp_path, max_values=VALUES) as api:
        answers = [
            await api.client.put(f"/api/memory/{key}", json={"value": 1})
            for key in range(SHARE + 1)
        ]
        usage = api.node.coordinator.leading.pipeline._state.values

    assert [answer.status_code for answer in answers] == [*[200] * SHARE, 429]
    assert usage is not None
    assert usage.of(LOCAL_OWNER).rows == SHARE


# --- artifacts ----------------------------------------------------------------------------------


class Attaching:
    """A task of a run, leased to a worker of one token."""

    def __init__(self, who: Tenant, run_id: str, lease: Json) -> None:
        self.who = who
        self.run_id = run_id
        self.lease = lease

    @classmethod
    async def begin(cls, api: Api, who: Tenant, worker_id: str = "w1") -> "Attaching":
        run_id = await started_run(api)
        body = {"worker_id": worker_id, "heartbeat_interval_ms": HOUR_MS, "queues": ["q"]}
        worker = (await who.post("/api/workers", body)).json()
        path = f"/api/workers/{worker_id}/lease"
        leased = await who.post(path, {"incarnation": worker["incarnation"], "max": 1})
        return cls(who, run_id, leased.json()["leases"][0])

    def path(self, name: str) -> str:
        lease = self.lease
        place = f"/api/runs/{self.run_id}/artifacts/{name}"
        return f"{place}?task_id={lease['task_id']}&fence={lease['fence']}"

    async def attach(
        self, name: str, content: Any, who: Tenant | None = None
    ) -> tuple[int, str | None, int | None]:
        client, headers = self.who.api.client, (who or self.who).headers
        answer = await client.put(self.path(name), content=content, headers=headers)
        body = answer.json()
        return answer.status_code, body.get("setting"), body.get("limit")


async def started_run(api: Api) -> str:
    admin = await tenant(api, "admin")
    await api.client.put("/api/workflows/one", content=FLOW, headers=admin.headers)
    answer = await admin.post("/api/runs", {"workflow": "one", "input": {}})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


ATTACHED = (201, None, None)
REFUSED = (429, "max_artifacts_bytes", 1_400 * KIB)


async def test_a_token_that_fills_its_share_of_artifacts_leaves_some_to_others(
    closed: Api, tmp_path: Path
) -> None:
    greedy, other = await tenant(closed, "worker"), await tenant(closed, "worker")
    admin = await tenant(closed, "admin")
    task = await Attaching.begin(closed, greedy)
    assert await task.attach("a", b"x" * 1_390 * KIB) == ATTACHED

    async def in_pieces() -> AsyncIterator[bytes]:
        yield b"x" * 11 * KIB

    assert await task.attach("small", b"x" * 11 * KIB) == REFUSED
    assert await task.attach("large", b"x" * 100 * KIB) == REFUSED
    assert await task.attach("untold", in_pieces()) == REFUSED
    assert len(files(tmp_path)) == 1  # nothing is left of what was refused

    theirs = await Attaching.begin(closed, other, "w2")
    assert await theirs.attach("b", b"x" * 100 * KIB) == ATTACHED
    assert await theirs.attach("c", b"x" * 11 * KIB) == (
        429,
        "max_artifacts_bytes",
        1_500 * KIB,
    )
    assert await theirs.attach("c", b"x" * 50 * KIB, admin) == ATTACHED


async def test_an_artifact_beyond_the_share_is_refused_before_its_content_is_sent(
    closed: Api,
) -> None:
    who = await tenant(closed, "worker")
    task = await Attaching.begin(closed, who)
    async with AsyncExitStack() as stack:
        request = head("PUT", task.path("a"), who.headers, content_length=1_401 * KIB)
        connection = await raw(closed, stack, request)

        assert await connection.status() == 429


async def test_artifacts_that_one_token_is_sending_leave_room_for_those_of_others(
    tmp_path: Path,
) -> None:
    bounds: Any = {"max_artifacts_bytes": ARTIFACTS_BYTES, "max_artifact_bytes": 800 * KIB}
    piece = b"%x\r\n%b\r\n" % (600 * KIB, b"x" * 600 * KIB)
    async with (
        served(tmp_path, zmq_port=None, require_token=True, **bounds) as api,
        AsyncExitStack() as stack,
    ):
        greedy, other = await tenant(api, "worker"), await tenant(api, "worker")
        tasks = [await Attaching.begin(api, greedy), await Attaching.begin(api, other, "w2")]
        quota = api.node.quotas.uploads
        requests = [
            head("PUT", task.path("a"), task.who.headers, transfer_encoding="chunked") + piece
            for task in tasks
        ]
        for count in (1, 2):
            await raw(api, stack, requests[0])
            await until(lambda count=count: quota.taken == count * 600 * KIB)

        refused = await raw(api, stack, requests[0])
        assert await refused.status() == 429

        taken = await tasks[1].attach("b", b"x" * 100 * KIB)
        assert taken == ATTACHED
        assert quota.taken == 2 * 600 * KIB
    assert files(tmp_path) == []


# --- artifacts of jobs ----------------------------------------------------------------------------


async def test_an_artifact_of_a_job_comes_from_the_binding_that_started_it(closed: Api) -> None:
    starter = await tenant(closed, "worker", queues=("q",))
    rotated = await tenant(closed, "worker", queues=("q",))
    admin = await tenant(closed, "admin")
    others = [
        await tenant(closed, "worker", queues=("q", "r")),
        await tenant(closed, "worker"),
    ]
    run_id = await started_run(closed)
    (task,) = (await admin.get("/api/tasks?queue=q")).json()["items"]
    assert (await starter.post(f"/api/jobs/{task['id']}/start")).status_code == 200
    job = Attaching(starter, run_id, {"task_id": task["id"], "fence": 1})

    for size in (1, 64 * KIB):
        for other in others:
            assert (await job.attach("a", b"x" * size, other))[0] == 403
        for one in (starter, rotated, admin):
            assert await job.attach("a", b"x" * size, one) == ATTACHED


async def test_an_artifact_of_another_binding_is_refused_before_its_content_is_sent(
    closed: Api,
) -> None:
    starter = await tenant(closed, "worker", queues=("q",))
    other, admin = await tenant(closed, "worker", queues=("q", "r")), await tenant(closed, "admin")
    run_id = await started_run(closed)
    (task,) = (await admin.get("/api/tasks?queue=q")).json()["items"]
    await starter.post(f"/api/jobs/{task['id']}/start")
    job = Attaching(other, run_id, {"task_id": task["id"], "fence": 1})
    async with AsyncExitStack() as stack:
        request = head("PUT", job.path("a"), other.headers, content_length=64 * KIB)
        connection = await raw(closed, stack, request)

        assert await connection.status() == 403
