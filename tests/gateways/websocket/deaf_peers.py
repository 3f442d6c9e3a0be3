"""A peer that speaks, but never reads: what is sent to it piles up in the system and beyond."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from websockets.client import ClientProtocol
from websockets.uri import parse_uri

from tests.gateways.serving import Api, Json
from tests.gateways.websocket.talking import MAIN, PATIENCE_S, address_of

RECEIVE_BYTES = 4_096  # the system doubles it, and holds no more for us


class DeafPeer:
    def __init__(self, protocol: ClientProtocol, plug: socket.socket) -> None:
        self._protocol = protocol
        self._plug = plug

    async def say(self, kind: str, payload: Json = None, **more: Json) -> None:
        envelope = {"to": MAIN, "type": kind, "payload": payload, **more}
        self._protocol.send_text(json.dumps(envelope).encode())
        await self.flush()

    async def flush(self) -> None:
        loop = asyncio.get_running_loop()
        for data in self._protocol.data_to_send():
            await loop.sock_sendall(self._plug, data)

    async def write(self, data: bytes) -> None:
        """Say it as it is."""
        await asyncio.get_running_loop().sock_sendall(self._plug, data)

    async def ended(self) -> None:
        """Read at last, and wait until there is no more to read."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(PATIENCE_S):
            try:
                while await loop.sock_recv(self._plug, 65_536):
                    pass
            except ConnectionError:
                pass


@asynccontextmanager
async def deaf_peer(api: Api, session: str | None = None) -> AsyncIterator[DeafPeer]:
    address = address_of(api, session)
    parts = urlsplit(address)
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as plug:
        plug.setblocking(False)  # noqa: FBT003 - the socket's own signature
        plug.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        await loop.sock_connect(plug, (parts.hostname, parts.port))
        protocol = ClientProtocol(parse_uri(address))
        protocol.send_request(protocol.connect())
        peer = DeafPeer(protocol, plug)
        await peer.flush()
        head = b""
        while b"\r\n\r\n" not in head:
            head += await loop.sock_recv(plug, 1)
        protocol.receive_data(head)
        assert protocol.handshake_exc is None
        yield peer
