"""The transport seam: one request in, one response out, over HTTP or inside the program.

A transport returns every response, whatever its status; the client interprets it.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from msgspec import Struct

from rota.errors import Unavailable

JSON = "application/json"
ANSWER_TIMEOUT_S = 30.0  # on top of the wait that the request asks the coordinator for


class TransportRequest(Struct, frozen=True, kw_only=True):
    """A request as a transport sends it."""

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
    """Sends requests to a coordinator: `send` from any thread, `asend` from any event loop.

    Both raise `Unavailable` when no response arrives, and `NotSent` when the coordinator cannot
    have received the request.
    """

    @property
    def address(self) -> str: ...

    @property
    def is_embedded(self) -> bool:
        """Whether the coordinator runs inside this program."""

    def send(self, request: TransportRequest) -> Response: ...

    async def asend(self, request: TransportRequest) -> Response: ...

    def close(self) -> None: ...


class NotSent(Unavailable):
    """The coordinator has not received the request; sending it again is safe."""
