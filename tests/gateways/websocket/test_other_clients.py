"""The contract once more, as a client written with npm's `ws` sees it."""

import asyncio
import json

import msgspec
import pytest

from tests.gateways.serving import Api, Json
from tests.gateways.websocket.node_peers import NodeSocket, node_peer
from tests.gateways.websocket.talking import MAIN, golden

pytestmark = pytest.mark.slow

MANY = [{"to": MAIN, "type": "get_status", "id": "a1"}, {"type": "ping"}]

# What is said, and what follows from it, frame by frame; `S` stands for the session's address.
TRANSCRIPT: list[tuple[Json, list[Json]]] = [
    (
        {"to": MAIN, "type": "register_worker", "from": "worker-1", "id": "r"},
        [
            {
                "type": "register_workerResponse",
                "to": "client:coordinator-proxy",
                "from": "S",
                "payload": {"status": "registered", "workerId": "worker-1"},
                "replyTo": "r",
            }
        ],
    ),
    (
        {"to": MAIN, "type": "assign_task", "payload": "task-1", "id": "t1"},
        [
            {
                "type": "assign_taskResponse",
                "to": "client:coordinator-proxy",
                "from": "S",
                "payload": {"status": "assigned", "taskId": "task-1", "workerId": "worker-1"},
                "replyTo": "t1",
            },
            {
                "type": "process_task",
                "to": "worker-1",
                "from": "coordinator",
                "taskId": "task-1",
                "payload": None,
                "fence": 1,
                "name": "task",
                "queue": "main",
                "attempt": 1,
            },
        ],
    ),
    (
        {"to": MAIN, "type": "assign_task", "payload": {"taskId": "task-2"}, "id": "t2"},
        [
            {
                "type": "assign_taskResponse",
                "to": "client:coordinator-proxy",
                "from": "S",
                "payload": {"status": "queued", "taskId": "task-2", "position": 1},
                "replyTo": "t2",
            }
        ],
    ),
    (
        {"to": MAIN, "type": "get_status", "id": "s"},
        [
            {
                "type": "get_statusResponse",
                "to": "client:coordinator-proxy",
                "from": "S",
                "payload": {
                    "workers": ["worker-1"],
                    "queuedTasks": 1,
                    "activeTasks": [["task-1", "worker-1"]],
                },
                "replyTo": "s",
            }
        ],
    ),
    (
        {"to": "worker:worker-1", "type": "get_state", "id": "w"},
        [
            {
                "type": "get_stateResponse",
                "to": "client:ui",
                "from": "S",
                "payload": {
                    "workerId": "worker-1",
                    "currentTask": "task-1",
                    "processedCount": 0,
                },
                "replyTo": "w",
            }
        ],
    ),
    (
        {"to": MAIN, "type": "dance", "id": "d"},
        [
            {
                "type": "danceResponse",
                "to": "client:ui",
                "from": "S",
                "payload": {"error": "Unknown message type"},
                "replyTo": "d",
            }
        ],
    ),
    (
        {"to": "nowhere", "type": "get_status", "id": "n"},
        [
            {
                "type": "Error",
                "to": "client:ui",
                "from": "S",
                "payload": {"error": "Invalid 'to' field: nowhere", "code": "invalid_address"},
                "replyTo": "n",
            }
        ],
    ),
    (
        None,
        [
            {
                "type": "Error",
                "to": "client:ui",
                "from": "S",
                "payload": {"error": "Invalid message format", "code": "invalid_message"},
            }
        ],
    ),
]


async def test_a_conversation_goes_as_the_contract_says(api: Api) -> None:
    async with node_peer(api, "node") as client:
        for said, expected in TRANSCRIPT:
            await client.send(json.dumps(said))
            heard = [golden(await client.receive()) for _ in expected]
            here = f"session:{client.session_id}"
            assert heard == [
                {**one, "from": here if one["from"] == "S" else one["from"]} for one in expected
            ]

        done = {"taskId": "task-1", "workerId": "worker-1", "result": {"n": 1}}
        completed = await client.ask("task_complete", MAIN, done)
        told = await client.pushed("TaskCompleted")
        following = await client.given()
        await client.send(json.dumps(MANY))
        many = [await client.receive() for _ in MANY]
        await client.send(b"\x00\x01")
        assert await client.quiet() == []

    assert completed == {"status": "completed", "taskId": "task-1"}
    assert told["payload"] == {"taskId": "task-1", "result": {"n": 1}}
    assert following["taskId"] == "task-2"
    assert (many[0]["replyTo"], many[1]) == ("a1", {"type": "pong"})


async def test_one_worker_of_another_language_does_one_task(api: Api) -> None:
    async with node_peer(api) as worker, node_peer(api) as client:
        await worker.register("worker-1")
        asked = await client.say("process_task", "worker:worker-1", {"taskId": "task-1"})
        await worker.given()
        await worker.complete("task-1", "worker-1", result=[1])

        ended = await client.reply(asked)

    answer = {"status": "completed", "taskId": "task-1", "result": [1]}
    assert (ended["to"], ended["payload"]) == ("client:worker-proxy", answer)


async def test_message_pack_is_agreed_on(api: Api) -> None:
    async with node_peer(api, None, "rota.v1.msgpack") as client:
        ping = msgspec.msgpack.encode({"type": "ping"})
        await client.send(ping)

        assert await client.receive() == {"type": "pong"}


async def test_a_client_hears_why_its_socket_is_closed(api: Api) -> None:
    async with node_peer(api) as client:
        assert isinstance(client.socket, NodeSocket)
        api.node.sockets.close_all()
        async with asyncio.timeout(10):
            ended = await client.socket.line()

    assert ended == {"closed": 1012, "reason": "the coordinator is stopping"}
