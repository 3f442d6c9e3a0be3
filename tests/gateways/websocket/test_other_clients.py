"""What a client written with npm's `ws` sees beyond the conversations of the contract."""

import asyncio

import msgspec
import pytest

from tests.gateways.serving import Api
from tests.gateways.websocket.node_peers import NodeSocket, node_peer

pytestmark = pytest.mark.slow


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
