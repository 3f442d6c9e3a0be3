"""The dashboard and the HTTP API of an embedded coordinator, inside an ASGI application.

The coordinator has a thread and an event loop of its own, so that neither it nor the application
waits for the other. Requests cross over from the server's loop and answers come back piece by
piece, event streams included. WebSockets are not served here: they are for workers and programs
elsewhere, which need a coordinator of its own.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import msgspec
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rota.dashboard.site import ROOT
from rota.embedded import EmbeddedTransport, Host
from rota.sdk.app.app import Rota

# Decides about a request before it reaches the coordinator. True: the caller may do everything.
Authorize = Callable[[HTTPConnection], bool | Awaitable[bool]]

NOT_EMBEDDED = (
    "the coordinator of this application is not inside it, and has a dashboard at its own address"
)
REFUSED = "this application does not let you see the dashboard"
STOPPED = "the coordinator has stopped"
NO_SOCKETS = 1008  # the code of a refused WebSocket: policy


def dashboard(rota: Rota, *, authorize: Authorize | None = None) -> ASGIApp:
    """The dashboard and the API as an ASGI application, for `app.mount("/rota", …)`.

    Without `authorize` every caller needs a token of Rota, as `rota token create` makes them. With
    it, callers that it returns True for may do everything, and all others are refused.
    """

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": NO_SOCKETS})
            return
        if scope["type"] != "http":
            return
        if authorize is not None and not await _is_authorized(authorize, scope):
            await _refuse(send, HTTPStatus.FORBIDDEN, "forbidden", REFUSED)
            return
        client = await asyncio.to_thread(lambda: rota.client)  # may have to start the coordinator
        if not isinstance(client.transport, EmbeddedTransport):
            await _refuse(send, HTTPStatus.NOT_FOUND, "not_found", NOT_EMBEDDED)
            return
        await _cross_over(
            client.transport.host, scope, receive, send, is_admitted=authorize is not None
        )

    return serve


async def _is_authorized(authorize: Authorize, scope: Scope) -> bool:
    answer = authorize(HTTPConnection(scope))
    if inspect.isawaitable(answer):
        answer = await answer
    return answer is True


async def _cross_over(
    host: Host, scope: Scope, receive: Receive, send: Send, *, is_admitted: bool
) -> None:
    """Serve a request on the coordinator's loop."""
    here = asyncio.get_running_loop()
    root = scope.get("root_path", "").rstrip("/")
    is_begun = False

    async def send_below(message: Message) -> None:
        nonlocal is_begun
        is_begun = True
        await send(_below(root, message))

    def across(call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def crossing(*arguments: Any) -> Any:
            async def called() -> Any:
                return await call(*arguments)

            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(called(), here))

        return crossing

    served = host.serve(
        _inner_scope(scope, root, is_admitted=is_admitted),
        across(receive),
        across(send_below),
        is_admitted=is_admitted,
    )
    try:
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(served, host.loop))
    except asyncio.CancelledError:
        caller = asyncio.current_task()
        if caller is not None and caller.cancelling():
            raise
        if not is_begun:  # the coordinator has ended during the request
            await _refuse(send, HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", STOPPED)


def _inner_scope(scope: Scope, root: str, *, is_admitted: bool) -> Scope:
    """The scope as the coordinator's own server would make it, with the path of the mount aside."""
    path = scope["path"].removeprefix(root) or "/"
    raw = scope.get("raw_path")
    prefix = quote(root).encode()
    raw = raw[len(prefix) :] or b"/" if raw and raw.startswith(prefix) else quote(path).encode()
    headers = list(scope["headers"])
    if is_admitted:  # by the application, which the header is then for
        headers = [(name, value) for name, value in headers if name != b"authorization"]
    if scope.get("scheme") == "https":
        headers.append((b"x-forwarded-proto", b"https"))
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": scope.get("http_version", "1.1"),
        "method": scope["method"],
        "scheme": scope.get("scheme", "http"),
        "path": path,
        "raw_path": raw,
        "query_string": scope.get("query_string", b""),
        "root_path": "",
        "headers": headers,
        "client": scope.get("client"),
        "server": scope.get("server"),
        "extensions": {},
        ROOT: root,
    }


def _below(root: str, message: Message) -> Message:
    """A message of an answer whose cookies are sent to the path of the mount only."""
    if message["type"] != "http.response.start" or not root:
        return message
    path = quote(root).encode()
    headers = [
        (name, value.replace(b"; Path=/;", b"; Path=" + path + b";"))
        if name.lower() == b"set-cookie"
        else (name, value)
        for name, value in message.get("headers", ())
    ]
    return {**message, "headers": headers}


async def _refuse(send: Send, status: HTTPStatus, code: str, detail: str) -> None:
    body = msgspec.json.encode({"code": code, "title": status.phrase, "detail": detail})
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
    ]
    await send({"type": "http.response.start", "status": status.value, "headers": headers})
    await send({"type": "http.response.body", "body": body})
