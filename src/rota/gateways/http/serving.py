"""How does a request find its handler, and its answer the way back?

Endpoints are found by a look-up in a table, since every templated path has its parameter in the
third place, and a second one, if any, in the fifth; trying a list of patterns would cost more than
many of the handlers do. What is not in the table (pages, and the server's own life) is left to the
site behind it.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple
from urllib.parse import unquote

import structlog
from starlette.types import ASGIApp, Receive, Scope, Send

from rota.core.access import LOCAL, Caller
from rota.errors import Internal, RotaError, StoreError, TooMany
from rota.gateways.admission import admit
from rota.gateways.gate import Gate
from rota.gateways.http import cookies
from rota.gateways.http.answers import Answered, Streamed, encoded, send_answer
from rota.gateways.http.bodies import ClientGone, decode, decode_text, read_body
from rota.gateways.http.endpoint import Call, Endpoint, Reading, Service
from rota.gateways.http.parameters import parse
from rota.gateways.http.problems import presentable, problem, wrong_method

log = structlog.get_logger("rota.http")

PARAMETER_PLACES = (2, 4)
ANYTHING = "/"  # stands for a parameter; no part of a path can be this
Methods = dict[str, Endpoint]


class Found(NamedTuple):
    """The endpoints of a path by method, and the parameters in it."""

    methods: Methods
    parameter: str = ""
    second: str = ""


class Table:
    """Which endpoint does a path mean?"""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self._by_path: dict[tuple[str, ...], Methods] = {}
        self._plain: dict[str, Found] = {}  # the paths without parameters
        for endpoint in endpoints:
            parts = tuple(
                ANYTHING if part.startswith("{") else part for part in endpoint.path[1:].split("/")
            )
            places = tuple(place for place, part in enumerate(parts) if part == ANYTHING)
            assert places == PARAMETER_PLACES[: len(places)]
            methods = self._by_path.setdefault(parts, {})
            methods[endpoint.method] = endpoint
            if not places:
                self._plain[endpoint.path] = Found(methods)

    def find(self, raw_path: str) -> Found | None:
        """The endpoints of a path; the one with the fewest parameters is meant."""
        plain = self._plain.get(raw_path)
        if plain is not None:
            return plain
        parts = raw_path[1:].split("/")
        methods = self._by_path.get(tuple(parts))
        parameters: list[str] = []
        for place in PARAMETER_PLACES:
            if methods is not None or len(parts) <= place or not parts[place]:
                break
            parameters.append(unquote(parts[place]))
            parts[place] = ANYTHING
            methods = self._by_path.get(tuple(parts))
        return None if methods is None else Found(methods, *parameters)


class Application:
    """The ASGI application: endpoints by table, sockets, everything else by the site."""

    def __init__(
        self, service: Service, endpoints: Iterable[Endpoint], site: ASGIApp, sockets: ASGIApp
    ) -> None:
        self._service = service
        self._table = Table(endpoints)
        self._site = site
        self._sockets = sockets

    def is_brisk(self, scope: Scope) -> bool:
        """Whether a request may be begun without a task: most of those are answered at once."""
        found = self._table.find(_raw_path(scope))
        endpoint = None if found is None else found.methods.get(scope["method"])
        return endpoint is not None and endpoint.is_brisk

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._sockets(scope, receive, send)
            return
        found = self._table.find(_raw_path(scope)) if scope["type"] == "http" else None
        if found is None:
            await self._site(scope, receive, send)
            return
        methods = found.methods
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        endpoint = methods.get(method)
        if endpoint is None:
            await send_answer(scope, send, problem(wrong_method(method, scope["path"], methods)))
            return
        traffic = self._service.traffic
        traffic.in_flight += 1
        try:
            answer = await self._answer(endpoint, found, scope, receive)
            await send_answer(scope, send, answer)
            traffic.note(endpoint.method, endpoint.path, answer.status)
        except ClientGone:
            pass  # nobody is left to answer
        finally:
            traffic.in_flight -= 1

    async def _answer(
        self, endpoint: Endpoint, found: Found, scope: Scope, receive: Receive
    ) -> Answered | Streamed:
        try:
            call = await self._call(endpoint, found, scope, receive)
            value = await endpoint.handler(call)
            if isinstance(value, Answered | Streamed):
                return value
            return encoded(value, endpoint.status)
        except ClientGone:
            raise
        except Exception as error:  # noqa: BLE001 - the last place that can answer
            return endpoint.refuse(_shown(error, endpoint))

    async def _call(
        self, endpoint: Endpoint, found: Found, scope: Scope, receive: Receive
    ) -> Call[Any, Any]:
        service = self._service
        most = service.settings.max_connections
        if service.traffic.in_flight > most and endpoint.action is not None:
            raise TooMany(
                f"more than {most} requests are under way",
                limit=most,
                setting="max_connections",
                retry_after_s=1,
            )
        headers = dict(scope["headers"])
        caller = await _admit(service.gate, endpoint, headers)
        query = parse(scope["query_string"], endpoint.query)
        body = None
        if endpoint.takes_body and endpoint.reads is not Reading.STREAM:
            declared = headers.get(b"content-length")
            content = await read_body(
                receive, declared=declared, most=service.settings.max_body_bytes
            )
            body = _read(endpoint, content)
        return Call(service, caller, found.parameter, body, query, receive, found.second, headers)


def _read(endpoint: Endpoint, content: bytes) -> Any:
    if endpoint.reads is Reading.TEXT:
        return decode_text(content)
    return decode(content, endpoint.decoder) if content or endpoint.is_body_needed else None


async def _admit(gate: Gate, endpoint: Endpoint, headers: dict[bytes, bytes]) -> Caller:
    if endpoint.action is None:
        return LOCAL
    if b"authorization" in headers:
        caller = await admit(gate, headers, is_change=endpoint.is_change)
    else:
        cookies.check_browser(gate, headers, is_change=endpoint.is_change)
        secret = cookies.secret_of(headers)
        caller = gate.stranger() if secret is None else await cookies.identify(gate, secret)
    endpoint.check(caller)
    return caller


def _raw_path(scope: Scope) -> str:
    """The path before percent-decoding, so that a name may have a slash in it."""
    raw: bytes | None = scope.get("raw_path")
    path: str = scope["path"] if raw is None else raw.decode("latin-1").partition("?")[0]
    return path


def _shown(error: Exception, endpoint: Endpoint) -> RotaError:
    """What the caller is told; what is our own fault is logged with its reason."""
    shown = presentable(error)
    if isinstance(error, StoreError) or isinstance(shown, Internal):
        log.error("request_failed", method=endpoint.method, path=endpoint.path, exc_info=error)
    return shown
