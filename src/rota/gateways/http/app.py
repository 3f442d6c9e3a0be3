"""The HTTP application: all endpoints, the dashboard, and the OpenAPI document."""

from functools import cache

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from rota.dashboard import site as dashboard
from rota.gateways.http import openapi
from rota.gateways.http.endpoints import ENDPOINTS
from rota.gateways.http.routing.endpoint import HttpServices
from rota.gateways.http.routing.responses import (
    HttpResponse,
    StaticResponse,
    encoded,
    problem,
    send_response,
    unknown_path,
    wrong_method,
)
from rota.gateways.http.routing.router import Application

# The answer to a request for a socket without an upgrade.
NO_UPGRADE = HttpResponse(b"Expected WebSocket", 400, "text/plain; charset=utf-8")


def create_app(services: HttpServices) -> Application:
    """Build the whole HTTP side of a coordinator."""
    site = Starlette(
        routes=[
            *dashboard.routes(_not_found),
            Route("/docs", StaticResponse(openapi.docs_page), methods=["GET"]),
            Route("/openapi.json", StaticResponse(_openapi), methods=["GET"]),
            Route("/ws", StaticResponse(lambda: NO_UPGRADE), methods=["GET"]),
        ],
        exception_handlers={HTTPException: _refuse},
    )
    return Application(services, ENDPOINTS, site)


@cache
def _openapi() -> HttpResponse:
    """The document, which takes longer to make than the rest of the application."""
    return encoded(openapi.document(ENDPOINTS))


async def _not_found(scope: Scope, _receive: Receive, send: Send) -> None:
    await send_response(scope, send, problem(unknown_path(scope["path"])))


async def _refuse(request: Request, error: Exception) -> Response:
    """Answer for a page that does not exist, or not with this method."""
    assert isinstance(error, HTTPException)
    path = request.url.path
    if error.status_code == 404 and _is_from_a_browser(request):
        return dashboard.lost_page(request.scope.get(dashboard.ROOT, ""))
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "GET").split(", ")
        answer = problem(wrong_method(request.method, path, allowed))
    else:
        answer = problem(unknown_path(path))
    return Response(answer.content, answer.status, dict(answer.headers), answer.media_type)


def _is_from_a_browser(request: Request) -> bool:
    """Whether a person has opened this address, rather than a program that calls the API."""
    is_page = "text/html" in request.headers.get("accept", "")
    return is_page and not request.url.path.startswith("/api/")
