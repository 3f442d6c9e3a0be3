"""Response heads: the header fields that every response has, and heads written beforehand."""

from collections.abc import Iterable
from functools import lru_cache
from http import HTTPStatus
from typing import Protocol

ANSWERING = "rota.answering"  # the name of the extension in the ASGI scope
HEADS_KEPT = 256  # kinds of answers

Header = tuple[bytes, bytes]
TextHeaders = tuple[tuple[str, str], ...]

# A response is data of one caller: no cache may keep it, no browser may guess that it is a page or
# a script, and no page of another origin may load it.
API_HEADERS: tuple[Header, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)


class Answering(Protocol):
    """What a connection can do beyond ASGI."""

    def answer(self, status: int, media_type: str, body: bytes, headers: TextHeaders = ()) -> bool:
        """Send a whole answer in one go; False: it has to be sent in the ordinary way."""
        ...


def with_api_headers(headers: Iterable[Header]) -> list[Header]:
    """These header fields, and those of `API_HEADERS` that are not among them."""
    given = list(headers)
    names = {name.lower() for name, _ in given}
    return [*given, *(header for header in API_HEADERS if header[0] not in names)]


@lru_cache(HEADS_KEPT)
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
