"""Where is the coordinator, and what does a request to it look like?"""

import ssl
from functools import cached_property

from rota.errors import Unavailable
from rota.sdk.transport import NotSent, Request


class Endpoint:
    """One coordinator's address, and the parts of a request that are always the same."""

    def __init__(
        self, *, host: str, port: int, base: str, token: str | None, tls: ssl.SSLContext | None
    ) -> None:
        self.host = host
        self.port = port
        self.tls = tls
        self.token = token
        self._base = base

    @cached_property
    def address(self) -> str:
        scheme = "http" if self.tls is None else "https"
        return f"{scheme}://{self._authority}{self._base}"

    @cached_property
    def socket_url(self) -> str:
        """Where the coordinator's WebSockets are."""
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

    def written(self, request: Request) -> bytes:
        """The request, as it goes over a connection."""
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
        return NotSent(f"the coordinator at {self.address} cannot be reached: {reason}")

    def lost(self, reason: object) -> Unavailable:
        return Unavailable(
            f"the connection to the coordinator at {self.address} broke before its answer: "
            f"{reason}; whether the request was carried out is unknown"
        )

    def timed_out(self, timeout_s: float) -> Unavailable:
        return Unavailable(
            f"the coordinator at {self.address} did not answer within {timeout_s:g} s; "
            "whether the request was carried out is unknown"
        )
