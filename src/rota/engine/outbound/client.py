"""The HTTP client of the coordinator: one guarded request on a connection of its own.

Theory of operation. The name of a URL is resolved once, by the resolver that was given. Each
address is checked by the rules of `core/outbound/targets.py`, and the socket is connected to a
checked address as a number, so no second lookup can lead elsewhere. TLS still checks the
certificate against the name. Redirects are not followed: a redirect is an answer like any other.
Every request has an end: one time limit covers lookup, connection, TLS, request and answer.
"""

import asyncio
import re
import socket
import ssl
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address

from msgspec import Struct

from rota.core import limits
from rota.core.outbound.targets import OutboundPolicy, OutboundTarget, parse_target, why_refused
from rota.engine.outbound.responses import AnswerParser, BadAnswer, OutboundAnswer
from rota.errors import Invalid
from rota.tls import OLDEST, check_authorities

READ_BYTES = 64 * 1024
ADDRESSES_TRIED = 2  # of those that a name has
RESOLVER_THREADS = 4
USER_AGENT = "rota"

# The addresses of a host and a port, as texts. A parameter, so that tests can lie about names.
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_VALUE = re.compile(r"[\t -~]{0,4000}")
# Fields that the client writes itself, or that would change how the message is read.
RESERVED_HEADERS = frozenset(
    {
        "connection",
        "content-length",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
        "webhook-id",
        "webhook-signature",
        "webhook-timestamp",
    }
)


class OutboundRequest(Struct, frozen=True, kw_only=True):
    """A JSON document to post."""

    url: str
    body: bytes
    headers: Mapping[str, str] = {}
    timeout_ms: int
    max_answer_bytes: int


class OutboundFailed(Exception):  # noqa: N818 - read at the raise site
    """A request has got no answer. The text is for people, and has no path and no secret."""


