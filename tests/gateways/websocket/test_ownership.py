"""Workers on sockets belong to the binding that registered them, whatever a session is called."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.typing import Subprotocol

from rota.messages.sessions import MSGPACK
from tests.gateways.serving import Api, served
from tests.gateways.tenants import Tenant, tenant
from tests.gateways.websocket.streaming import StreamPeer
from tests.gateways.websocket.talking import Peer, address_of, peer


@pytest.fixture
async def closed(tmp_path: Path) -> AsyncIterator[Api]:
    """A coordinator that asks everybody for a token."""
    async with served(tmp_path, store="sqlite://", zmq_port=None, require_token=True) as running:
        yield running


def socket(who: Tenant, session: str | None = None) -> Any:
    return peer(who.api, session, additional_headers=who.headers)


@asynccontextmanager
async def stream(who: Tenant) -> AsyncIterator[StreamPeer]:
    async with connect(
        address_of(who.api),
        subprotocols=[Subprotocol(MSGPACK)],
        compression=None,
        additional_headers=who.headers,
    ) as opened:
        one = StreamPeer(opened)
        await one.pushed("SessionEstablished")
        yield one


async def test_a_socket_cannot_take_over_a_worker_of_another_binding(closed: Api) -> None:
    owner = await tenant(closed, "worker", queues=("main",))
    wider = await tenant(closed, "worker", queues=("main", "other"))
    unbound = await tenant(closed, "worker")
    async with socket(owner) as owning:
        await owning.register("w")
        for other in (wider, unbound):
            async with socket(other) as taking:
                assert (await taking.register("w"))["code"] == "forbidden"
                http = await other.post("/api/workers", {"worker_id": "w"})
                assert http.status_code == 403

        assert (await owning.ask("heartbeat", payload={"workerId": "w"}))["workerId"] == "w"


async def test_a_refused_registration_names_no_queue_of_others(closed: Api) -> None:
    owner = await tenant(closed, "worker", queues=("secret",))
    other = await tenant(closed, "worker", queues=("main",))
    async with socket(owner) as owning, socket(other) as taking:
        await owning.register("w", "coordinator:secret")

        refusal = await taking.register("w")

    assert refusal["code"] == "forbidden"
    assert "secret" not in refusal["error"]


async def test_a_stream_cannot_take_over_or_resume_a_worker_of_another_binding(
    closed: Api,
) -> None:
    owner = await tenant(closed, "worker", queues=("main",))
    wider = await tenant(closed, "worker", queues=("main", "other"))
    unbound = await tenant(closed, "worker")
    async with stream(owner) as owning:
        opened = await owning.open("w")
        for other in (wider, unbound):
            async with stream(other) as taking:
                wish = {"worker_id": "w", "incarnation": opened["incarnation"], "running": []}
                resumed = await taking.ask("stream_resume", payload=wish)
                assert (resumed["code"], (await taking.open("w"))["code"]) == ("forbidden",) * 2

        assert (await owning.beat())["health"] == "healthy"


async def test_the_same_name_under_another_binding_is_another_session(closed: Api) -> None:
    owner = await tenant(closed, "worker", "submit", queues=("main",))
    rotated = await tenant(closed, "submit", queues=("main",))
    other = await tenant(closed, "worker", "submit", queues=("main", "other"))
    admin, unbound = await tenant(closed, "admin"), await tenant(closed, "submit")
    async with (
        socket(owner, "name") as first,
        socket(rotated, "name") as second,
        socket(other, "name") as third,
        socket(admin, "name") as fourth,
        socket(unbound, "name") as fifth,
    ):
        ids = [one.session_id for one in (first, second, third, fourth, fifth)]

    assert ids[0] == ids[1]
    assert ids[3] == ids[4]
    assert len(set(ids)) == 3
    assert all(len(one) == 64 for one in ids)


async def test_a_session_of_another_binding_acts_for_no_worker_of_it(closed: Api) -> None:
    owner = await tenant(closed, "worker", "submit", queues=("main",))
    other = await tenant(closed, "worker", "submit", queues=("main", "other"))
    async with socket(owner, "name") as owning, socket(other, "name") as acting:
        await owning.register("w")
        await owning.assign("t")
        await owning.given()

        answers = [
            await acting.ask("heartbeat", payload={"workerId": "w"}),
            await acting.complete("t", "w", result="forged"),
            await acting.ask("task_failed", payload={"workerId": "w", "taskId": "t"}),
            await acting.ask(
                "report_progress", payload={"workerId": "w", "taskId": "t", "progress": 1}
            ),
            await acting.ask("unregister_worker", payload={"workerId": "w"}),
        ]
        assert {one["code"] for one in answers} == {"forbidden"}

        assert (await owning.complete("t", "w", result=1))["status"] == "completed"


async def told(client: Peer) -> list[str]:
    return [frame["type"] for frame in await client.quiet()]


async def test_a_session_of_another_binding_is_told_nothing_of_it(closed: Api) -> None:
    owner = await tenant(closed, "worker", "submit", queues=("main",))
    other = await tenant(closed, "worker", "submit", queues=("main", "other"))
    async with socket(owner, "name") as owning, socket(other, "name") as listening:
        await owning.register("w")
        await owning.assign("t")
        await owning.given()
        await owning.complete("t", "w", result="secret")
        await owning.pushed("TaskCompleted")

        assert await told(listening) == []


async def test_a_bound_token_is_told_nothing_of_workers_elsewhere(closed: Api) -> None:
    owner = await tenant(closed, "worker", "submit", queues=("secret",))
    other = await tenant(closed, "submit", queues=("main",))
    async with socket(owner) as owning, socket(other) as looking:
        await owning.register("w", "coordinator:secret")
        await owning.assign("t", "coordinator:secret")
        await owning.given()
        await owning.complete("t", "w", "coordinator:secret")

        state = await looking.ask("get_state", "worker:w")

    assert state == {"workerId": "w", "currentTask": None, "processedCount": 0}
