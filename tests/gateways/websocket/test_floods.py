"""Peers that send without end, or read nothing, cost a bounded amount and are let go."""

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from websockets.frames import Frame, Opcode

from rota.core import limits
from rota.gateways.websocket import pinging, protocol
from tests.gateways.serving import Api, served
from tests.gateways.websocket.deaf_peers import DeafPeer, deaf_peer
from tests.gateways.websocket.talking import PATIENCE_S, Peer, until
from tests.gateways.websocket.test_wire import Wire, frame, wire_to

pytestmark = pytest.mark.slow

PING = Frame(Opcode.PING, b"x" * 125).serialize(mask=True)
HIGH_WATER_BYTES = 64 * 1024  # from here on the transport asks for no more to be written
CLOSE_BYTES = 200  # a goodbye with its reason


def sockets_of(api: Api) -> list[protocol.SocketProtocol]:
    server = api.node._server
    assert server is not None
    found = server.open.connections
    return [one for one in found if isinstance(one, protocol.SocketProtocol)]


async def ping_for_ever(deaf: DeafPeer) -> None:
    try:
        while True:
            await deaf.write(PING * 500)
    except ConnectionError:
        pass  # hung up on, as it should be


async def closing(wire: Wire) -> tuple[int, str]:
    """Wait for the goodbye; its code and reason."""
    async with asyncio.timeout(PATIENCE_S):
        while (found := await wire.frame()).opcode is not Opcode.CLOSE:
            pass
    return int.from_bytes(found.data[:2]), bytes(found.data[2:]).decode()


async def test_answers_to_pings_that_are_never_read_do_not_pile_up(
    api: Api, alice: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_SOCKET_CONTROLS", 1_000_000_000)
    async with deaf_peer(api) as deaf:
        await until(lambda: len(sockets_of(api)) == 2)
        pinging_task = asyncio.create_task(ping_for_ever(deaf))
        await until(lambda: any(not one.writable.is_set() for one in sockets_of(api)))
        (stuck,) = [one for one in sockets_of(api) if not one.writable.is_set()]
        most = 0

        for _ in range(20):
            await alice.ask("get_status")
            most = max(most, stuck.transport.get_write_buffer_size())

        pinging_task.cancel()
        assert most <= HIGH_WATER_BYTES + len(PING) + CLOSE_BYTES


async def test_a_peer_that_pings_and_never_reads_is_let_go(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_SOCKET_CONTROLS", 1_000_000_000)
    monkeypatch.setattr(limits, "MAX_SOCKET_UNREAD_MS", 500)
    monkeypatch.setattr(pinging, "ROUND_S", 0.05)
    monkeypatch.setattr(protocol, "CLOSE_TIMEOUT_S", 0.1)
    async with deaf_peer(api) as deaf:
        await until(lambda: len(sockets_of(api)) == 1)

        async with asyncio.timeout(PATIENCE_S):
            await ping_for_ever(deaf)

        await until(lambda: not sockets_of(api))


async def test_a_ping_that_had_to_wait_is_answered_when_the_peer_reads_again(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with wire_to(api) as wire:
        await wire.frame()  # the greeting
        (served_one,) = sockets_of(api)
        served_one.pause_writing()
        wire.write(frame(b"first", Opcode.PING), frame(b"last", Opcode.PING))
        await until(lambda: b"last" in served_one._pong)

        served_one.resume_writing()

        async with asyncio.timeout(PATIENCE_S):
            answer = await wire.frame()
        assert (answer.opcode, bytes(answer.data)) == (Opcode.PONG, b"last")


async def test_control_frames_without_end_are_answered_with_a_goodbye(
    api: Api, alice: Peer
) -> None:
    async with wire_to(api) as wire:
        wire.write(frame(b"", Opcode.PING) * (2 * limits.MAX_SOCKET_CONTROLS + 1))

        assert await closing(wire) == (1008, "too many control frames")

    await alice.ask("get_status")


@pytest.mark.parametrize("size", [0, 2])
async def test_a_message_in_very_many_frames_is_answered_with_a_goodbye(
    api: Api, size: int
) -> None:
    piece = frame(b"x" * size, Opcode.CONT, fin=False)
    async with wire_to(api) as wire:
        wire.write(frame(b"x", Opcode.TEXT, fin=False), piece * limits.MAX_SOCKET_FRAGMENTS)

        assert await closing(wire) == (1008, "a message in too many frames")


async def test_a_fragmented_message_over_the_size_is_answered_with_a_goodbye(
    tmp_path: Path,
) -> None:
    async with served(tmp_path, store="sqlite://", zmq_port=None, max_frame_bytes=10_000) as api:
        piece = frame(b"x" * 1_000, Opcode.CONT, fin=False)
        async with wire_to(api) as wire:
            wire.write(frame(b"x", Opcode.TEXT, fin=False), piece * 11)

            code, _ = await closing(wire)
            assert code == 1009


@pytest.mark.parametrize("cut", [True, False])
async def test_a_message_that_does_not_come_to_its_end_is_answered_with_a_goodbye(
    api: Api, monkeypatch: pytest.MonkeyPatch, *, cut: bool
) -> None:
    monkeypatch.setattr(limits, "MAX_SOCKET_MESSAGE_MS", 200)
    monkeypatch.setattr(pinging, "ROUND_S", 0.05)
    async with wire_to(api) as wire:
        if cut:
            wire.write(frame(b"x" * 1_000, Opcode.BINARY)[:-1])
        else:
            wire.write(frame(b"x", Opcode.TEXT, fin=False))

        assert await closing(wire) == (1008, "a message that does not come to its end")


async def test_messages_that_have_only_begun_share_one_limit(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_SOCKETS_PARTIAL_BYTES", 100_000)
    monkeypatch.setattr(pinging, "ROUND_S", 0.05)
    async with wire_to(api) as large, wire_to(api) as small:
        small.write(frame(b"x" * 40_000, Opcode.BINARY)[:-1])
        large.write(frame(b"x" * 80_000, Opcode.TEXT, fin=False))

        code, reason = await closing(large)
        assert (code, reason.partition(",")[0]) == (1008, "too many messages have begun")

        large.writer.close()
        await until(lambda: len(sockets_of(api)) == 1)


@pytest.mark.parametrize(
    "more",
    [
        "".join(f"x-{number}: y\r\n" for number in range(1_000)),
        f"x-long: {'y' * 9_000}\r\n",
        f"sec-websocket-protocol: {','.join(['x'] * 3_000)}\r\n",
        "sec-websocket-key: again\r\n",
        "sec-websocket-version: 99\r\n",
    ],
)
async def test_a_handshake_beyond_its_limits_is_refused_and_is_no_mistake_of_ours(
    api: Api, more: str
) -> None:
    parts = urlsplit(str(api.client.base_url))
    head = (
        f"GET /ws HTTP/1.1\r\nhost: {parts.netloc}\r\nupgrade: websocket\r\n"
        "connection: upgrade\r\nsec-websocket-version: 13\r\n"
        f"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n{more}\r\n"
    )
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        writer.write(head.encode())
        async with asyncio.timeout(PATIENCE_S):
            answer = await reader.readline()
    finally:
        writer.close()

    assert answer.startswith(b"HTTP/1.1 "), answer
    assert answer.split()[1] in {b"101", b"400", b"426", b"431"}
    assert (await api.get("/health")).status_code == 200
