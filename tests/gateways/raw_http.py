"""HTTP on a bare socket, for what no client library would send or show."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from tests.gateways.serving import Api

LIVE = b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n"
PATIENCE_S = 20.0


@asynccontextmanager
async def socket_to(api: Api) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    url = api.client.base_url
    reader, writer = await asyncio.open_connection(url.host, url.port, ssl=api.trust)
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield reader, writer
    finally:
        writer.close()


async def answer(reader: asyncio.StreamReader) -> tuple[list[bytes], bytes]:
    """The lines of a head, and the body it announces."""
    head = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
    lengths = [line.partition(b":")[2] for line in head if line.startswith(b"content-length:")]
    return head, await reader.readexactly(int(lengths[0]))


def fields_of(head: list[bytes]) -> Mapping[bytes, bytes]:
    """The header fields of an answer."""
    pairs = (line.partition(b":") for line in head[1:] if line)
    return {name.lower(): value.strip() for name, _, value in pairs}


def status_of(head: list[bytes]) -> int:
    return int(head[0].split()[1])
