"""The seam between the server and the application that it serves.

The application is called as ASGI is. Beyond ASGI it is asked two things about a request head: its
early refusal, before a scope or a task exists, and whether the request may start without a task.
"""

from typing import Any, Protocol

from msgspec import Struct
from starlette.types import Receive, Scope, Send

from rota.gateways.http.routing.responses import HttpResponse
from rota.gateways.http.server.response_heads import Header


class Endpoints(Struct, frozen=True):
    """The addresses of the two ends of a connection."""

    client: tuple[str, int] | None
    server: tuple[str, int] | None


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

    def scope(self, kind: str, scheme: str, extensions: dict[str, Any]) -> dict[str, Any]:
        """Build the ASGI scope of this request."""
        return {
            "type": kind,
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": self.http_version,
            "method": self.method,
            "scheme": scheme,
            "server": self.endpoints.server,
            "client": self.endpoints.client,
            "root_path": "",
            "path": self.path,
            "raw_path": self.raw_path,
            "query_string": self.query,
            "headers": self.headers,
            "extensions": extensions,
        }


class Application(Protocol):
    """An ASGI application that the server can ask about a request head."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    def is_crowded(self) -> bool:
        """Whether most requests would be refused now."""
        ...

    def refuse_early(self, head: RequestHead) -> HttpResponse | None:
        """Answer a request that would be refused anyway; None: serve it in the ordinary way."""
        ...

    def starts_eagerly(self, head: RequestHead) -> bool:
        """Tell whether the request starts in the callback that has read it."""
        ...
