"""One request of an HTTP connection and its response, as the application sees them.

The application is called as ASGI is. Beyond ASGI it is asked two things about a request head: its
early refusal, before a scope or a task exists, and whether the request may start without a task.
"""

import asyncio
import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Literal, Protocol

import structlog
from msgspec import Struct
from starlette.types import Message, Receive, Scope, Send

from rota.gateways.http.routing.responses import (
    ANSWERING,
    Header,
    HttpResponse,
    TextHeaders,
    head_of,
    with_api_headers,
)
from rota.gateways.http.server.transport import ServerTransport

log = structlog.get_logger("rota.http")

BODILESS = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})
SCHEMES = {
    ("http", False): "http",
    ("http", True): "https",
    ("websocket", False): "ws",
    ("websocket", True): "wss",
}
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_UNSAFE_NAME = re.compile(rb'[\x00-\x20\x7f()<>@,;:\\"\[\]={}]')
_UNSAFE_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


class Endpoints(Struct, frozen=True):
    """The addresses of the two ends of a connection."""

    client: tuple[str, int] | None
    server: tuple[str, int] | None
    is_encrypted: bool = False


class RequestHead(Struct, frozen=True):
    """A request head within its limits. Names of header fields are in lower case."""

    method: str
    path: str
    raw_path: bytes  # before percent-decoding
    query: bytes
    headers: list[Header]
    http_version: str
    endpoints: Endpoints
    keep_alive: bool = True

    def scope(self, kind: Literal["http", "websocket"], extensions: dict[str, Any]) -> Any:
        """Build the ASGI scope of this request."""
        return {
            "type": kind,
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": self.http_version,
            "method": self.method,
            "scheme": SCHEMES[kind, self.endpoints.is_encrypted],
            "server": self.endpoints.server,
            "client": self.endpoints.client,
            "root_path": "",
            "path": self.path,
            "raw_path": self.raw_path,
            "query_string": self.query,
            "headers": self.headers,
            "extensions": extensions,
        }


