"""Who may open a socket, and what may they say?"""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from rota.core.access import AccessToken, Scope
from rota.core.commands import AddToken, RevokeToken
from rota.gateways.auth.authenticator import hash_of, new_secret
from tests.gateways.serving import Api, Json, served
from tests.gateways.websocket.talking import MAIN, Peer, address_of, peer

Headers = dict[str, str]


@pytest.fixture
async def closed(tmp_path: Path) -> AsyncIterator[Api]:
    """A coordinator that asks everybody for a token."""
    async with served(tmp_path, store="sqlite://", zmq_port=None, require_token=True) as running:
        yield running


async def token(api: Api, *scopes: str, **bound: Any) -> tuple[str, Headers]:
    secret = new_secret()
    added = AccessToken(
        id=f"t-{secret[5:12]}",
        hash=hash_of(secret),
        name="-".join(scopes),
        scopes=tuple(map(Scope, scopes)),
        created_at_ms=0,
        **bound,
    )
    await api.node.coordinator.execute(AddToken(added))
    api.node.authenticator.forget_tokens()
    return added.id, {"authorization": f"Bearer {secret}"}


async def refusal(api: Api, headers: Headers, path: str = "/ws") -> tuple[int, str]:
    address = address_of(api).removesuffix("/ws") + path
    with pytest.raises(InvalidStatus) as refused:
        await connect(address, additional_headers=headers)
    answer = refused.value.response
    assert answer.headers["content-type"] == "application/problem+json"
    return answer.status_code, json.loads(answer.body)["code"]


# --- the door -----------------------------------------------------------------------------------


async def test_a_socket_needs_a_token_where_calls_need_one(closed: Api) -> None:
    _, headers = await token(closed, "admin")

    assert await refusal(closed, {}) == (401, "unauthorized")
    assert await refusal(closed, {"authorization": "Bearer rota_no"}) == (401, "unauthorized")
    assert await refusal(closed, {"authorization": "Basic abc"}) == (401, "unauthorized")
    async with peer(closed, additional_headers=headers) as client:
        assert (await client.ask("get_status"))["workers"] == []


async def test_a_page_from_elsewhere_may_not_open_a_socket(api: Api) -> None:
    own = str(api.client.base_url).rstrip("/")

    for origin in ("https://evil.example", "http://127.0.0.1:1", "null"):
        assert await refusal(api, {"origin": origin}) == (403, "forbidden")
    async with peer(api, additional_headers={"origin": own}) as client:
        assert await client.quiet() == []


async def test_a_name_that_was_pointed_at_us_opens_no_socket(api: Api) -> None:
    upgrade = {
        "host": "rebound.example",
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
        "sec-websocket-version": "13",
    }
    async with httpx.AsyncClient(base_url=api.client.base_url) as client:
        answer = await client.get("/ws", headers=upgrade)

    assert answer.status_code == 403


async def test_there_is_one_path_for_sockets(api: Api) -> None:
    assert await refusal(api, {}, "/api/tasks") == (404, "not_found")
    assert await refusal(api, {}, f"/ws?session={'x' * 201}") == (400, "invalid")


async def test_no_more_sockets_than_allowed_are_open_at_once(tmp_path: Path) -> None:
    async with (
        served(tmp_path, store="sqlite://", zmq_port=None, max_sockets=2) as api,
        peer(api),
        peer(api),
    ):
        assert await refusal(api, {}) == (429, "too_many")
        assert api.node.sockets.open_sockets == 2


async def test_a_socket_ends_with_its_token(closed: Api) -> None:
    token_id, headers = await token(closed, "admin")
    async with peer(closed, additional_headers=headers) as client:
        await closed.node.coordinator.execute(RevokeToken(token_id))
        closed.node.authenticator.forget_tokens()

        await closed.node.sockets.send_heartbeats()

        with pytest.raises(ConnectionClosed) as ended:
            await client.receive()
    assert ended.value.rcvd is not None
    assert ended.value.rcvd.code == 1008


# --- what may be said ---------------------------------------------------------------------------

