"""How does an answer leave?"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, NamedTuple

import msgspec
from starlette.types import Receive, Scope, Send

from rota.gateways.http.protocol import ANSWERING, Answering

JSON = "application/json"

_encoder = msgspec.json.Encoder()


class Answered(NamedTuple):
    """An answer ready to be sent, for the handlers that have more to say than a body."""

    content: bytes
    status: int = 200
    media_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()


class Streamed(NamedTuple):
    """An answer that is sent in pieces, for what is too large to hold or has no end yet."""

    pieces: AsyncGenerator[bytes]
    size: int | None  # None: not known, it ends when it ends
    status: int = 200
    media_type: str = "application/octet-stream"
    headers: tuple[tuple[str, str], ...] = ()


def encoded(value: Any, status: int = 200) -> Answered:
    return Answered(_encoder.encode(value), status)


async def send_answer(scope: Scope, send: Send, answer: Answered | Streamed) -> None:
    if isinstance(answer, Answered) and not answer.headers:
        connection: Answering | None = scope.get("extensions", {}).get(ANSWERING)
        if connection is not None and connection.answer(
            answer.status, answer.media_type, answer.content
        ):
            return
    size = len(answer.content) if isinstance(answer, Answered) else answer.size
    headers = [
        (b"content-type", answer.media_type.encode()),
        *([] if size is None else [(b"content-length", str(size).encode())]),
        *((name.encode(), value.encode("latin-1", "replace")) for name, value in answer.headers),
    ]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    if isinstance(answer, Answered):
        await send({"type": "http.response.body", "body": answer.content})
        return
    async with aclosing(answer.pieces) as pieces:
        async for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


class Page:
    """The same answer for everybody, as an ASGI application."""

    def __init__(self, answer: Answered) -> None:
        self._answer = answer

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        await send_answer(scope, send, self._answer)
