"""HTTP transports on persistent connections, to one coordinator or to several.

Threads share one pool of blocking connections; every event loop has a pool of its own. A transport
sends no request twice unless the coordinator cannot have received it: only the client knows whether
a repeated request is safe.
"""

import asyncio
import os
import random
import threading
from collections.abc import Generator, Sequence
from urllib.parse import SplitResult, urlsplit

from rota.addresses import without_password
from rota.errors import Invalid, Unavailable
from rota.sdk.transport.connection_pools import BlockingPool, LoopPool
from rota.sdk.transport.http1 import CoordinatorEndpoint
from rota.sdk.transport.transport import NotSent, Response, TransportRequest, adrive, drive
from rota.tls import Verify, client_context

STATUS_UNAVAILABLE = 503  # the coordinator stops, or has lost its store


class HttpTransport:
    """Speaks to one coordinator, or to a proxy in front of it."""

    is_embedded = False

    def __init__(
        self, url: str, token: str | None = None, *, verify: Verify = True, hint: str = ""
    ) -> None:
        """`hint` says what to do when the coordinator cannot be reached."""
        self.endpoint = endpoint_of(url, token, verify=verify)
        self.endpoint.hint = hint
        self._blocking = BlockingPool(self.endpoint)
        self._loop_pools: dict[asyncio.AbstractEventLoop, LoopPool] = {}
        self._lock = threading.Lock()
        self._process_id = os.getpid()

    @property
    def address(self) -> str:
        return self.endpoint.address

    def leave(self, endpoint: CoordinatorEndpoint) -> None:
        """Do nothing: there is no other coordinator to go to."""

    def send(self, request: TransportRequest) -> Response:
        self._detect_fork()
        return self._blocking.exchange(self.endpoint.encode(request), timeout_s=request.timeout_s)

    async def asend(self, request: TransportRequest) -> Response:
        self._detect_fork()
        loop = asyncio.get_running_loop()
        pool = self._loop_pools.get(loop)
        if pool is None:
            pool = self._add_pool(loop)
        return await pool.exchange(self.endpoint.encode(request), timeout_s=request.timeout_s)

    def close(self) -> None:
        self._blocking.close()
        with self._lock:
            pools = list(self._loop_pools.values())
            self._loop_pools.clear()
        for pool in pools:
            pool.close()

    def _add_pool(self, loop: asyncio.AbstractEventLoop) -> LoopPool:
        with self._lock:
            for ended in [one for one in self._loop_pools if one.is_closed()]:
                del self._loop_pools[ended]
            return self._loop_pools.setdefault(loop, LoopPool(self.endpoint, loop))

    def _detect_fork(self) -> None:
        """Give a forked child its own pools; it must not write into its parent's connections."""
        if os.getpid() != self._process_id:
            self._process_id = os.getpid()
            self._blocking = BlockingPool(self.endpoint)
            self._loop_pools = {}
            self._lock = threading.Lock()


class FailoverTransport:
    """Speaks to one of several coordinators on one store, and changes over when it fails.

    All coordinators are equal. A program starts with a random one and stays there until that one
    cannot be reached, breaks a call off, or answers that it cannot serve. Then everything goes to
    the next one.
    """

    is_embedded = False
    has_several = True

    def __init__(
        self, urls: Sequence[str], token: str | None = None, *, verify: Verify = True
    ) -> None:
        if len(set(urls)) < len(urls):
            raise Invalid(f"an address is listed twice in {', '.join(map(without_password, urls))}")
        self._transports = [HttpTransport(url, token, verify=verify) for url in urls]
        self._current = random.randrange(len(urls))  # noqa: S311 - spread, not secrecy
        self._lock = threading.Lock()

    @property
    def address(self) -> str:
        return self._transports[self._current].address

    @property
    def endpoint(self) -> CoordinatorEndpoint:
        """The endpoint of the current coordinator."""
        return self._transports[self._current].endpoint

    def leave(self, endpoint: CoordinatorEndpoint) -> None:
        """Change to the next coordinator, unless another thread has left this one already."""
        with self._lock:
            if self.endpoint is endpoint:
                self._current = (self._current + 1) % len(self._transports)

    def send(self, request: TransportRequest) -> Response:
        return drive(self._try_each(), lambda transport: transport.send(request))

    async def asend(self, request: TransportRequest) -> Response:
        return await adrive(self._try_each(), lambda transport: transport.asend(request))

    def close(self) -> None:
        for transport in self._transports:
            transport.close()

    def _try_each(self) -> Generator[HttpTransport, Response, Response]:
        tries_left = len(self._transports)
        while True:
            transport, tries_left = self._transports[self._current], tries_left - 1
            try:
                response = yield transport
            except Unavailable as error:
                self.leave(transport.endpoint)
                if not isinstance(error, NotSent) or tries_left <= 0:
                    raise
            else:
                if response.status == STATUS_UNAVAILABLE:
                    self.leave(transport.endpoint)
                return response


def endpoint_of(url: str, token: str | None, *, verify: Verify = True) -> CoordinatorEndpoint:
    parts = urlsplit(url)
    host, port = _host_and_port(url, parts)
    if parts.username or parts.password:
        raise Invalid("a coordinator's URL must not have a login; give the token as ROTA_TOKEN")
    if parts.query or parts.fragment:
        shown = without_password(url)
        raise Invalid(f"a coordinator's URL must not have a query or a fragment: {shown!r}")
    if token is not None and not (token.isascii() and token.isprintable()):
        raise Invalid("a token must consist of printable ASCII characters")
    return CoordinatorEndpoint(
        host=host,
        port=port,
        base=parts.path.rstrip("/"),
        token=token,
        tls=client_context(verify) if parts.scheme == "https" else None,
    )


def _host_and_port(url: str, parts: SplitResult) -> tuple[str, int]:
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        # The error's own text quotes the port's place, which may hold a password.
        raise Invalid(f"not a coordinator's URL: {without_password(url)!r}") from None
    if not host or parts.scheme not in {"http", "https"}:
        raise Invalid(
            f"not a coordinator's URL: {without_password(url)!r}; one is like http://127.0.0.1:7070"
        )
    return host, port or (443 if parts.scheme == "https" else 80)
