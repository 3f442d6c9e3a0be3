"""The contract's whole table, said by two libraries: Python's `websockets` and npm's `ws`."""

import json
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Protocol

import msgspec
import pytest

from rota.gateways.websocket.session.dispatcher import ROUTES
from tests.gateways.serving import Api, Json
from tests.gateways.websocket.conversations import (
    CONVERSATIONS,
    Close,
    Conversation,
    Hear,
    Open,
    Say,
)
from tests.gateways.websocket.node_peers import node_peer
from tests.gateways.websocket.talking import Peer, peer


class Connecting(Protocol):
    def __call__(
        self, api: Api, session: str | None = None, *protocols: str
    ) -> AbstractAsyncContextManager[Peer]: ...


def python_peer(
    api: Api, session: str | None = None, *protocols: str
) -> AbstractAsyncContextManager[Peer]:
    return peer(api, session, subprotocols=list(protocols) or None)


LIBRARIES = [
    pytest.param(python_peer, id="websockets"),
    pytest.param(node_peer, id="ws", marks=pytest.mark.slow),
]


class Room:
    """The sockets of one conversation."""

    def __init__(self, api: Api, connecting: Connecting, stack: AsyncExitStack) -> None:
        self._api = api
        self._connecting = connecting
        self._stack = stack
        self._peers: dict[str, Peer] = {}

    async def hold(self, conversation: Conversation) -> None:
        for step in conversation.steps:
            match step:
                case Open():
                    await self._open(step.socket, step.session)
                case Close():
                    await self._peers.pop(step.socket).socket.close()
                case Say():
                    await self._say(await self._peer(step.socket), step.frame)
                case Hear():
                    await _hear(await self._peer(step.socket), step)
        for name, one in self._peers.items():
            assert await one.quiet() == [], name

    async def _peer(self, name: str) -> Peer:
        return self._peers.get(name) or await self._open(name, None)

    async def _open(self, name: str, session: str | None) -> Peer:
        opened = await self._stack.enter_async_context(self._connecting(self._api, session))
        self._peers[name] = opened
        return opened

    async def _say(self, one: Peer, frame: Json) -> None:
        await one.send(frame if isinstance(frame, str | bytes) else json.dumps(frame))


async def _hear(one: Peer, step: Hear) -> None:
    heard = [await one.receive() for _ in step.frames]
    missing = []
    for expected in step.frames:
        wanted = _in_session(expected, one.session_id)
        if wanted in heard:
            heard.remove(wanted)
        else:
            missing.append(wanted)
    assert (missing, heard) == ([], []), step.socket


def _in_session(frame: Json, session_id: str) -> Json:
    return {**frame, "from": f"session:{session_id}"} if frame.get("from") == "S" else frame


@pytest.mark.parametrize("connecting", LIBRARIES)
@pytest.mark.parametrize("conversation", CONVERSATIONS, ids=lambda one: one.name)
async def test_a_conversation_goes_as_the_contract_says(
    api: Api, connecting: Connecting, conversation: Conversation
) -> None:
    async with AsyncExitStack() as stack:
        await Room(api, connecting, stack).hold(conversation)


@pytest.mark.parametrize("connecting", LIBRARIES)
async def test_the_same_is_said_in_message_pack(api: Api, connecting: Connecting) -> None:
    async with connecting(api, None, "rota.v1.msgpack") as client:
        said = [
            {"to": "coordinator:main", "type": "register_worker", "from": "w", "id": 1},
            {
                "to": "coordinator:main",
                "type": "assign_task",
                "payload": {"taskId": "t", "payload": {"a": [1, None]}},
                "id": [2],
            },
        ]
        await client.send(msgspec.msgpack.encode(said))
        heard = [await client.receive() for _ in range(3)]
        done = {"taskId": "t", "workerId": "w", "result": {"b": "x"}}
        completion = {"to": "coordinator:main", "type": "task_complete", "payload": done}
        await client.send(msgspec.msgpack.encode(completion))
        ended = [await client.receive() for _ in range(2)]

    assert [one["payload"] for one in heard] == [
        {"status": "registered", "workerId": "w"},
        {"status": "assigned", "taskId": "t", "workerId": "w"},
        {"a": [1, None]},
    ]
    assert {one["type"]: one["payload"] for one in ended} == {
        "task_completeResponse": {"status": "completed", "taskId": "t"},
        "TaskCompleted": {"taskId": "t", "result": {"b": "x"}},
    }


def test_every_row_of_the_table_is_spoken() -> None:
    said = [step.frame for one in CONVERSATIONS for step in one.steps if isinstance(step, Say)]
    envelopes = [frame for frame in said if isinstance(frame, dict)]
    spoken = {(one.get("to", "").partition(":")[0], one["type"]) for one in envelopes}
    of_any = {kind for _, kind in spoken}

    # Streams are the SDK's own, and packed.
    rows = [route for route in ROUTES if not route.type.startswith("stream_")]
    unspoken = [
        (route.kind, route.type)
        for route in rows
        if not (
            (route.kind, route.type) in spoken or (route.kind == "any" and route.type in of_any)
        )
    ]
    assert unspoken == []
