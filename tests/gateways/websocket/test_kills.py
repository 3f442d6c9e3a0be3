"""Either side is killed outright; nothing that was answered is lost, and nothing runs twice."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from tests.cli.processes import Running
from tests.gateways.websocket.node_peers import NodeSocket, node_peer_at
from tests.gateways.websocket.talking import Peer

pytestmark = pytest.mark.slow


class Scene:
    """A coordinator in a process of its own, that comes back on the same file and port."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: Running | None = None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]

    async def start(self) -> None:
        store = f"sqlite:///{self._folder}/rota.db"
        flags = ("--port", str(self._port), "--zmq-port", "0", "--store", store, "--json")
        self._process = Running("up", *flags, folder=self._folder)
        await asyncio.to_thread(self._process.wait_for, '"url"')

    async def kill(self) -> None:
        assert self._process is not None
        self._process.signal(signal.SIGKILL)
        await asyncio.to_thread(self._process.ends)

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()

    def address(self, session: str) -> str:
        return f"ws://127.0.0.1:{self._port}/ws?session={session}"

    @asynccontextmanager
    async def peer(self, session: str) -> AsyncIterator[Peer]:
        async with connect(self.address(session)) as plug:
            one = Peer(plug)
            await one.pushed("SessionEstablished")
            yield one


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    one = Scene(tmp_path)
    await one.start()
    yield one
    one.stop()


async def test_a_coordinator_that_was_killed_has_forgotten_nothing(scene: Scene) -> None:
    async with scene.peer("client") as client, scene.peer("worker") as worker:
        await worker.register("w")
        await client.assign({"taskId": "t", "payload": {"n": 1}})
        await client.assign("u")
        before = await worker.given()
        await scene.kill()
        with pytest.raises(ConnectionClosed):
            await client.receive()
    await scene.start()

    async with scene.peer("client") as client, scene.peer("worker") as worker:
        back = await worker.register("w")
        again = await client.assign("t")
        done = await worker.complete("t", "w", fence=before["fence"], result="T")
        following = await worker.given()
        told = await client.pushed("TaskCompleted")

    assert back["holding"] == ["t"]
    assert (again["status"], again["duplicate"]) == ("assigned", True)
    assert done == {"status": "completed", "taskId": "t"}
    assert told["payload"] == {"taskId": "t", "result": "T"}
    assert (following["taskId"], following["fence"]) == ("u", 1)


async def test_an_end_that_was_answered_is_told_after_a_kill(scene: Scene) -> None:
    async with scene.peer("client") as client:
        await client.assign("t")
    async with scene.peer("worker") as worker:
        await worker.register("w")
        await worker.given()
        assert (await worker.complete("t", "w", result=[1]))["status"] == "completed"
        await scene.kill()
    await scene.start()

    async with scene.peer("client") as client, scene.peer("worker") as worker:
        told = await client.pushed("TaskCompleted")
        repeated = await worker.register("w"), await worker.complete("t", "w", result=[1])

    assert told["payload"] == {"taskId": "t", "result": [1]}
    assert repeated[1] == {"status": "completed", "taskId": "t"}


async def test_a_client_and_a_worker_that_were_killed_find_everything_again(scene: Scene) -> None:
    async with (
        node_peer_at(scene.address("client")) as client,
        node_peer_at(scene.address("worker")) as worker,
    ):
        await worker.register("w")
        await client.assign("t")
        await client.assign("u")
        await worker.given()
        for victim in (client, worker):
            assert isinstance(victim.socket, NodeSocket)
            os.kill(victim.socket.pid, signal.SIGKILL)

    async with scene.peer("worker") as worker:
        back = await worker.register("w")
        silence = await worker.quiet()
        done = await worker.complete("t", "w", result=1)
        following = await worker.given()
        async with scene.peer("client") as client:
            told = await client.pushed("TaskCompleted")
            await worker.complete("u", "w", result=2)
            last = await client.pushed("TaskCompleted")

    assert back["holding"] == ["t"]
    assert silence == []
    assert done["status"] == "completed"
    assert following["taskId"] == "u"
    assert [one["payload"]["taskId"] for one in (told, last)] == ["t", "u"]


async def test_a_coordinator_that_is_asked_to_stop_says_goodbye(scene: Scene) -> None:
    async with scene.peer("client") as client:
        assert scene._process is not None
        scene._process.signal(signal.SIGTERM)
        with pytest.raises(ConnectionClosed) as ended:
            await client.receive()
        code = await asyncio.to_thread(scene._process.ends)

    assert ended.value.rcvd is not None
    assert (ended.value.rcvd.code, ended.value.rcvd.reason) == (
        1012,
        "the coordinator is stopping",
    )
    assert code == 0
