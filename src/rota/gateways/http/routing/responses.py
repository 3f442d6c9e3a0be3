"""Responses: their header fields, how they are sent, and errors as `application/problem+json`."""

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from functools import lru_cache
from http import HTTPStatus
from typing import Any, NamedTuple, Protocol

import msgspec
from starlette.types import Receive, Scope, Send

from rota.errors import (
    MethodNotAllowed,
    NotFound,
    RequestTimeout,
    RotaError,
    Unauthorized,
)

ANSWERING = "rota.answering"  # the name of the extension in the ASGI scope
HEADS_CACHED = 256  # kinds of answers
JSON = "application/json"
PROBLEM_JSON = "application/problem+json"
REFUSALS = frozenset({429, 503})
DEFAULT_RETRY_AFTER_S = 1

Header = tuple[bytes, bytes]
TextHeaders = tuple[tuple[str, str], ...]

# A response is data of one caller: no cache may keep it, no browser may guess that it is a page or
# a script, and no page of another origin may load it.
API_HEADERS: tuple[Header, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)

_encoder = msgspec.json.Encoder()


# --- heads --------------------------------------------------------------------------------------


class DirectResponder(Protocol):
    """What a connection can do beyond ASGI."""

    @property
    def more_body(self) -> bool:
        """Whether a part of the body is still to come."""
        ...

    def take_body(self) -> bytes | None:
        """Take the whole body if it is here; None: it has to be received in the ordinary way."""
        ...

    def answer(self, status: int, media_type: str, body: bytes, headers: TextHeaders = ()) -> bool:
        """Send a whole answer in one go; False: it has to be sent in the ordinary way."""
        ...


def with_api_headers(headers: Iterable[Header]) -> list[Header]:
    """These header fields, and those of `API_HEADERS` that are not among them."""
    given = list(headers)
    names = {name.lower() for name, _ in given}
    return [*given, *(header for header in API_HEADERS if header[0] not in names)]


@lru_cache(HEADS_CACHED)
def head_of(
    status: int,
    media_type: str,
    keep_alive: bool,  # noqa: FBT001 - a key
    headers: TextHeaders = (),
) -> bytes:
    """A response head up to the value of `content-length`, which comes last."""
    lines = [
        b"HTTP/1.1 %d %b" % (status, HTTPStatus(status).phrase.encode("ascii")),
        b"content-type: %b" % media_type.encode("ascii"),
        *(b"%b: %b" % header for header in API_HEADERS),
        *(f"{name}: {value}".encode("latin-1", "replace") for name, value in headers),
        *(() if keep_alive else (b"connection: close",)),
        b"content-length: ",
    ]
    return b"\r\n".join(lines)


# --- responses and how they are sent ------------------------------------------------------------


class HttpResponse(NamedTuple):
    """An answer ready to be sent, for handlers that set more than the body."""

    content: bytes
    status: int = 200
    media_type: str = JSON
    headers: TextHeaders = ()


class StreamedResponse(NamedTuple):
    """An answer in pieces, which is too large for memory or has no end yet."""

    pieces: AsyncGenerator[bytes]
    size: int | None  # None: not known
    status: int = 200
    media_type: str = "application/octet-stream"
    headers: TextHeaders = ()


def encoded(value: Any, status: int = 200) -> HttpResponse:
    return HttpResponse(_encoder.encode(value), status)


async def send_response(scope: Scope, send: Send, answer: HttpResponse | StreamedResponse) -> None:
    # Refusals under load have a header, but always the same one.
    if isinstance(answer, HttpResponse) and (not answer.headers or answer.status in REFUSALS):
        connection: DirectResponder | None = scope.get("extensions", {}).get(ANSWERING)
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
    """One fixed answer, as an ASGI application; it is made when it is first asked for."""

    def __init__(self, make_answer: Callable[[], HttpResponse]) -> None:
        self._make_answer = make_answer

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        await send_response(scope, send, self._make_answer())


# --- errors -------------------------------------------------------------------------------------


def problem(error: RotaError) -> HttpResponse:
    """The answer for an error."""
    fields = {
        **error.facts,
        "code": error.code,
        "title": error.title,
        "status": error.status,
        "detail": error.detail,
    }
    content = msgspec.json.encode(fields, enc_hook=str)
    return HttpResponse(content, error.status, PROBLEM_JSON, extra_headers(error))


def extra_headers(error: RotaError) -> TextHeaders:
    """The headers of an error, for clients that never read the body."""
    if error.status in REFUSALS:
        return (("retry-after", str(error.facts.get("retry_after_s", DEFAULT_RETRY_AFTER_S))),)
    if isinstance(error, Unauthorized):
        return (("www-authenticate", "Bearer"),)
    if isinstance(error, RequestTimeout):
        return (("connection", "close"),)  # what is left of the request is not waited for
    if isinstance(error, MethodNotAllowed):
        return (("allow", ", ".join(error.facts["allowed"])),)
    return ()


def unknown_path(path: str) -> NotFound:
    return NotFound(f"path {path!r} not found", path=path)


def wrong_method(method: str, path: str, allowed: Iterable[str]) -> MethodNotAllowed:
    names = sorted(allowed)
    return MethodNotAllowed(
        f"{method} is not for {path!r}; there is {', '.join(names)}", path=path, allowed=names
    )
