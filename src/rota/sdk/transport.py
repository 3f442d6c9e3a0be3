"""How do calls reach a coordinator? Through a transport: over HTTP, or inside the same program.

A transport carries one request and brings back one response, whatever its status; what the status
means is the client's business. `send` may be used from any thread, `asend` from any event loop.
"""

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import NamedTuple, Protocol, cast

from msgspec import Struct

from rota.errors import Invalid, Unavailable

DEFAULT_EMBEDDED_URL = "sqlite:///rota.db"
JSON = "application/json"
ANSWER_TIMEOUT_S = 30.0  # beyond what the coordinator was asked to wait


class Request(Struct, frozen=True, kw_only=True):
    """What a transport has to know of a call, which is one of these (see `requests`)."""

    method: str
    path: str
    body: bytes | None = None
    timeout_s: float = ANSWER_TIMEOUT_S
    content_type: str = JSON


class Response(NamedTuple):
    status: int
    body: bytes
    headers: Mapping[str, str]  # names in lower case


class Transport(Protocol):
    """Whatever brings a request to a coordinator.

    Raises `Unavailable` when no response came: `NotSent` when the request cannot have arrived.
    """

    @property
    def address(self) -> str: ...

    @property
    def is_embedded(self) -> bool:
        """Whether the coordinator runs inside this program."""

    def send(self, request: Request) -> Response: ...

    async def asend(self, request: Request) -> Response: ...

    def close(self) -> None: ...


class NotSent(Unavailable):
    """The coordinator has seen nothing of the request: sending it again is safe."""


def is_embedded(url: str | None) -> bool:
    """Whether this is, or leads to, a coordinator on SQLite inside the program."""
    return (url or os.environ.get("ROTA_URL") or DEFAULT_EMBEDDED_URL).startswith("sqlite:")


def open_transport(url: str | None = None, token: str | None = None) -> Transport:
    """Choose a transport by the URL; without one, by `ROTA_URL`, or else embedded on `rota.db`.

    Several addresses, with commas between them, are those of coordinators on one store.
    """
    url = url or os.environ.get("ROTA_URL") or DEFAULT_EMBEDDED_URL
    token = token or os.environ.get("ROTA_TOKEN") or None
    scheme = url.partition(":")[0]
    if scheme in {"http", "https"}:
        urls = [one.strip() for one in url.split(",") if one.strip()]
        if len(urls) > 1:
            from rota.sdk.failover import FailoverTransport  # noqa: PLC0415 - few programs need it

            return FailoverTransport(urls, token)
        from rota.sdk.http import HttpTransport  # noqa: PLC0415 - embedded programs need no sockets

        return HttpTransport(urls[0], token)
    if scheme == "sqlite":
        # By name, not by import: a worker process that speaks HTTP never loads the store.
        connect = cast("Callable[[str], Transport]", import_module("rota.embedded").connect)
        return connect(url)
    raise Invalid(f"a coordinator's URL starts with http://, https:// or sqlite:, not {url!r}")
