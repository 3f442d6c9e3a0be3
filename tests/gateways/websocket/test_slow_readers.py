"""A peer that does not read costs nobody else anything, and is let go in the end."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from rota import node
from rota.gateways.websocket import connection, protocol
from rota.gateways.websocket.connection import Connection
from rota.messages.sessions import Outgoing
from tests.gateways.serving import Api, served
from tests.gateways.websocket.deaf_peers import DeafPeer, deaf_peer
from tests.gateways.websocket.talking import PATIENCE_S, Peer, peer, until

pytestmark = pytest.mark.slow

LARGE = "x" * 500_000


async def closed(api: Api, left: int) -> None:
    """Wait until no more than so many sockets are open, for us and for the server."""
    server = api.node._server
    assert server is not None
    sockets = server.open.connections
    await until(
        lambda: (
            api.node.sockets.open_sockets <= left
            and sum(isinstance(one, protocol.SocketProtocol) for one in sockets) <= left
        )
    )


def connection_of(api: Api) -> Connection:
    (only,) = api.node.sockets._open
    return only


async def busy(api: Api, client: Peer, worker: Peer, count: int) -> None:
    """An ordinary client and an ordinary worker go on as if nothing were."""
    for number in range(count):
        await client.assign(f"t{number}", "coordinator:quick")
        await worker.given()
        await worker.complete(f"t{number}", "quick", "coordinator:quick")
        await client.pushed("TaskCompleted")


async def test_others_are_not_disturbed_by_a_peer_that_never_reads(
    api: Api, alice: Peer, bob: Peer
) -> None:
    await bob.register("quick", "coordinator:quick")
    async with deaf_peer(api, "deaf") as deaf:
        await deaf.say("register_worker", {"workerId": "deaf", "maxConcurrentTasks": 100})
        await deaf.say("subscribe", {"types": [], "after": 0})
        await alice.ask("get_status")
        for number in range(20):
            await alice.assign({"taskId": f"large-{number}", "payload": LARGE})

        async with asyncio.timeout(PATIENCE_S):
            await busy(api, alice, bob, 50)


async def test_a_peer_that_asks_and_never_reads_is_not_listened_to(api: Api) -> None:
    async with deaf_peer(api) as deaf:
        await connection_ready(api)
        only = connection_of(api)
        asking = asyncio.create_task(ask_for_ever(deaf))
        await until(lambda: not only.has_capacity)

        async with peer(api) as other:
            for _ in range(20):
                await other.ask("get_status")
        waiting = len(only._outbox)
        asking.cancel()

    assert waiting <= connection.BUSY_FRAMES + 1


async def connection_ready(api: Api) -> None:
    await until(lambda: api.node.sockets.open_sockets > 0)


async def ask_for_ever(deaf: DeafPeer) -> None:
    while True:
        await deaf.say("get_status", "x" * 100, id="y" * 2_000)


@pytest.fixture
def short_goodbyes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "CLOSE_TIMEOUT_S", 0.1)


async def test_a_peer_that_lets_too_much_wait_is_hung_up_on(api: Api, short_goodbyes: None) -> None:
    async with deaf_peer(api) as deaf:
        await deaf.say("subscribe")
        await connection_ready(api)
        only = connection_of(api)
        receipts: list[bool] = []

        while only.is_open:
            only.put(Outgoing(type="Event", payload=LARGE), receipts.append)

        assert receipts
        assert not any(receipts[-connection.BUSY_FRAMES :])
        await closed(api, left=0)
        await deaf.ended()


async def test_a_peer_that_answers_no_ping_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short_goodbyes: None
) -> None:
    monkeypatch.setattr(node, "PING_INTERVAL_S", 0.1)
    monkeypatch.setattr(node, "PING_TIMEOUT_S", 0.2)
    async with served(tmp_path, store="sqlite://", zmq_port=None) as api, peer(api) as lively:
        async with deaf_peer(api) as deaf:
            await deaf.say("register_worker", {"workerId": "w", "maxConcurrentTasks": 100})
            for number in range(20):
                await lively.assign({"taskId": f"t{number}", "payload": LARGE})

            await closed(api, left=1)
            await deaf.ended()

        assert await lively.quiet() == []


async def test_tasks_that_never_left_for_their_worker_go_back_at_once(
    api: Api, client: Peer, short_goodbyes: None
) -> None:
    for number in range(100):
        await client.assign({"taskId": f"t{number}", "payload": LARGE})
    async with deaf_peer(api) as deaf:
        await deaf.say("register_worker", {"workerId": "deaf", "maxConcurrentTasks": 100})
        await stuck(api)
        # A call for work may have been under way; what it brings is waited for, too.
        await until(lambda: api.node.coordinator.metrics().waiting == 0)
        deaf_socket = await stuck(api)
        unsent = len(deaf_socket._outbox)
        given = len((await client.ask("get_status"))["activeTasks"])
    await closed(api, left=1)

    async with asyncio.timeout(PATIENCE_S):
        while len((status := await client.ask("get_status"))["activeTasks"]) == given:
            pass

    # What the system had taken may have been read, for all we know; it waits for its worker.
    assert 0 < unsent < given
    assert len(status["activeTasks"]) == given - unsent
    assert status["queuedTasks"] == 100 - given + unsent


async def stuck(api: Api) -> Connection:
    """The socket that is not read from, once nothing more goes into it."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            for one in api.node.sockets._open:
                before = list(one._outbox)
                if before and not one.has_capacity:
                    for _ in range(1_000):
                        await asyncio.sleep(0)
                    if list(one._outbox) == before:
                        return one
            await asyncio.sleep(0)


