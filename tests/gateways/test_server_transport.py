"""The transport of an HTTP connection, at the end of its connection."""

import asyncio

import pytest
import uvloop

from rota.gateways.http.server.transport import ServerTransport


class Accepted(asyncio.Protocol):
    """The server's end of one connection."""

    def __init__(self, made: "asyncio.Future[asyncio.Transport]") -> None:
        self._made = made
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert hasattr(transport, "write")
        self._made.set_result(transport)  # type: ignore[arg-type]  # uvloop's does not inherit

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's form
        self.lost.set_result(None)


async def respond_after_the_end() -> None:
    loop = asyncio.get_running_loop()
    made: asyncio.Future[asyncio.Transport] = loop.create_future()
    accepted = Accepted(made)
    server = await loop.create_server(lambda: accepted, "127.0.0.1", 0)
    _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    bare = await made
    transport = ServerTransport(bare, loop, unread_s=1.0, is_peer_sending=lambda: False)
    bare.abort()
    await accepted.lost
    try:
        transport.write_now(b"too late")
    finally:
        writer.close()
        server.close()


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_response_after_the_end_of_its_connection_is_dropped(new_loop) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(respond_after_the_end())
