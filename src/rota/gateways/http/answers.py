"""How does an answer leave?"""

from typing import Any, NamedTuple

import msgspec
from starlette.types import Receive, Scope, Send

JSON = "application/json"

_encoder = msgspec.json.Encoder()


class Answered(NamedTuple):
    """An answer ready to be sent, for the handlers that have more to say than a body."""

    content: bytes
    status: int = 200
    media_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()


def encoded(value: Any, status: int = 200) -> Answered:
    return Answered(_encoder.encode(value), status)


async def send_answer(send: Send, answer: Answered) -> None:
    headers = [
        (b"content-type", answer.media_type.encode()),
        (b"content-length", str(len(answer.content)).encode()),
        *((name.encode(), value.encode("latin-1", "replace")) for name, value in answer.headers),
    ]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.content})


class Page:
    """The same answer for everybody, as an ASGI application."""

    def __init__(self, answer: Answered) -> None:
        self._answer = answer

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        await send_answer(send, self._answer)
