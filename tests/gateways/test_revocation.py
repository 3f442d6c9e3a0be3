"""What goes on under a token ends with it, over real sockets."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from rota.core.commands import RevokeToken
from rota.gateways.auth import authenticator, token_uses
from rota.messages.sessions import MSGPACK
from tests.gateways.serving import Api, Json, served
from tests.gateways.tenants import Tenant, tenant
from tests.gateways.websocket.streaming import StreamPeer
from tests.gateways.websocket.talking import address_of, peer, until

PATIENCE_S = 30.0  # the promise is five seconds; tests run on busy machines
LONG_MS = 60_000

Revoke = Callable[[Tenant], Awaitable[None]]


@pytest.fixture
async def closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Api]:
    """A coordinator that asks everybody for a token, and looks often which are still good."""
    monkeypatch.setattr(authenticator, "RELOAD_AFTER_S", 0.1)
    monkeypatch.setattr(token_uses, "CHECK_EVERY_S", 0.05)
    async with served(tmp_path, zmq_port=None, require_token=True) as running:
        yield running


async def revoked_here(who: Tenant) -> None:
    admin = await tenant(who.api, "admin")
    answer = await admin.call("DELETE", f"/api/tokens/{who.token_id}")
    assert answer.status_code == 200


async def revoked_elsewhere(who: Tenant) -> None:
    """By another process, which writes to the store and tells this one nothing."""
    await who.api.node.coordinator.execute(RevokeToken(who.token_id))


async def expired(who: Tenant) -> None:
    who.api.clock.turn(LONG_MS)


EVERY_END = pytest.mark.parametrize("end", [revoked_here, revoked_elsewhere, expired])


async def passing(api: Api, *scopes: str) -> Tenant:
    return await tenant(api, *scopes, expires_at_ms=api.clock.now_ms() + LONG_MS)


# --- event streams ------------------------------------------------------------------------------


@asynccontextmanager
async def following(who: Tenant) -> AsyncIterator[AsyncIterator[str]]:
    headers = {**who.headers, "accept": "text/event-stream"}
    async with who.api.client.stream("GET", "/api/events", headers=headers) as answer:
        assert answer.status_code == 200
        yield answer.aiter_lines()


@EVERY_END
async def test_an_event_stream_ends_with_its_token(closed: Api, end: Revoke) -> None:
    who, other = await passing(closed, "read"), await tenant(closed, "read")
    async with following(who) as lines, following(other) as others, asyncio.timeout(PATIENCE_S):
        assert await anext(lines) == "retry: 1000"
        assert await anext(others) == "retry: 1000"

        await end(who)
        told = [line async for line in lines if line]

        assert told[-2] == "event: end"
        assert json.loads(told[-1].removeprefix("data: "))["reason"] == "unauthorized"
        admin = await tenant(closed, "admin")
        await admin.post("/api/tasks", {"name": "x"})
        async for line in others:
            if line == "event: task-submitted":
                break


# --- sockets ------------------------------------------------------------------------------------


@EVERY_END
async def test_a_socket_ends_with_its_token(closed: Api, end: Revoke) -> None:
    who = await passing(closed, "read")
    async with peer(closed, additional_headers=who.headers) as client:
        await client.ask("subscribe", payload=["task-*"])

        await end(who)
        with pytest.raises(ConnectionClosed) as ended:
            await client.receive()

    assert ended.value.rcvd is not None
    assert (ended.value.rcvd.code, "revoked" in ended.value.rcvd.reason) == (1008, True)


async def test_a_streaming_worker_is_given_nothing_after_its_tokens_end(closed: Api) -> None:
    who, admin = await tenant(closed, "worker"), await tenant(closed, "admin")
    async with connect(
        address_of(closed),
        subprotocols=[Subprotocol(MSGPACK)],
        compression=None,
        additional_headers=who.headers,
    ) as socket:
        worker = StreamPeer(socket)
        await worker.pushed("SessionEstablished")
        await worker.open("w")
        await worker.credit(10)
        await worker.quiet()

        await revoked_here(who)
        await until(lambda: len(closed.node.sockets.services.streams) == 0)
        task = (await admin.post("/api/tasks", {"name": "x"})).json()
        with pytest.raises(ConnectionClosed) as ended:
            await worker.receive()

    assert ended.value.rcvd is not None
    assert ended.value.rcvd.code == 1008
    assert (await admin.get(f"/api/tasks/{task['id']}")).json()["state"] == "queued"


# --- long polls -----------------------------------------------------------------------------------


async def lease(who: Tenant, admin: Tenant) -> httpx.Response:
    worker = (await who.post("/api/workers", {"worker_id": "w"})).json()
    assert admin is not who
    body = {"incarnation": worker["incarnation"], "wait_ms": LONG_MS}
    return await who.post("/api/workers/w/lease", body)


async def result(who: Tenant, admin: Tenant) -> httpx.Response:
    task = (await admin.post("/api/tasks", {"name": "x", "delay_ms": LONG_MS})).json()
    return await who.get(f"/api/tasks/{task['id']}?wait_ms={LONG_MS}")


async def events(who: Tenant, admin: Tenant) -> httpx.Response:
    last = (await admin.get("/api/events?last=1")).json()["last_seq"]
    return await who.get(f"/api/events?after={last}&type=run-*&wait_ms={LONG_MS}")


async def lock(who: Tenant, admin: Tenant) -> httpx.Response:
    wish: Json = {"owner": "other", "ttl_ms": LONG_MS}
    await admin.post("/api/locks/l/acquire", wish)
    return await who.post("/api/locks/l/acquire", {**wish, "owner": "me", "wait_ms": LONG_MS})


@pytest.mark.parametrize("poll", [lease, result, events, lock])
@pytest.mark.parametrize("end", [revoked_here, revoked_elsewhere])
async def test_a_long_poll_is_answered_401_when_its_token_ends(
    closed: Api, poll: Callable[[Tenant, Tenant], Awaitable[httpx.Response]], end: Revoke
) -> None:
    who = await tenant(closed, "submit", "worker")
    admin = await tenant(closed, "admin")
    async with asyncio.timeout(PATIENCE_S):
        polling = asyncio.ensure_future(poll(who, admin))
        await until(lambda: closed.node.authenticator.uses.count == 1)

        await end(who)
        answer = await polling

    assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
    assert closed.node.authenticator.uses.count == 0


async def test_a_lock_that_was_waited_for_under_a_revoked_token_is_nobodys(closed: Api) -> None:
    who, admin = await tenant(closed, "submit"), await tenant(closed, "admin")
    async with asyncio.timeout(PATIENCE_S):
        polling = asyncio.ensure_future(lock(who, admin))
        await until(lambda: closed.node.authenticator.uses.count == 1)
        await revoked_here(who)
        await polling

        held = (await admin.get("/api/locks/l")).json()
        released = await admin.post(
            "/api/locks/l/release", {"owner": "other", "fence": held["fence"]}
        )
        free = await admin.post("/api/locks/l/acquire", {"owner": "third", "ttl_ms": LONG_MS})

    assert released.status_code == 200
    assert free.json()["acquired"] is True