class AsgiApplication(Protocol):
    """An ASGI application that the server can ask about a request head."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    def is_crowded(self) -> bool:
        """Whether most requests would be refused now."""
        ...

    def refuse_early(self, head: RequestHead) -> HttpResponse | None:
        """Answer a request that would be refused anyway; None: serve it in the ordinary way."""
        ...

    def starts_eagerly(self, head: RequestHead) -> bool:
        """Whether the request starts in the callback that has read it."""
        ...


class HttpExchange:
    """A request and its response. Belongs to the event loop."""

    __slots__ = (
        "_expects_continue",
        "_has_input",
        "_input_arrived",
        "_is_chunked",
        "_left_bytes",
        "_on_complete",
        "_transport",
        "body",
        "head",
        "is_complete",
        "is_gone",
        "is_started",
        "keep_alive",
        "more_body",
    )

    def __init__(
        self,
        head: RequestHead,
        transport: ServerTransport,
        on_complete: Callable[[], None],
        *,
        expects_continue: bool,
    ) -> None:
        self.head = head
        self.keep_alive = head.keep_alive
        self.body: bytes | bytearray = b""  # what the application has not received yet
        self.more_body = True
        self.is_started = False  # the response
        self.is_complete = False
        self.is_gone = False  # the caller
        self._transport = transport
        self._on_complete = on_complete
        self._expects_continue = expects_continue
        self._has_input = False  # since the application last received something
        self._input_arrived: asyncio.Event | None = None  # made when the application has to wait
        self._is_chunked = False
        self._left_bytes: int | None = None  # of the declared length; None: none was declared

    # --- what the connection reads --------------------------------------------------------------

    def add_body(self, piece: bytes) -> None:
        if not self.body:
            self.body = piece  # nearly always the whole body
        else:
            if isinstance(self.body, bytes):
                self.body = bytearray(self.body)
            self.body += piece
        self._signal_input()

    def end_body(self) -> None:
        self.more_body = False
        self._signal_input()

    def cut_off(self) -> None:
        """Give the application a disconnect: the caller is gone, or its request is dropped."""
        self.is_gone = True
        self._signal_input()

    def _signal_input(self) -> None:
        self._has_input = True
        if self._input_arrived is not None:
            self._input_arrived.set()

    # --- the application ------------------------------------------------------------------------

    async def run(self, app: AsgiApplication) -> None:
        """Have the application answer; its failure is answered with 500."""
        try:
            await app(self.head.scope("http", {ANSWERING: self}), self.receive, self.send)
        except Exception:
            log.exception("application_failed", method=self.head.method, path=self.head.path)
        if self.is_gone or self.is_complete:
            return
        if self.is_started:  # the caller must not take a part for the whole
            self._transport.close()
        else:
            self.keep_alive = False
            self._finish(500, "text/plain; charset=utf-8", b"Internal Server Error", ())

    async def receive(self) -> Message:
        if self._expects_continue and not self._transport.is_closing():
            self._expects_continue = False
            self._transport.write(CONTINUE)
        if not self.is_gone and not self.is_complete:
            self._transport.resume_reading()
            if not self._has_input:
                if self._input_arrived is None:
                    self._input_arrived = asyncio.Event()
                self._input_arrived.clear()
                await self._input_arrived.wait()
            self._has_input = False
        if self.is_gone or self.is_complete:
            return {"type": "http.disconnect"}
        body, self.body = bytes(self.body), b""
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    def take_body(self) -> bytes | None:
        """Take the whole body if it is here; None: it has to be received in the ordinary way."""
        if self.more_body or self.is_gone or self.is_complete or self._expects_continue:
            return None
        self._transport.resume_reading()
        self._has_input = False
        body, self.body = self.body, b""
        return body if type(body) is bytes else bytes(body)

    def answer(self, status: int, media_type: str, body: bytes, headers: TextHeaders = ()) -> bool:
        """Send a whole response at once; False: it has to be sent in the ordinary way."""
        if self.is_started or self.is_gone or self._transport.is_write_paused:
            return False
        self._finish(status, media_type, body, headers)
        return True

    def _finish(self, status: int, media_type: str, body: bytes, headers: TextHeaders) -> None:
        self.is_started = True
        head = head_of(status, media_type, self.keep_alive, headers)
        content = b"" if self.head.method == "HEAD" else body
        self._transport.write_now(b"%b%d\r\n\r\n%b" % (head, len(body), content))
        self._complete()

    def _complete(self) -> None:
        self.is_complete = True
        self._signal_input()
        if not self.keep_alive:
            self._transport.close()
        self._on_complete()

    async def send(self, message: Any) -> None:
        await self._transport.drain()
        if self.is_gone:
            return
        kind = message["type"]
        if not self.is_started and kind == "http.response.start":
            self._start(message["status"], with_api_headers(message.get("headers", ())))
        elif self.is_started and not self.is_complete and kind == "http.response.body":
            self._continue(message.get("body", b""), more=message.get("more_body", False))
        else:
            raise RuntimeError(f"the application sent {kind!r} out of turn")

    def _start(self, status: int, headers: list[Header]) -> None:
        self.is_started = True
        self._expects_continue = False
        lines = [b"HTTP/1.1 %d %b" % (status, HTTPStatus(status).phrase.encode("ascii"))]
        has_close = False
        for name, value in headers:
            if _UNSAFE_NAME.search(name) or _UNSAFE_VALUE.search(value):
                raise RuntimeError(f"unsafe response header {name!r}")
            lowered = name.lower()
            if lowered == b"content-length":
                self._left_bytes = int(value)
            elif lowered == b"connection" and value.lower() == b"close":
                self.keep_alive, has_close = False, True
            lines.append(b"%b: %b" % (lowered, value))
        if not self.keep_alive and not has_close:
            lines.append(b"connection: close")
        if self.head.method == "HEAD":
            self._left_bytes = None
        elif self._left_bytes is None and status not in BODILESS:
            self._is_chunked = True
            lines.append(b"transfer-encoding: chunked")
        lines.append(b"\r\n")
        self._transport.write(b"\r\n".join(lines))

    def _continue(self, body: bytes, *, more: bool) -> None:
        if self._is_chunked:
            if body:
                self._transport.write(b"%x\r\n%b\r\n" % (len(body), body))
            if not more:
                self._transport.write(b"0\r\n\r\n")
        elif self._left_bytes is not None:
            self._left_bytes -= len(body)
            if self._left_bytes < 0 or (self._left_bytes and not more):
                raise RuntimeError("the response is not as long as its content-length")
            if body:
                self._transport.write(body)
        if not more:
            self._complete()
