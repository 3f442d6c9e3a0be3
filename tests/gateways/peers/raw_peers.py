"""Peers on bare sockets, which speak the handshake and then whatever a test wants."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from rota.gateways.peers.handshake import AcceptorHandshake, DialerHandshake
from rota.gateways.peers.messages import EMPTY, with_length
from rota.gateways.peers.server import SWITCHING
from tests.gateways.peers.linking import EPOCH, PATIENCE_S, SECRET, Leader

REQUEST = (
    b"GET /internal/peer HTTP/1.1\r\nhost: localhost\r\n"
    b"connection: Upgrade\r\nupgrade: rota-peer/1\r\n\r\n"
)


class RawPeer:
    """One end of a TCP connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, message: bytes) -> None:
        self.writer.write(with_length(message))

    async def receive(self) -> bytes:
        """The next message that is not empty."""
        while (prefix := await self.reader.readexactly(4)) == EMPTY:
            pass
        return await self.reader.readexactly(int.from_bytes(prefix))

    async def challenge(self) -> bytes:
        """Ask for the upgrade; the challenge that comes behind its answer."""
        self.writer.write(REQUEST)
        await self.reader.readuntil(b"\r\n\r\n")
        return await self.receive()

    async def shake_hands(self, name: str = "raw", secret: bytes = SECRET) -> None:
        handshake = DialerHandshake(secret, name, EPOCH)
        self.send(handshake.hello(await self.challenge()))
        handshake.conclude(await self.receive())

    async def is_closed(self) -> bool:
        """Whether the other end has closed or reset the connection, whatever it sent before."""
        with suppress(ConnectionError):
            await self.reader.read()
        return True


@asynccontextmanager
async def raw_peer(leader: Leader) -> AsyncIterator[RawPeer]:
    reader, writer = await asyncio.open_connection(*leader.address)
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield RawPeer(reader, writer)
    finally:
        writer.close()


@asynccontextmanager
async def silent_leader(secret: bytes = SECRET) -> AsyncIterator[str]:
    """A leader that shakes hands, and then neither sends nor closes anything; its URL."""
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = RawPeer(reader, writer)
        handshake = AcceptorHandshake(secret, "silent")
        await reader.readuntil(b"\r\n\r\n")
        writer.write(SWITCHING)
        peer.send(handshake.challenge())
        _, verdict = handshake.answer(await peer.receive(), EPOCH)
        peer.send(verdict)
        await over.wait()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield "http://{}:{}".format(*server.sockets[0].getsockname())
        over.set()
