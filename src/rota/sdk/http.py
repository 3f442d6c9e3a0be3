"""How are calls carried over HTTP? On kept-open connections, blocking or on an event loop.

Connections are pooled per transport (blocking ones) and per event loop (the others). A request is
written whole, with its length, and its response read whole. Nothing is sent twice here: whether
that is safe is known only to whoever makes the call (see `client`).
"""

import asyncio
import os
import ssl
import threading
from urllib.parse import SplitResult, urlsplit

from rota.errors import Invalid
from rota.sdk.blocking import BlockingPool
from rota.sdk.endpoint import Endpoint
from rota.sdk.looping import LoopPool
from rota.sdk.transport import Request, Response


class HttpTransport:
    """Speaks to one coordinator, or to what stands before it."""

    is_embedded = False

    def __init__(self, url: str, token: str | None = None) -> None:
        self.endpoint = endpoint_of(url, token)
        self._blocking = BlockingPool(self.endpoint)
        self._looping: dict[asyncio.AbstractEventLoop, LoopPool] = {}
        self._lock = threading.Lock()
        self._process_id = os.getpid()

    @property
    def address(self) -> str:
        return self.endpoint.address

    def leave(self, endpoint: Endpoint) -> None:
        """There is no other coordinator to go to."""

    def send(self, request: Request) -> Response:
        self._notice_fork()
        written = self.endpoint.written(request)
        return self._blocking.exchange(written, timeout_s=request.timeout_s)

    async def asend(self, request: Request) -> Response:
        self._notice_fork()
        loop = asyncio.get_running_loop()
        pool = self._looping.get(loop)
        if pool is None:
            pool = self._add_pool(loop)
        written = self.endpoint.written(request)
        return await pool.exchange(written, timeout_s=request.timeout_s)

    def close(self) -> None:
        self._blocking.close()
        with self._lock:
            pools = list(self._looping.values())
            self._looping.clear()
        for pool in pools:
            pool.close()

    def _add_pool(self, loop: asyncio.AbstractEventLoop) -> LoopPool:
        with self._lock:
            # Programs come and go on loops of their own; what is left of those is let go of.
            for ended in [one for one in self._looping if one.is_closed()]:
                del self._looping[ended]
            return self._looping.setdefault(loop, LoopPool(self.endpoint, loop))

    def _notice_fork(self) -> None:
        """A forked child must not write into its parent's connections."""
        if os.getpid() != self._process_id:
            self._process_id = os.getpid()
            self._blocking = BlockingPool(self.endpoint)
            self._looping = {}
            self._lock = threading.Lock()


def endpoint_of(url: str, token: str | None) -> Endpoint:
    parts = urlsplit(url)
    host, port = _host_and_port(url, parts)
    if parts.username or parts.password:
        raise Invalid("a coordinator's URL carries no login; give the token as ROTA_TOKEN")
    if parts.query or parts.fragment:
        raise Invalid(f"a coordinator's URL ends with its path: {url!r}")
    if token is not None and not (token.isascii() and token.isprintable()):
        raise Invalid("a token consists of printable ASCII characters")
    return Endpoint(
        host=host,
        port=port,
        base=parts.path.rstrip("/"),
        token=token,
        tls=ssl.create_default_context() if parts.scheme == "https" else None,
    )


def _host_and_port(url: str, parts: SplitResult) -> tuple[str, int]:
    try:
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise Invalid(f"not a coordinator's URL: {url!r} ({error})") from error
    if not host or parts.scheme not in {"http", "https"}:
        raise Invalid(f"not a coordinator's URL: {url!r}; one is like http://127.0.0.1:7070")
    return host, port or (443 if parts.scheme == "https" else 80)
