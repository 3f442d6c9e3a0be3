"""A coordinator inside the user's program, on its own thread.

Calls go through the same HTTP application as requests from outside, but without sockets, so that a
program moves to a server by changing one URL. Apps of one program that name the same file share one
coordinator, which ends when the last of them is closed.
"""

import asyncio
import logging
import os
import sys
import threading
from collections.abc import MutableMapping
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rota import settings
from rota.errors import Unavailable
from rota.node import Node
from rota.sdk.transport.transport import NotSent, Response, TransportRequest


class EmbeddedTransport:
    """The transport of one app to a coordinator in this program."""

    is_embedded = True

    def __init__(self, host: "Host") -> None:
        self._host = host
        self._is_closed = False

    @property
    def address(self) -> str:
        return self._host.url

    def send(self, request: TransportRequest) -> Response:
        answer = self._ask(request)
        try:
            return answer.result(request.timeout_s)
        except TimeoutError:
            answer.cancel()
            raise self._unanswered(request.timeout_s) from None
        except CancelledError:
            raise Unavailable("the embedded coordinator was closed during the call") from None

    async def asend(self, request: TransportRequest) -> Response:
        answer = self._ask(request)
        try:
            async with asyncio.timeout(request.timeout_s):
                return await asyncio.wrap_future(answer)
        except TimeoutError:
            raise self._unanswered(request.timeout_s) from None
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if caller is not None and caller.cancelling():
                raise
            raise Unavailable("the embedded coordinator was closed during the call") from None

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            release(self._host)

    @property
    def host(self) -> "Host":
        """The coordinator of this transport."""
        return self._host

    def _ask(self, request: TransportRequest) -> Future[Response]:
        if self._is_closed or self._host.is_closed:
            raise NotSent("the embedded coordinator is closed; open a new Rota app")
        return asyncio.run_coroutine_threadsafe(self._host.exchange(request), self._host.loop)

    def _unanswered(self, timeout_s: float) -> Unavailable:
        return Unavailable(f"the embedded coordinator did not answer within {timeout_s:g} s")


class Host:
    """A coordinator that runs on its own thread."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.users = 0
        self.is_closed = False
        self.loop: asyncio.AbstractEventLoop
        self._stop_asked: asyncio.Event
        self._node: Node
        self._apps_behind_server: dict[bool, ASGIApp] = {}
        self._ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="rota-coordinator", daemon=True)
        self._thread.start()
        self._ready.result()  # raises the error that kept the coordinator from starting

    async def exchange(self, request: TransportRequest) -> Response:
        return await exchange(self._node.app, request)

    async def serve(self, scope: Scope, receive: Receive, send: Send, *, is_admitted: bool) -> None:
        """Serve a request of an ASGI server; runs on the loop of this coordinator.

        The caller needs a token, unless the server has admitted it.
        """
        app = self._apps_behind_server.get(is_admitted)
        if app is None:
            app = self._node.app_behind_server(is_open=is_admitted)
            self._apps_behind_server[is_admitted] = app
        await app(scope, receive, send)

    def close(self) -> None:
        self.is_closed = True
        self.loop.call_soon_threadsafe(self._stop_asked.set)
        self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._stop_asked = asyncio.Event()
        self._node = Node(settings.load({"store": self.url}, os.environ))
        await self._node.start()
        self._ready.set_result(None)
        await self._stop_asked.wait()
        self._node.ask_to_stop()  # answers waiting calls
        await asyncio.sleep(0)
        await self._node.stop()


# --- shared coordinators ------------------------------------------------------------------------

_lock = threading.Lock()
_hosts: dict[str, Host] = {}


def connect(url: str) -> EmbeddedTransport:
    """Open a transport to the coordinator on this store; the first one starts it."""
    with _lock:
        _limit_logging()
        key = _identity(url)
        host = _hosts.get(key)
        if host is None:
            host = _hosts[key] = Host(url)
        host.users += 1
        return EmbeddedTransport(host)


def release(host: Host) -> None:
    with _lock:
        host.users -= 1
        if host.users > 0:
            return
        for key in [key for key, one in _hosts.items() if one is host]:
            del _hosts[key]
        host.close()


def _identity(url: str) -> str:
    path = url.removeprefix("sqlite://").removeprefix("/")
    if not path or path == ":memory:":
        return f"memory {object()!r}"  # every app has its own
    return str(Path(path).resolve())


# --- one request, without a socket -------------------------------------------------------------


async def exchange(app: ASGIApp, request: TransportRequest) -> Response:
    """Send one request to an ASGI application and read its response whole."""
    call = _Exchange(request)
    running = asyncio.ensure_future(_finished(app, call))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        # As a client that disconnects: the application undoes what has no receiver.
        call.is_gone.set()
        raise


async def _finished(app: ASGIApp, call: "_Exchange") -> Response:
    await app(call.scope, call.receive, call.send)
    return Response(call.status, b"".join(call.chunks), call.headers)


class _Exchange:
    def __init__(self, request: TransportRequest) -> None:
        name, _, query = request.path.partition("?")
        body = request.body or b""
        self.scope: MutableMapping[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": "http",
            "path": unquote(name),
            "raw_path": name.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [
                (b"host", b"localhost"),
                (b"content-type", request.content_type.encode()),
                (b"content-length", str(len(body)).encode()),
            ],
            "client": ("127.0.0.1", 0),
            "server": ("127.0.0.1", 0),
        }
        self.status = 500
        self.headers: dict[str, str] = {}
        self.chunks: list[bytes] = []
        self.is_gone = asyncio.Event()
        self._body: bytes | None = body

    async def receive(self) -> Message:
        if self._body is None:
            await self.is_gone.wait()
            return {"type": "http.disconnect"}
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {
                name.decode("latin-1").lower(): value.decode("latin-1")
                for name, value in message.get("headers", ())
            }
        else:
            self.chunks.append(message.get("body", b""))


# --- logging in a program that has not configured structlog ---------------------------------------


class _Printer(structlog.PrintLogger):
    """A logger with its name, by which lines of the library and of handlers differ."""

    def __init__(self, *names: str) -> None:
        super().__init__(sys.stderr)
        self.name = names[0] if names else ""


def _limit_logging() -> None:
    """Log only warnings and errors of the library, unless the program has configured structlog."""
    if structlog.is_configured():
        return
    structlog.configure(
        processors=[_drop_library_info, *structlog.get_config()["processors"]],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=_Printer,
    )


def _drop_library_info(logger: Any, method: str, event: MutableMapping[str, Any]) -> Any:
    is_own = logger.name.startswith("rota.") and logger.name != "rota.task"
    if is_own and method in {"debug", "info"}:
        raise structlog.DropEvent
    return event
