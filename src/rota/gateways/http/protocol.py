"""How do bytes get onto the wire? One write an answer, not one for its head and one for its body.

On a loopback socket a write costs as much as everything else an answer needs. An answer that is
there as a whole leaves at once, behind a head that was written beforehand: the application finds
the way to do so in its scope, as an extension. What else an answer consists of is gathered until
the event loop comes round, and goes out as one.
"""

import asyncio
from functools import lru_cache
from typing import Any, Protocol
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from rota.gateways.http.beginning import begin, is_brisk
from rota.gateways.http.lingering import Lingering

ANSWERING = "rota.answering"  # the name of the extension in the ASGI scope
HEADS_KEPT = 256  # kinds of answers
PATHS_KEPT = 1_024


class Answering(Protocol):
    """What a connection can do beyond ASGI."""

    def answer(self, status: int, media_type: str, body: bytes) -> bool:
        """Send a whole answer in one go; False: it has to be sent in the ordinary way."""
        ...


class GatheringTransport:
    """A transport that puts off writes until the running callback has ended."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self.bare = transport
        self._loop = loop
        self._pieces: list[bytes] = []

    def write(self, data: bytes) -> None:
        if not self._pieces:
            self._loop.call_soon(self._flush)
        self._pieces.append(data)

    def write_now(self, data: bytes) -> None:
        """Write what nothing follows; what was put off goes before it."""
        if self._pieces:
            self._flush()
        self.bare.write(data)

    def close(self) -> None:
        self._flush()
        self.bare.close()

    def _flush(self) -> None:
        pieces, self._pieces = self._pieces, []
        if pieces and not self.bare.is_closing():
            self.bare.write(pieces[0] if len(pieces) == 1 else b"".join(pieces))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.bare, name)


class Cycle(RequestResponseCycle):
    """One request and its answer."""

    def __init__(self, protocol: "GatheringProtocol", *, keep_alive: bool) -> None:
        super().__init__(
            protocol.scope,
            protocol.transport,
            protocol.flow,
            protocol.logger,
            protocol.access_logger,
            protocol.access_log,
            protocol.server_state.default_headers,
            asyncio.Event(),
            protocol.expect_100_continue,
            keep_alive,
            protocol.on_response_complete,
        )

    def answer(self, status: int, media_type: str, body: bytes) -> bool:
        if self.response_started or self.disconnected or self.flow.write_paused:
            return False
        self.response_started = self.response_complete = True
        head = _head(status, media_type, self.keep_alive)
        content = b"" if self.scope["method"] == "HEAD" else body
        self.transport.write_now(b"%b%d\r\n\r\n%b" % (head, len(body), content))  # type: ignore[attr-defined]  # a GatheringTransport
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()
        return True


@lru_cache(HEADS_KEPT)
def _head(status: int, media_type: str, keep_alive: bool) -> bytes:  # noqa: FBT001 - a key
    """All but the length, which comes last."""
    closing = b"" if keep_alive else b"connection: close\r\n"
    kind = media_type.encode("ascii")
    return b"%bcontent-type: %b\r\n%bcontent-length: " % (STATUS_LINE[status], kind, closing)


@lru_cache(PATHS_KEPT)
def _taken_apart(url: bytes) -> tuple[str, bytes, bytes]:
    """Path, path before percent-decoding, and query of a request's target."""
    parsed = httptools.parse_url(url)
    raw_path = parsed.path
    return unquote(raw_path.decode("ascii")), raw_path, parsed.query or b""


class GatheringProtocol(HttpToolsProtocol):
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn narrows it so
        super().connection_made(GatheringTransport(transport, self.loop))  # type: ignore[arg-type]  # stands in for the transport

    # --- connections that nobody uses -----------------------------------------------------------

    # A timer is not set and cancelled for each request: one is left to run, and looks when it ends.
    _idle_since_s: float | None = None  # None: a request is under way

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
            return
        self._idle_since_s = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._look_after(self.timeout_keep_alive)

    def _unset_keepalive_if_required(self) -> None:
        self._idle_since_s = None

    def _look_after(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(
            seconds, self.timeout_keep_alive_handler
        )

    def timeout_keep_alive_handler(self) -> None:
        self.timeout_keep_alive_task = None
        if self._idle_since_s is None:
            return  # looked after again when it has been answered
        left_s = self._idle_since_s + self.timeout_keep_alive - self.loop.time()
        if left_s > 0:
            self._look_after(left_s)
        elif not self.transport.is_closing():
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None
        super().connection_lost(exc)

    # --- requests -------------------------------------------------------------------------------

    _unbegun: Cycle | None = None  # a request whose head has come, and perhaps its body
    _lingering: Lingering | None = None  # made when it is needed

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        cycle = self._unbegun
        if cycle is not None:
            self._unbegun = None
            self._begin(cycle)

    def _begin(self, cycle: Cycle) -> None:
        if cycle.more_body or not is_brisk(self.app, cycle.scope):
            self._start_asgi_task(cycle, self.app)
            return
        if self._lingering is None:
            self._lingering = Lingering(self.loop)
        self._lingering.came()
        task = begin(cycle.run_asgi(self.app), self.loop)
        if task is None:
            self._lingering.answered()
        else:
            task.add_done_callback(self.tasks.discard)
            self.tasks.add(task)

    def on_headers_complete(self) -> None:
        """As the server's own, without what our settings never ask for."""
        parser, scope = self.parser, self.scope
        version = scope["http_version"] = parser.get_http_version()
        scope["method"] = parser.get_method().decode("ascii")
        if parser.should_upgrade() and self._should_upgrade():
            return
        scope["path"], scope["raw_path"], scope["query_string"] = _taken_apart(self.url)
        before = self.cycle
        keep_alive = version != "1.0" and parser.should_keep_alive()
        cycle = self.cycle = Cycle(self, keep_alive=keep_alive)
        scope["extensions"] = {ANSWERING: cycle}  # type: ignore[dict-item]  # ASGI lets it be anything
        if before is None or before.response_complete:
            self._unbegun = cycle  # until all that came with it has been read
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, self.app))
