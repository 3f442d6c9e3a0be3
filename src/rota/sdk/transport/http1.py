"""HTTP/1.1 without sockets: writes requests to one coordinator and parses its responses."""

import ssl
from functools import cached_property
from typing import NamedTuple

import httptools

from rota.errors import Unavailable
from rota.sdk.transport.transport import NotSent, Response, TransportRequest
from rota.tls import reason_of

MAX_RESPONSE_BYTES = 1024 * 1024 * 1024
MAX_IDLE_CONNECTIONS = 32  # of one pool
CONNECT_TIMEOUT_S = 10.0
HEADS_KEPT = 256  # the parser forgets all known heads beyond this number
_END_OF_HEAD = b"\r\n\r\n"


class CoordinatorEndpoint:
    """The address of one coordinator, and the parts that all requests to it share."""

    def __init__(
        self, *, host: str, port: int, base: str, token: str | None, tls: ssl.SSLContext | None
    ) -> None:
        self.host = host
        self.port = port
        self.tls = tls
        self.token = token
        self.hint = ""  # what to do when it cannot be reached
        self._base = base

    @cached_property
    def address(self) -> str:
        scheme = "http" if self.tls is None else "https"
        return f"{scheme}://{self._authority}{self._base}"

    @cached_property
    def socket_url(self) -> str:
        """The URL of the coordinator's WebSocket."""
        scheme = "ws" if self.tls is None else "wss"
        return f"{scheme}://{self._authority}{self._base}/ws"

    @cached_property
    def _authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @cached_property
    def _headers(self) -> bytes:
        lines = [f"host: {self._authority}", "accept: application/json"]
        if self.token is not None:
            lines.append(f"authorization: Bearer {self.token}")
        return "\r\n".join(["", *lines, ""]).encode()

    def encode(self, request: TransportRequest) -> bytes:
        """The bytes of a request."""
        start = f"{request.method} {self._base}{request.path} HTTP/1.1".encode()
        body = request.body
        if body is None:
            return b"%b%b\r\n" % (start, self._headers)
        return b"%b%bcontent-type: %b\r\ncontent-length: %d\r\n\r\n%b" % (
            start,
            self._headers,
            request.content_type.encode(),
            len(body),
            body,
        )

    def not_sent(self, reason: object) -> NotSent:
        text = f"the coordinator at {self.address} cannot be reached: {reason_of(reason)}"
        text = f"{text}; {self.hint}" if self.hint else text
        return NotSent(text, retry_after_s=0)

    def lost(self, reason: object) -> Unavailable:
        return Unavailable(
            f"the connection to the coordinator at {self.address} broke before its answer: "
            f"{reason}; whether the request was carried out is unknown",
            retry_after_s=0,
        )

    def timed_out(self, timeout_s: float) -> Unavailable:
        return Unavailable(
            f"the coordinator at {self.address} did not answer within {timeout_s:g} s; "
            "whether the request was carried out is unknown",
            retry_after_s=0,
        )


class _Head(NamedTuple):
    """The parsed head of a response whose body has a stated length."""

    status: int
    headers: dict[str, str]
    body_bytes: int
    is_reusable: bool


class ResponseParser:
    """Parses one response after another from the bytes of a connection.

    A coordinator sends the same few heads over and over. The parser keeps each one, byte for byte,
    with its meaning, so a response that arrives whole behind a known head is not parsed again.
    """

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
        """Parse more bytes; returns the response once it is complete."""
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
        """The end of the connection, which completes a response without a stated length."""
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
            raise Unavailable(f"the answer is not HTTP: {error}") from error
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

    # --- callbacks of httptools -----------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._size += len(body)
        if self._size > MAX_RESPONSE_BYTES:
            raise Unavailable(f"the answer is larger than {MAX_RESPONSE_BYTES} bytes")
        self._chunks.append(body)

    def on_message_complete(self) -> None:
        assert self._parser is not None
        if self._parser.get_status_code() < 200:  # an interim response; the final one follows
            self._headers = {}
            return
        self._is_complete = True
        self.is_reusable = self._parser.should_keep_alive()


def _has_length(response: Response, body_bytes: int) -> bool:
    """Whether the head states the body's length and nothing but the body follows it."""
    return (
        "transfer-encoding" not in response.headers
        and response.headers.get("content-length") == str(body_bytes)
        and len(response.body) == body_bytes
    )
