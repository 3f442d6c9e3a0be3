"""How does a request find its handler, and its answer the way back?

Endpoints are found by one look-up in a table, since every templated path has its one parameter in
the third place; trying a list of patterns would cost more than many of the handlers do. What is not
in the table (pages, and the server's own life) is left to the site behind it.
"""

from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote

import structlog
from starlette.types import ASGIApp, Receive, Scope, Send

from rota.core.access import LOCAL, Caller
from rota.errors import Internal, RotaError, StoreError, TooMany, Unauthorized
from rota.gateways.gate import Gate
from rota.gateways.http.answers import Answered, encoded, send_answer
from rota.gateways.http.bodies import ClientGone, decode, read_body
from rota.gateways.http.endpoint import Call, Endpoint, Service
from rota.gateways.http.parameters import parse
from rota.gateways.http.problems import presentable, problem, wrong_method

log = structlog.get_logger("rota.http")

PARAMETER_PLACE = 2
ANYTHING = "/"  # stands for the parameter; no part of a path can be this
Methods = dict[str, Endpoint]


class Table:
    """Which endpoint does a path mean?"""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self._by_path: dict[tuple[str, ...], Methods] = {}
        for endpoint in endpoints:
            parts = tuple(
                ANYTHING if part.startswith("{") else part for part in endpoint.path[1:].split("/")
            )
            assert ANYTHING not in parts or parts.index(ANYTHING) == PARAMETER_PLACE
            self._by_path.setdefault(parts, {})[endpoint.method] = endpoint

    def find(self, raw_path: str) -> tuple[Methods, str] | None:
        """The endpoints of a path by method, and the parameter in it."""
        parts = raw_path[1:].split("/")
        methods = self._by_path.get(tuple(parts))
        if methods is not None:
            return methods, ""
        if len(parts) <= PARAMETER_PLACE or not parts[PARAMETER_PLACE]:
            return None
        parameter, parts[PARAMETER_PLACE] = unquote(parts[PARAMETER_PLACE]), ANYTHING
        methods = self._by_path.get(tuple(parts))
        return None if methods is None else (methods, parameter)


class Application:
    """The ASGI application: endpoints by table, everything else by the site."""

    def __init__(self, service: Service, endpoints: Iterable[Endpoint], site: ASGIApp) -> None:
        self._service = service
        self._table = Table(endpoints)
        self._site = site

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = self._table.find(_raw_path(scope)) if scope["type"] == "http" else None
        if found is None:
            await self._site(scope, receive, send)
            return
        methods, parameter = found
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        endpoint = methods.get(method)
        if endpoint is None:
            await send_answer(send, problem(wrong_method(method, scope["path"], methods)))
            return
        traffic = self._service.traffic
        traffic.in_flight += 1
        try:
            answer = await self._answer(endpoint, parameter, scope, receive)
            await send_answer(send, answer)
            traffic.note(endpoint.method, endpoint.path, answer.status)
        except ClientGone:
            pass  # nobody is left to answer
        finally:
            traffic.in_flight -= 1

    async def _answer(
        self, endpoint: Endpoint, parameter: str, scope: Scope, receive: Receive
    ) -> Answered:
        try:
            call = await self._call(endpoint, parameter, scope, receive)
            value = await endpoint.handler(call)
            return value if isinstance(value, Answered) else encoded(value, endpoint.status)
        except ClientGone:
            raise
        except Exception as error:  # noqa: BLE001 - the last place that can answer
            return endpoint.refuse(_shown(error, endpoint))

    async def _call(
        self, endpoint: Endpoint, parameter: str, scope: Scope, receive: Receive
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
        if endpoint.takes_body:
            declared = headers.get(b"content-length")
            content = await read_body(
                receive, declared=declared, most=service.settings.max_body_bytes
            )
            if content or endpoint.is_body_needed:
                body = decode(content, endpoint.decoder)
        return Call(service, caller, parameter, body, query, receive)


async def _admit(gate: Gate, endpoint: Endpoint, headers: dict[bytes, bytes]) -> Caller:
    if endpoint.action is None:
        return LOCAL
    secret = _secret(headers.get(b"authorization"))
    if secret is None:
        gate.check_browser(
            host=_text(headers.get(b"host")),
            origin=_text(headers.get(b"origin")),
            is_change=endpoint.is_change,
        )
    caller = await gate.identify(secret)
    endpoint.check(caller)
    return caller


def _secret(header: bytes | None) -> str | None:
    if header is None:
        return None
    scheme, _, secret = header.decode("latin-1").partition(" ")
    if scheme.lower() != "bearer":
        raise Unauthorized("only `Authorization: Bearer …` is understood")
    return secret.strip()


def _text(header: bytes | None) -> str | None:
    return None if header is None else header.decode("latin-1")


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
