"""How are several coordinators on one store reached? One at a time, the next when one is away.

All of them are equal, so it does not matter which one answers. A program begins with one of them,
by chance, so that programs spread; it stays there until that one cannot be reached, breaks a call
off, or says itself that it cannot serve. Then it is the next one's turn, for everything.

Here, too, nothing is sent twice unless the first coordinator cannot have seen it: whether a call
may be said again is known to whoever makes it (see `client`).
"""

import random
import threading
from collections.abc import Sequence

from rota.errors import Invalid, Unavailable
from rota.sdk.endpoint import Endpoint
from rota.sdk.http import HttpTransport
from rota.sdk.transport import NotSent, Request, Response

AWAY = 503  # that a coordinator stops, or has lost its store


class FailoverTransport:
    """Speaks to whichever of several coordinators is there."""

    is_embedded = False
    has_several = True

    def __init__(self, urls: Sequence[str], token: str | None = None) -> None:
        if len(set(urls)) < len(urls):
            raise Invalid(f"an address stands twice among {', '.join(urls)}")
        self._transports = [HttpTransport(url, token) for url in urls]
        self._current = random.randrange(len(urls))  # noqa: S311 - spread, not secrecy
        self._lock = threading.Lock()

    @property
    def address(self) -> str:
        return self._transports[self._current].address

    @property
    def endpoint(self) -> Endpoint:
        """Of the coordinator that is spoken to now."""
        return self._transports[self._current].endpoint

    def leave(self, endpoint: Endpoint) -> None:
        """Nothing is to be had there: go on with the next, unless somebody else has done so."""
        with self._lock:
            if self.endpoint is endpoint:
                self._current = (self._current + 1) % len(self._transports)

    def send(self, request: Request) -> Response:
        tries = len(self._transports)
        while True:
            transport, tries = self._transports[self._current], tries - 1
            try:
                response = transport.send(request)
            except Unavailable as error:
                self._take_leave(transport, error, tries)
            else:
                return self._seen(transport, response)

    async def asend(self, request: Request) -> Response:
        tries = len(self._transports)
        while True:
            transport, tries = self._transports[self._current], tries - 1
            try:
                response = await transport.asend(request)
            except Unavailable as error:
                self._take_leave(transport, error, tries)
            else:
                return self._seen(transport, response)

    def close(self) -> None:
        for transport in self._transports:
            transport.close()

    def _take_leave(self, transport: HttpTransport, error: Unavailable, tries_left: int) -> None:
        """Go on with the next one if it is safe to, or let the caller decide."""
        self.leave(transport.endpoint)
        if not isinstance(error, NotSent) or tries_left <= 0:
            raise error

    def _seen(self, transport: HttpTransport, response: Response) -> Response:
        if response.status == AWAY:
            self.leave(transport.endpoint)
        return response
