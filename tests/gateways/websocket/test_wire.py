"""What comes in over the wire in ways that no client library would choose."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from rota.messages.sessions import MSGPACK
from tests.gateways.serving import Api
from tests.gateways.websocket.talking import MAIN, PATIENCE_S, address_of

PING = {"type": "ping"}


def packed(kind: str, number: int | None = None, payload: Any = None) -> bytes:
    return msgspec.msgpack.encode({"to": MAIN, "type": kind, "id": number, "payload": payload})


def frame(data: bytes, opcode: Opcode = Opcode.BINARY, *, fin: bool = True) -> bytes:
    return Frame(opcode, data, fin=fin).serialize(mask=True)


class Wire:
    """A socket onto which bytes are written as they are."""

    def __init__(
        self,
        protocol: ClientProtocol,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._protocol = protocol
        self._reader = reader
        self._heard: list[Any] = []
        self.writer = writer

    def write(self, *frames: bytes) -> None:
        """All of it in one go."""
        self.writer.write(b"".join(frames))

    async def frame(self) -> Frame:
        while not self._heard:
            data = await self._reader.read(65_536)
            if data:
                self._protocol.receive_data(data)
            else:
                self._protocol.receive_eof()
            self._heard += self._protocol.events_received()
            assert self._heard or data, "the connection is gone"
        found: Frame = self._heard.pop(0)
        return found

    async def replies(self, count: int) -> list[tuple[str, Any]]:
        """The next messages that are replies, by type and what they reply to."""
        found: list[tuple[str, Any]] = []
        while len(found) < count:
            one = msgspec.msgpack.decode((await self.frame()).data)
            if one["type"] == "pong" or "replyTo" in one:
                found.append((one["type"], one.get("replyTo")))
        return found


@asynccontextmanager
async def wire_to(api: Api) -> AsyncIterator[Wire]:
    uri = parse_uri(address_of(api))
    protocol = ClientProtocol(uri, subprotocols=[Subprotocol(MSGPACK)])
    reader, writer = await asyncio.open_connection(uri.host, uri.port)
    try:
        async with asyncio.timeout(PATIENCE_S):
            protocol.send_request(protocol.connect())
            writer.write(b"".join(protocol.data_to_send()))
            wire = Wire(protocol, reader, writer)
            await wire.frame()  # the answer to the handshake
            yield wire
    finally:
        writer.close()


async def opened(wire: Wire) -> None:
    """Have a stream open."""
    wire.write(frame(packed("stream_open", 0, {"worker_id": "w", "max_concurrent_tasks": 10})))
    assert await wire.replies(1) == [("stream_openResponse", 0)]


async def test_messages_that_come_in_one_piece_are_all_answered_in_their_order(api: Api) -> None:
    async with wire_to(api) as wire:
        await opened(wire)
        # Those in the middle are answered where they stand, if nothing before them waits.
        wire.write(
            frame(packed("get_status", 1)),
            frame(packed("stream_credit", 2, {"free": "many"})),
            frame(packed("get_status", 3)),
            frame(packed("stream_credit", 4, {"free": "many"})),
            frame(msgspec.msgpack.encode(PING)),
        )

        assert await wire.replies(5) == [
            ("get_statusResponse", 1),
            ("stream_creditResponse", 2),
            ("get_statusResponse", 3),
            ("stream_creditResponse", 4),
            ("pong", None),
        ]


async def test_frames_that_come_with_the_handshake_are_answered_after_it(api: Api) -> None:
    uri = parse_uri(address_of(api))
    protocol = ClientProtocol(uri, subprotocols=[Subprotocol(MSGPACK)])
    reader, writer = await asyncio.open_connection(uri.host, uri.port)
    try:
        async with asyncio.timeout(PATIENCE_S):
            protocol.send_request(protocol.connect())
            handshake = b"".join(protocol.data_to_send())
            writer.write(handshake + frame(b"early", Opcode.PING) + frame(packed("get_status", 1)))
            wire = Wire(protocol, reader, writer)
            await wire.frame()  # the answer to the handshake
            first = await wire.frame()
            second = await wire.frame()
            assert Opcode.PONG in {first.opcode, second.opcode}
            assert await wire.replies(1) == [("get_statusResponse", 1)]
    finally:
        writer.close()


async def test_a_message_that_comes_byte_by_byte_is_one_message(api: Api) -> None:
    async with wire_to(api) as wire:
        await opened(wire)
        for byte in frame(packed("stream_beat", 1, {"running": []})):
            wire.write(bytes([byte]))
            await wire.writer.drain()
            await asyncio.sleep(0)

        assert await wire.replies(1) == [("stream_beatResponse", 1)]


async def test_fragments_and_a_ping_between_them_are_one_message_and_a_pong(api: Api) -> None:
    async with wire_to(api) as wire:
        await opened(wire)
        message = packed("stream_beat", 1, {"running": []})
        wire.write(
            frame(message[:10], fin=False),
            frame(b"anybody?", Opcode.PING),
            frame(message[10:20], Opcode.CONT, fin=False),
            frame(message[20:], Opcode.CONT),
            frame(packed("stream_beat", 2, {"running": []})),
        )

        pong = await wire.frame()
        assert (pong.opcode, bytes(pong.data)) == (Opcode.PONG, b"anybody?")
        replies = await wire.replies(2)

    assert sorted(replies) == [("stream_beatResponse", 1), ("stream_beatResponse", 2)]


@pytest.mark.parametrize(
    ("broken", "code"),
    [
        pytest.param(Frame(Opcode.BINARY, b"x").serialize(mask=False), 1002, id="unmasked"),
        pytest.param(b"\xc2\x80\x00\x00\x00\x00", 1002, id="a bit that means nothing"),
        pytest.param(b"\x83\x80\x00\x00\x00\x00", 1002, id="a code that means nothing"),
        pytest.param(b"\x80\x80\x00\x00\x00\x00", 1002, id="an end without a beginning"),
        pytest.param(frame(b"a", fin=False) + frame(b"b"), 1002, id="a message inside another"),
        pytest.param(b"\x82\xff\x7f" + b"\xff" * 7 + b"\x00" * 4, 1009, id="too large"),
        pytest.param(frame(b"\xff\xff", Opcode.TEXT), 1007, id="a text that is none"),
    ],
)
async def test_a_peer_that_breaks_the_protocol_is_told_so_and_closed(
    api: Api, broken: bytes, code: int
) -> None:
    async with wire_to(api) as wire:
        wire.write(broken)
        found = await wire.frame()
        while found.opcode is not Opcode.CLOSE:
            found = await wire.frame()

        assert int.from_bytes(found.data[:2]) == code


async def test_nothing_is_taken_from_a_peer_that_has_said_goodbye(api: Api) -> None:
    task = await api.submit()
    async with wire_to(api) as wire:
        await opened(wire)
        goodbye = frame((1000).to_bytes(2), Opcode.CLOSE)
        wire.write(goodbye, frame(packed("stream_credit", 1, {"free": 1, "taken": 0})))
        found = await wire.frame()
        while found.opcode is not Opcode.CLOSE:
            found = await wire.frame()

    assert (await api.task(task["id"]))["state"] == "queued"