SAID: dict[str, tuple[str, str, Json]] = {
    "register_worker": ("work", MAIN, {"workerId": "w"}),
    "task_complete": ("work", MAIN, {"workerId": "w", "taskId": "t"}),
    "task_failed": ("work", MAIN, {"workerId": "w", "taskId": "t"}),
    "report_progress": ("work", MAIN, {"workerId": "w", "taskId": "t", "progress": 1}),
    "heartbeat": ("work", MAIN, {"workerId": "w"}),
    "unregister_worker": ("work", MAIN, {"workerId": "w"}),
    "assign_task": ("submit", MAIN, "t"),
    "process_task": ("submit", "worker:w", "t"),
    "get_status": ("read", MAIN, None),
    "get_state": ("read", "worker:w", None),
    "subscribe": ("read", MAIN, None),
    "unsubscribe": ("read", MAIN, None),
}
ALLOWED = {
    "admin": {"work", "submit", "read"},
    "submit": {"submit", "read"},
    "read": {"read"},
    "worker": {"work"},
}


@pytest.mark.parametrize("scope", sorted(ALLOWED))
async def test_each_scope_opens_what_it_says_and_nothing_else(closed: Api, scope: str) -> None:
    _, headers = await token(closed, scope)

    async with peer(closed, additional_headers=headers) as client:
        refused = set()
        for kind, (_, to, payload) in SAID.items():
            if (await client.ask(kind, to, payload)).get("code") == "forbidden":
                refused.add(kind)

    assert refused == {
        kind for kind, (action, _, _) in SAID.items() if action not in ALLOWED[scope]
    }


async def test_a_token_for_one_queue_reaches_no_other(closed: Api) -> None:
    _, headers = await token(closed, "submit", "worker", queues=("main",))

    async with peer(closed, additional_headers=headers) as client:
        assert (await client.assign("t"))["status"] == "queued"
        answers = [
            await client.assign("t", "coordinator:other"),
            await client.ask("get_status", "coordinator:other"),
            await client.register("w", "coordinator:other"),
        ]

    assert {one["code"] for one in answers} == {"forbidden"}


async def test_a_token_for_one_worker_is_no_other(closed: Api) -> None:
    _, headers = await token(closed, "worker", worker_id="w1")

    async with peer(closed, additional_headers=headers) as client:
        assert (await client.register("w1"))["status"] == "registered"
        assert (await client.register("w2"))["code"] == "forbidden"
        assert (await client.complete("t", "w2"))["code"] == "forbidden"


async def told(client: Peer) -> list[str]:
    return [frame["type"] for frame in await client.quiet()]


async def test_the_name_of_a_session_opens_no_door(closed: Api) -> None:
    """Who may not look at a task is not told of it, whatever session it claims to be."""
    _, admin = await token(closed, "admin")
    _, elsewhere = await token(closed, "read", queues=("other",))
    _, worker = await token(closed, "worker")
    async with (
        peer(closed, "name", additional_headers=admin) as owner,
        peer(closed, "name", additional_headers=elsewhere) as stranger,
        peer(closed, "name", additional_headers=worker) as doer,
    ):
        await doer.register("w")
        await owner.assign("t")
        await doer.given()
        await doer.complete("t", "w", result="secret")
        await owner.pushed("TaskCompleted")

        assert await told(stranger) == []
        assert await told(doer) == []


async def test_events_are_told_to_those_who_may_see_them(closed: Api) -> None:
    _, admin = await token(closed, "admin")
    _, bound = await token(closed, "read", queues=("main",))
    async with (
        peer(closed, additional_headers=admin) as everybody,
        peer(closed, additional_headers=bound) as client,
    ):
        await client.ask("subscribe", MAIN, ["task-*", "token-*"])
        await everybody.assign("t", "coordinator:other")
        await token(closed, "read")
        await everybody.assign("t")

        event = (await client.pushed("Event"))["payload"]

    assert (event["type"], event["data"]["queue"]) == ("task-submitted", "main")
