"""What did the server answer? Response bytes in, one `Response` out; no sockets.

A coordinator gives the same few heads over and over. One that came before, byte for byte, means
what it meant then, so it is parsed once: of a response that arrives whole behind a known head
nothing is left to do but to cut off its body.
"""

from typing import NamedTuple

import httptools

from rota.errors import Unavailable
from rota.sdk.transport import Response

MAX_RESPONSE_BYTES = 1024 * 1024 * 1024
HEADS_KEPT = 256  # then they are all forgotten, since they would come again
_END_OF_HEAD = b"\r\n\r\n"


class _Head(NamedTuple):
    """What the head of a response says, whose body has a stated length."""

    status: int
    headers: dict[str, str]
    body_bytes: int
    is_reusable: bool


class ResponseParser:
    """Reads one response after another from a connection's bytes."""

    def __init__(self) -> None:
        self._heads: dict[bytes, _Head] = {}
        self._begin()

    def _begin(self) -> None:
        self._parser: httptools.HttpResponseParser | None = None
        self._headers: dict[str, str] = {}
        self._chunks: list[bytes] = []
        self._size = 0
        self._is_complete = False
        self.has_begun = False
        self.is_reusable = False

    def feed(self, data: bytes) -> Response | None:
        """Take in what arrived; the response, once it is complete."""
        if self.has_begun:
            return self._parse(data)
        head_bytes = data.find(_END_OF_HEAD) + len(_END_OF_HEAD)
        known = self._heads.get(data[:head_bytes])
        if known is not None and len(data) == head_bytes + known.body_bytes:
            self.is_reusable = known.is_reusable
            return Response(known.status, data[head_bytes:], dict(known.headers))
        response = self._parse(data)
        if response is not None and _has_length(response, len(data) - head_bytes):
            self._remember(data[:head_bytes], response)
        return response

    def end(self) -> Response | None:
        """The connection has ended; that completes a response without a stated length."""
        is_delimited = {"content-length", "transfer-encoding"} & self._headers.keys()
        if not self._headers or is_delimited or self._parser is None:
            return None
        self.is_reusable = False
        return self._take(self._parser)

    def _parse(self, data: bytes) -> Response | None:
        self.has_begun = True
        parser = self._parser
        if parser is None:
            parser = self._parser = httptools.HttpResponseParser(self)
        try:
            parser.feed_data(data)
        except httptools.HttpParserError as error:
            raise Unavailable(f"what answered does not speak HTTP: {error}") from error
        return self._take(parser) if self._is_complete else None

    def _take(self, parser: httptools.HttpResponseParser) -> Response:
        response = Response(parser.get_status_code(), b"".join(self._chunks), self._headers)
        is_reusable = self.is_reusable
        self._begin()
        self.is_reusable = is_reusable
        return response

    def _remember(self, head: bytes, response: Response) -> None:
        if len(self._heads) >= HEADS_KEPT:
            self._heads.clear()
        self._heads[head] = _Head(
            response.status, dict(response.headers), len(response.body), self.is_reusable
        )

    # --- what httptools calls -------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._size += len(body)
        if self._size > MAX_RESPONSE_BYTES:
            raise Unavailable(f"the answer is larger than {MAX_RESPONSE_BYTES} bytes")
        self._chunks.append(body)

    def on_message_complete(self) -> None:
        assert self._parser is not None
        if self._parser.get_status_code() < 200:  # an interim response; the real one follows
            self._headers = {}
            return
        self._is_complete = True
        self.is_reusable = self._parser.should_keep_alive()


def _has_length(response: Response, body_bytes: int) -> bool:
    """Whether all that followed the first head was the body, and the head said how long it is."""
    return (
        "transfer-encoding" not in response.headers
        and response.headers.get("content-length") == str(body_bytes)
        and len(response.body) == body_bytes
    )
