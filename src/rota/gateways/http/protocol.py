"""How do bytes get onto the wire? One write an answer, not one for its head and one for its body.

On a loopback socket a write costs as much as everything else an answer needs. What an answer
consists of is gathered until the event loop comes round, and goes out as one.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class GatheringTransport:
    """A transport that puts off writes until the running callback has ended."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._pieces: list[bytes] = []

    def write(self, data: bytes) -> None:
        if not self._pieces:
            self._loop.call_soon(self._flush)
        self._pieces.append(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        pieces, self._pieces = self._pieces, []
        if pieces and not self._transport.is_closing():
            self._transport.write(pieces[0] if len(pieces) == 1 else b"".join(pieces))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class GatheringProtocol(HttpToolsProtocol):
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn narrows it so
        super().connection_made(GatheringTransport(transport, self.loop))  # type: ignore[arg-type]  # stands in for the transport
