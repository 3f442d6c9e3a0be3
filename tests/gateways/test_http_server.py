"""The server's life: what is under way when it stops is answered, within a time."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send
from structlog.testing import capture_logs

from rota.errors import Invalid
from rota.gateways.http.routing.responses import HttpResponse
from rota.gateways.http.server import server
from rota.gateways.http.server.connection import OpenConnections, Upgraded
from rota.gateways.http.server.exchange import RequestHead
from rota.gateways.http.server.server import HttpServer
from tests.gateways.raw_http import answer, status_of

GET = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"
SECONDS = 30

Json = Any


class Application:
    """Answers a request when it is told to."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.messages: list[Json] = [
            {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]},
            {"type": "http.response.body", "body": b"ok"},
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        self.asked.set()
        await self.may_answer.wait()
        for message in self.messages:
            await send(message)

    def is_crowded(self) -> bool:
        return False

    def refuse_early(self, head: RequestHead) -> HttpResponse | None:  # noqa: ARG002
        return None

    def starts_eagerly(self, head: RequestHead) -> bool:  # noqa: ARG002
        return False


def no_upgrade(_head: RequestHead, _open: OpenConnections) -> Upgraded:
    raise Invalid("no WebSocket here")


@asynccontextmanager
async def connected(
    app: Application,
) -> AsyncIterator[tuple[HttpServer, asyncio.StreamReader, asyncio.StreamWriter]]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)  # noqa: FBT003 - the socket's own signature
        one = HttpServer(app, {b"websocket": no_upgrade})
        one.start(listening)
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        try:
            async with asyncio.timeout(SECONDS):
                yield one, reader, writer
        finally:
            writer.close()
            await one.stop()


async def test_a_request_under_way_is_answered_before_the_server_has_stopped() -> None:
    app = Application()
    async with connected(app) as (one, reader, writer):
        writer.write(GET)
        await app.asked.wait()
        stopping = asyncio.create_task(one.stop())
        await asyncio.sleep(0)
        app.may_answer.set()

        head, body = await answer(reader)
        await stopping

    assert (status_of(head), body) == (200, b"ok")
    assert b"connection: close" in head


async def test_a_request_that_takes_too_long_does_not_hold_up_a_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "STOP_GRACE_S", 0.05)
    app = Application()
    async with connected(app) as (one, reader, writer):
        writer.write(GET)
        await app.asked.wait()
        with capture_logs() as log:
            await one.stop()

        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
    assert [line["event"] for line in log] == ["stop_grace_exceeded"]
    assert not one.open.tasks


async def test_an_idle_connection_is_closed_by_a_stop() -> None:
    async with connected(Application()) as (one, reader, _):
        while not one.open.connections:  # noqa: ASYNC110 - what is counted has no event
            await asyncio.sleep(0)
        await one.stop()

        assert await reader.read() == b""


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [{"type": "http.response.body", "body": b"ok"}],
        [{"type": "http.response.start", "status": 200, "headers": [(b"a", b"b\r\nc: d")]}],
        [{"type": "http.response.start", "status": 200, "headers": [(b"a: b\r\nc", b"d")]}],
    ],
    ids=["nothing", "a body first", "an unsafe value", "an unsafe name"],
)
async def test_an_application_that_breaks_its_contract_is_answered_for(messages: Json) -> None:
    app = Application()
    app.messages = messages
    app.may_answer.set()
    async with connected(app) as (_, reader, writer):
        writer.write(GET)
        received = await reader.read()

    assert received == b"" or received.startswith(b"HTTP/1.1 500 ")
    assert b"c: d" not in received


@pytest.mark.parametrize("body", [b"o", b"too long"])
async def test_a_response_that_is_not_as_long_as_it_says_is_cut_off(body: bytes) -> None:
    app = Application()
    app.messages[1]["body"] = body
    app.may_answer.set()
    async with connected(app) as (_, reader, writer):
        writer.write(GET)
        received = await reader.read()

    assert not received.endswith(body)


async def test_an_upgrade_that_is_not_granted_is_refused_and_closed() -> None:
    async with connected(Application()) as (_, reader, writer):
        writer.write(GET[:-2] + b"connection: upgrade\r\nupgrade: websocket\r\n\r\n")
        head, _body = await answer(reader)

        assert await reader.read() == b""
    assert status_of(head) == 400