async def test_a_stop_is_not_held_up_by_a_peer_that_never_reads(
    tmp_path: Path, short_goodbyes: None
) -> None:
    async with served(tmp_path, store="sqlite://", zmq_port=None) as api, deaf_peer(api) as deaf:
        await deaf.say("register_worker", {"workerId": "w", "maxConcurrentTasks": 100})
        async with peer(api) as other:
            for number in range(20):
                await other.assign({"taskId": f"t{number}", "payload": LARGE})
            api.node.ask_to_stop()
            with pytest.raises(ConnectionClosed) as ended:
                await other.receive()
            await closed(api, left=0)

    assert ended.value.rcvd is not None
    assert (ended.value.rcvd.code, ended.value.rcvd.reason) == (
        1012,
        "the coordinator is stopping",
    )


async def test_a_stop_in_the_moment_of_a_goodbye_goes_on(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    _take_close = protocol.SocketProtocol._take_close
    stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def stop_then(self: protocol.SocketProtocol, event: Any) -> None:
        _take_close(self, event)
        try:
            self.shutdown()  # as the server does with every socket that it still knows
        except Exception as error:  # noqa: BLE001 - whatever it is, it would have ended the stop
            stopped.set_exception(error)
        else:
            stopped.set_result(None)

    monkeypatch.setattr(protocol.SocketProtocol, "_take_close", stop_then)
    async with peer(api) as one:
        await one.socket.close()

    async with asyncio.timeout(PATIENCE_S):
        await stopped


async def test_a_message_over_the_limit_closes_the_socket_and_no_other(tmp_path: Path) -> None:
    async with (
        served(tmp_path, store="sqlite://", zmq_port=None, max_frame_bytes=2_000) as api,
        peer(api) as lively,
        peer(api) as client,
    ):
        await client.assign("x" * 100)
        await client.say("get_status", payload="x" * 2_000)
        with pytest.raises(ConnectionClosed) as ended:
            await client.receive()

        assert (await lively.ask("get_status"))["queuedTasks"] == 1
    assert ended.value.rcvd is not None
    assert ended.value.rcvd.code == 1009
