"""A receiver on loopback: a real server that notes what it was sent, and answers as it is told."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import msgspec

TIMEOUT_S = 30.0  # of a wait that should be over at once; only a broken test gets there


@dataclass
class Received:
    """One request as it arrived."""

    line: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> object:
        return msgspec.json.decode(self.body)


@dataclass
class Receiver:
    """What has arrived, and what is answered: bytes of a whole answer, or None to stay silent."""

    port: int = 0
    requests: list[Received] = field(default_factory=list)
    answer: Callable[[Received], bytes | None] = lambda _: answer(200)
    arrived: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    async def wait_for(self, count: int) -> list[Received]:
        """Wait until so many requests have arrived."""
        async with asyncio.timeout(TIMEOUT_S), self.arrived:
            await self.arrived.wait_for(lambda: len(self.requests) >= count)
        return self.requests

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            pairs = [line.split(": ", 1) for line in head[1:] if line]
            headers = {name.lower(): value for name, value in pairs}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            request = Received(head[0], headers, body)
            async with self.arrived:
                self.requests.append(request)
                self.arrived.notify_all()
            said = self.answer(request)
            if said is None:
                await reader.read()  # until the caller has had enough
            else:
                writer.write(said)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            pass
        finally:
            writer.close()


def answer(status: int, body: bytes = b"", **headers: str) -> bytes:
    """A whole answer; `retry_after="1"` becomes a header of that name."""
    lines = [f"HTTP/1.1 {status} Said", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


@asynccontextmanager
async def receiving(tls: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
    receiver = Receiver()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0, ssl=tls)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