class OutboundClient:
    def __init__(
        self,
        policy: OutboundPolicy,
        *,
        ca_file: str | None = None,
        resolve: Resolve | None = None,
        most: int = limits.MAX_OUTBOUND_CONNECTIONS,
        most_of_host: int = limits.MAX_OUTBOUND_OF_HOST,
    ) -> None:
        """`most`: requests under way at once, in all and to one host and port."""
        if ca_file is not None:
            check_authorities(ca_file, "outbound_ca")
        self.policy = policy
        self._ca_file = ca_file
        self._resolve = resolve or self._look_up
        self._threads: ThreadPoolExecutor | None = None
        self._tls: ssl.SSLContext | None = None
        self._most = most
        self._most_of_host = most_of_host
        self._under_way: Counter[tuple[str, int]] = Counter()

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def post(self, request: OutboundRequest) -> OutboundAnswer:
        """Send a request and read its answer; raises `OutboundFailed` when there is none."""
        try:
            target = parse_target(request.url)
        except Invalid as error:
            raise OutboundFailed(str(error)) from error
        key = target.host, target.port
        if self._under_way.total() >= self._most:
            raise OutboundFailed(f"{self._most} requests to other servers are under way")
        if self._under_way[key] >= self._most_of_host:
            raise OutboundFailed(f"{self._most_of_host} requests to {target.place} are under way")
        encoded = encode_request(target, request)
        self._under_way[key] += 1
        try:
            async with asyncio.timeout(request.timeout_ms / 1000):
                return await self._exchange(target, encoded, request.max_answer_bytes)
        except TimeoutError:
            raise OutboundFailed(
                f"{target.place} has not answered within {request.timeout_ms / 1000:g} s"
            ) from None
        except BadAnswer as error:
            raise OutboundFailed(f"{target.place}: {error}") from error
        except ssl.SSLCertVerificationError as error:
            raise OutboundFailed(
                f"the certificate of {target.place} is refused: {error.verify_message}; add its "
                "authority with outbound_ca"
            ) from error
        except OSError as error:
            raise OutboundFailed(
                f"{target.place} cannot be reached: {error.strerror or error}"
            ) from error
        finally:
            self._under_way[key] -= 1
            if not self._under_way[key]:
                del self._under_way[key]

    async def _exchange(
        self, target: OutboundTarget, encoded: bytes, max_answer_bytes: int
    ) -> OutboundAnswer:
        reader, writer = await self._open(target)
        try:
            writer.write(encoded)
            parser = AnswerParser(max_body_bytes=max_answer_bytes)
            while data := await reader.read(READ_BYTES):
                if (answer := parser.feed(data)) is not None:
                    return answer
            return parser.end()
        finally:
            # Not closed in good order: the server may keep sending, and nothing is read any more.
            writer.transport.abort()

    async def _open(
        self, target: OutboundTarget
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        problem: OSError | None = None
        for address in (await self._checked_addresses(target))[:ADDRESSES_TRIED]:
            try:
                return await self._connect(target, address)
            except ssl.SSLError:
                raise
            except OSError as error:
                problem = error
        assert problem is not None, "there is at least one address"
        raise problem

    async def _checked_addresses(self, target: OutboundTarget) -> list[str]:
        """The addresses of a host that may be called; refuses the host when none may be."""
        try:
            found: Sequence[str] = [str(ip_address(target.host))]
        except ValueError:
            found = await self._resolve(target.host, target.port)
        allowed, why = [], "has no address"
        for address in dict.fromkeys(found):
            refused = why_refused(self.policy, target.host, ip_address(address))
            if refused is None:
                allowed.append(address)
            else:
                why = refused
        if not allowed:
            raise OutboundFailed(f"{target.host} is not called: it {why}")
        return allowed

    async def _connect(
        self, target: OutboundTarget, address: str
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        loop = asyncio.get_running_loop()
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        line = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            line.setblocking(False)  # noqa: FBT003 - the socket's own signature
            await loop.sock_connect(line, (address, target.port))
            return await asyncio.open_connection(
                sock=line,
                ssl=self._context() if target.is_tls else None,
                server_hostname=target.host if target.is_tls else None,
                limit=READ_BYTES,
            )
        except BaseException:
            line.close()
            raise

    async def _look_up(self, host: str, port: int) -> list[str]:
        """Resolve a name on a thread of our own: a slow name server holds up nothing else."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(RESOLVER_THREADS, "rota-resolver")
        found = await asyncio.get_running_loop().run_in_executor(
            self._threads, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        )
        return [str(address[0]) for *_, address in found]

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            context = ssl.create_default_context()
            context.minimum_version = OLDEST
            if self._ca_file is not None:
                context.load_verify_locations(self._ca_file)
            self._tls = context
        return self._tls


def encode_request(target: OutboundTarget, request: OutboundRequest) -> bytes:
    """The bytes of a request; a header that could end its line early is refused."""
    lines = [
        f"POST {target.path} HTTP/1.1",
        f"host: {target.authority}",
        f"user-agent: {USER_AGENT}",
        "accept: application/json",
        "content-type: application/json",
        f"content-length: {len(request.body)}",
        "connection: close",
    ]
    for name, value in request.headers.items():
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise OutboundFailed(f"the header {name!r} has characters that a header cannot have")
        lines.append(f"{name}: {value}")
    return "\r\n".join([*lines, "", ""]).encode("ascii") + request.body


def check_headers(headers: Mapping[str, str], field: str = "headers") -> None:
    """Refuse headers of a caller that are malformed, or that the client writes itself."""
    for name, value in headers.items():
        if name.lower() in RESERVED_HEADERS:
            raise Invalid(f"{field}: {name!r} is set by the coordinator itself", field=field)
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise Invalid(
                f"{field}: {name!r} is not a header name, or its value is not printable ASCII "
                "of at most 4000 characters",
                field=field,
            )


def elapsed_ms(since_s: float) -> int:
    """Milliseconds since a value of `time.monotonic`."""
    return round((time.monotonic() - since_s) * 1000)
