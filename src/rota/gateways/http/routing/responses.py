"""Responses, and how they are sent."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, NamedTuple

import msgspec
from starlette.types import Receive, Scope, Send

from rota.gateways.http.server.response_heads import ANSWERING, Answering

JSON = "application/json"
REFUSALS = frozenset({429, 503})

_encoder = msgspec.json.Encoder()


class HttpResponse(NamedTuple):
    """An answer ready to be sent, for handlers that set more than the body."""

    content: bytes
    status: int = 200
    media_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()


class StreamedResponse(NamedTuple):
    """An answer in pieces, which is too large for memory or has no end yet."""

    pieces: AsyncGenerator[bytes]
    size: int | None  # None: not known
    status: int = 200
    media_type: str = "application/octet-stream"
    headers: tuple[tuple[str, str], ...] = ()


def encoded(value: Any, status: int = 200) -> HttpResponse:
    return HttpResponse(_encoder.encode(value), status)


async def send_response(scope: Scope, send: Send, answer: HttpResponse | StreamedResponse) -> None:
    # Refusals under load have a header, but always the same one.
    if isinstance(answer, HttpResponse) and (not answer.headers or answer.status in REFUSALS):
        connection: Answering | None = scope.get("extensions", {}).get(ANSWERING)
        if connection is not None and connection.answer(
            answer.status, answer.media_type, answer.content, answer.headers
        ):
            return
    size = len(answer.content) if isinstance(answer, HttpResponse) else answer.size
    headers = [
        (b"content-type", answer.media_type.encode()),
        *([] if size is None else [(b"content-length", str(size).encode())]),
        *((name.encode(), value.encode("latin-1", "replace")) for name, value in answer.headers),
    ]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    if isinstance(answer, HttpResponse):
        await send({"type": "http.response.body", "body": answer.content})
        return
    async with aclosing(answer.pieces) as pieces:
        async for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


class StaticResponse:
    """One fixed answer, as an ASGI application."""

    def __init__(self, answer: HttpResponse) -> None:
        self._answer = answer

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        await send_response(scope, send, self._answer)
