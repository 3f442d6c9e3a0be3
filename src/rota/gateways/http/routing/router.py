"""The router: finds the endpoint of a request and sends its response.

Endpoints are found by a look-up in a table, since every templated path has its parameter in the
third place, and a second one, if any, in the fifth; trying a list of patterns would cost more than
many of the handlers do. What is not in the table (pages, and the server's own life) is left to the
site behind it.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec
import structlog
from starlette.types import ASGIApp, Receive, Scope, Send

from rota.core import limits
from rota.core.access import LOCAL, Caller
from rota.errors import RotaError
from rota.gateways.auth.authenticator import Authenticator
from rota.gateways.auth.request_auth import (
    authenticate,
    authenticate_at_once,
    authenticate_browser,
)
from rota.gateways.errors import presented
from rota.gateways.http.routing.bodies import (
    ClientGone,
    decode,
    decode_text,
    is_whole,
    read_body_within_quota,
    read_small_body,
    read_whole_body,
    upload,
)
from rota.gateways.http.routing.endpoint import BodyReading, HttpCall, HttpEndpoint, HttpServices
from rota.gateways.http.routing.parameters import parse
from rota.gateways.http.routing.responses import (
    HttpResponse,
    StreamedResponse,
    encoded,
    problem,
    send_response,
    wrong_method,
)
from rota.gateways.http.server.exchange import RequestHead
from rota.gateways.quotas import (
    QuotaExceeded,
    Quotas,
    Reservation,
    address_of,
    address_of_host,
)
from rota.settings import Settings

log = structlog.get_logger("rota.http")

PARAMETER_PLACES = (2, 4)
ANYTHING = "/"  # replaces a parameter; no part of a path equals it
NO_PARAMETERS: Mapping[str, str] = MappingProxyType({})
Methods = dict[str, HttpEndpoint]


class RouteMatch(NamedTuple):
    """The endpoints of a path by method, and the parameters in it."""

    methods: Methods
    path: Mapping[str, str] = NO_PARAMETERS


class RouteTable:
    """The endpoints by path."""

    def __init__(self, endpoints: Iterable[HttpEndpoint]) -> None:
        self._by_path: dict[tuple[str, ...], tuple[Methods, tuple[str, ...]]] = {}
        self._plain: dict[str, RouteMatch] = {}  # the paths without parameters
        # By the parts before a parameter that may have slashes: the parts after it, the longest
        # first, with the endpoints and the name of the parameter.
        self._by_start: dict[tuple[str, ...], list[tuple[tuple[str, ...], Methods, str]]] = {}
        for endpoint in endpoints:
            parts = tuple(
                ANYTHING if part.startswith("{") else part for part in endpoint.path[1:].split("/")
            )
            places = tuple(place for place, part in enumerate(parts) if part == ANYTHING)
            assert places == PARAMETER_PLACES[: len(places)]
            methods, names = self._by_path.setdefault(parts, ({}, endpoint.parameters))
            assert names == endpoint.parameters, f"{endpoint.path} has two names for a parameter"
            methods[endpoint.method] = endpoint
            if endpoint.takes_slashes and places:
                self._add_by_start(endpoint.path, parts, methods, names)
            if not places:
                self._plain[endpoint.path] = RouteMatch(methods)

    def _add_by_start(
        self, path: str, parts: tuple[str, ...], methods: Methods, names: tuple[str, ...]
    ) -> None:
        assert len(names) == 1, f"{path} has two parameters"
        place = parts.index(ANYTHING)
        known = self._by_start.setdefault(parts[:place], [])
        entry = (parts[place + 1 :], methods, names[0])
        if entry not in known:
            known.append(entry)
            known.sort(key=lambda one: -len(one[0]))

    def find(self, raw_path: str) -> RouteMatch | None:
        """Find the endpoints of a path; a plain path goes before one with parameters."""
        plain = self._plain.get(raw_path)
        if plain is not None:
            return plain
        parts = raw_path[1:].split("/")
        return self._find_templated(parts.copy()) or self._find_by_start(parts)

    def _find_templated(self, parts: list[str]) -> RouteMatch | None:
        values: list[str] = []
        for place in PARAMETER_PLACES:
            if len(parts) <= place or not parts[place]:
                return None
            values.append(unquote(parts[place]))
            parts[place] = ANYTHING
            found = self._by_path.get(tuple(parts))
            if found is not None:
                methods, names = found
                return RouteMatch(methods, dict(zip(names, values, strict=True)))
        return None

    def _find_by_start(self, parts: list[str]) -> RouteMatch | None:
        first = PARAMETER_PLACES[0]
        for end, methods, name in self._by_start.get(tuple(parts[:first]), ()):
            last = len(parts) - len(end)
            value = "/".join(parts[first:last])
            if value and tuple(parts[last:]) == end:
                return RouteMatch(methods, {name: unquote(value)})
        return None


class Application:
    """The ASGI application: endpoints by table, everything else by the site."""

    def __init__(
        self,
        services: HttpServices,
        endpoints: Iterable[HttpEndpoint],
        site: ASGIApp,
    ) -> None:
        self._services = services
        known = [*endpoints]
        self._table = RouteTable(known)
        self._eager = {(one.method, one.path.encode()) for one in known if one.starts_eagerly}
        assert all(b"{" not in path for _, path in self._eager), "they are looked up as they are"
        self._site = site

    def starts_eagerly(self, head: RequestHead) -> bool:
        """Whether the request starts without a task, since most like it never wait."""
        return (head.method, head.raw_path) in self._eager

    def is_crowded(self) -> bool:
        """Whether most requests would be refused now, for want of a place."""
        return self._services.quotas.requests.places.is_scarce

    def refuse_early(self, head: RequestHead) -> HttpResponse | None:
        """Refuse a request for want of a place, before a scope, a task or its body exists.

        Only while places are scarce, and only if the caller is known without the store. Whatever
        else is wrong with the request is found in the ordinary way.
        """
        services = self._services
        places = services.quotas.requests.places
        if not places.is_scarce:
            return None
        endpoint = self._find(head)
        if endpoint is None or endpoint.action is None or endpoint.keeps_work:
            return None
        try:
            caller = authenticate_at_once(
                services.authenticator, dict(head.headers), is_change=endpoint.is_change
            )
            if caller is None:
                return None
            endpoint.check(caller)
        except RotaError:
            return None
        client = head.endpoints.client
        refusal = places.refusal(caller.token_id or address_of_host(client and client[0]), caller)
        if refusal is None:
            return None
        answer = _refused(endpoint.refuse, refusal)
        services.traffic.note(endpoint.method, endpoint.path, answer.status)
        return answer

    def _find(self, head: RequestHead) -> HttpEndpoint | None:
        found = self._table.find(head.raw_path.decode("latin-1"))
        if found is None:
            return None
        return found.methods.get("GET" if head.method == "HEAD" else head.method)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = self._table.find(_raw_path(scope)) if scope["type"] == "http" else None
        if found is None:
            await self._site(scope, receive, send)
            return
        methods = found.methods
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        endpoint = methods.get(method)
        if endpoint is None:
            await send_response(scope, send, problem(wrong_method(method, scope["path"], methods)))
            return
        traffic = self._services.traffic
        traffic.in_flight += 1
        reservation = Reservation(address_of(scope))
        try:
            answer = await self._answer(endpoint, found, scope, receive, reservation)
            await send_response(scope, send, answer)
            traffic.note(endpoint.method, endpoint.path, answer.status)
        except ClientGone:
            pass  # there is no one to answer
        finally:
            reservation.end()
            traffic.in_flight -= 1

    async def _answer(
        self,
        endpoint: HttpEndpoint,
        found: RouteMatch,
        scope: Scope,
        receive: Receive,
        reservation: Reservation,
    ) -> HttpResponse | StreamedResponse:
        try:
            call = await self._call(endpoint, found, scope, receive, reservation)
            value = await endpoint.handler(call)
            if isinstance(value, HttpResponse | StreamedResponse):
                return value
            return encoded(value, endpoint.status)
        except ClientGone:
            raise
        except QuotaExceeded as error:
            return _refused(endpoint.refuse, error)
        except Exception as error:  # noqa: BLE001 - the last place that can answer
            shown = presented(
                error, log, "request_failed", method=endpoint.method, path=endpoint.path
            )
            return endpoint.refuse(shown)

    async def _call(
        self,
        endpoint: HttpEndpoint,
        found: RouteMatch,
        scope: Scope,
        receive: Receive,
        reservation: Reservation,
    ) -> HttpCall[Any, Any]:
        """Admit a request, read it whole, and give it a place.

        In this order: a request holds a place only once its caller is known and its body is
        there, and one that would not get a place is refused before its body is read.
        """
        services = self._services
        headers = dict(scope["headers"])
        body: Any = None
        if endpoint.action is None:
            caller, query = LOCAL, parse(scope["query_string"], endpoint.query)
            if endpoint.takes_body:
                reservation.take(services.quotas.anonymous)
                body = _read(endpoint, await read_small_body(receive, headers))
        else:
            caller = reservation.caller = await _admit(services.authenticator, endpoint, headers)
            reservation.holder = caller.token_id or reservation.holder
            query = parse(scope["query_string"], endpoint.query)
            quotas = services.quotas
            pools = quotas.keeping_work if endpoint.keeps_work else quotas.requests
            if not endpoint.takes_body:
                reservation.take(pools.places)
            elif endpoint.reads is BodyReading.STREAM:
                pools.places.check(reservation.holder, caller)
                receive = upload(
                    receive, quotas, reservation, in_memory=services.keeps_uploads_in_memory
                )
            else:
                most, setting = _body_limit(endpoint, services.settings)
                if is_whole(scope):
                    reservation.take(pools.places)
                    declared = headers.get(b"content-length")
                    content = await read_whole_body(
                        scope, receive, declared=declared, most=most, setting=setting
                    )
                    if len(content) > limits.UNCOUNTED_BODY_BYTES:
                        reservation.take(pools.body_bytes, len(content))
                else:
                    pools.places.check(reservation.holder, caller)
                    content = await read_body_within_quota(
                        receive, headers, pools, reservation, most=most, setting=setting
                    )
                    reservation.take(pools.places)
                body = _read(endpoint, content)
            if endpoint.waits_in is not None:
                query = _reserve_wait(quotas, endpoint, reservation, body=body, query=query)
        return HttpCall(services, caller, found.path, body, query, receive, headers, reservation)


def _body_limit(endpoint: HttpEndpoint, settings: Settings) -> tuple[int, str]:
    """The most bytes a body of this endpoint may have, and the name of that limit."""
    general = settings.max_body_bytes, "max_body_bytes"
    if endpoint.body_limit is None:
        return general
    return min(general, (getattr(limits, endpoint.body_limit), endpoint.body_limit))


def _read(endpoint: HttpEndpoint, content: bytes) -> Any:
    if endpoint.reads is BodyReading.TEXT:
        return decode_text(content)
    return decode(content, endpoint.decoder) if content or endpoint.is_body_needed else None


def _reserve_wait(
    quotas: Quotas, endpoint: HttpEndpoint, reservation: Reservation, *, body: Any, query: Any
) -> Any:
    """Count a request as a long poll, if it is one; return its query."""
    if not getattr(query if endpoint.waits_in == "query" else body, "wait_ms", 0):
        return query
    if not endpoint.keeps_work:
        reservation.take(quotas.long_polls)
    elif reservation.try_take(quotas.long_polls):
        # While it waits, its place serves others.
        reservation.release(quotas.keeping_work.places)
    else:
        # A heartbeat is not refused because it would have waited as well.
        query = msgspec.structs.replace(query, wait_ms=0)
    return query


async def _admit(
    authenticator: Authenticator, endpoint: HttpEndpoint, headers: dict[bytes, bytes]
) -> Caller:
    # Nearly always known without the store, and then without a coroutine.
    caller = authenticate_at_once(authenticator, headers, is_change=endpoint.is_change)
    if caller is None:
        identify = authenticate if b"authorization" in headers else authenticate_browser
        caller = await identify(authenticator, headers, is_change=endpoint.is_change)
    endpoint.check(caller)
    return caller


def _raw_path(scope: Scope) -> str:
    """The path before percent-decoding, so that a name may have a slash in it."""
    raw: bytes | None = scope.get("raw_path")
    path: str = scope["path"] if raw is None else raw.decode("latin-1").partition("?")[0]
    return path


@lru_cache(maxsize=256)
def _refused(refuse: Callable[[RotaError], HttpResponse], error: QuotaExceeded) -> HttpResponse:
    """The answer, encoded once: there are few quotas, and few ways to refuse."""
    return refuse(error)
