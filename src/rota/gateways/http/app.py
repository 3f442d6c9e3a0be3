"""What is offered over HTTP? All endpoints, the pages, and the document that describes them."""

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from rota.engine.coordinator import Coordinator
from rota.gateways.gate import Gate
from rota.gateways.http import (
    jobs,
    openapi,
    operations,
    pages,
    queues,
    runs,
    tasks,
    tokens,
    workers,
    workflows,
)
from rota.gateways.http.answers import Page, encoded
from rota.gateways.http.endpoint import Endpoint, Service
from rota.gateways.http.problems import problem, unknown_path, wrong_method
from rota.gateways.http.serving import Application
from rota.gateways.http.traffic import Traffic
from rota.settings import Settings

ENDPOINTS: tuple[Endpoint, ...] = (
    *tasks.ENDPOINTS,
    *queues.ENDPOINTS,
    *workers.ENDPOINTS,
    *jobs.ENDPOINTS,
    *workflows.ENDPOINTS,
    *runs.ENDPOINTS,
    *tokens.ENDPOINTS,
    *operations.ENDPOINTS,
)


def create_app(coordinator: Coordinator, gate: Gate, settings: Settings) -> ASGIApp:
    """The whole HTTP side of a coordinator."""
    site = Starlette(
        routes=[
            Route("/", Page(pages.index()), methods=["GET"]),
            Route("/docs", Page(pages.docs()), methods=["GET"]),
            Route("/openapi.json", Page(encoded(openapi.document(ENDPOINTS))), methods=["GET"]),
        ],
        exception_handlers={HTTPException: _refuse},
    )
    return Application(Service(coordinator, gate, settings, Traffic()), ENDPOINTS, site)


async def _refuse(request: Request, error: Exception) -> Response:
    """Starlette found no page, or not one for this method."""
    assert isinstance(error, HTTPException)
    path = request.url.path
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "GET").split(", ")
        answer = problem(wrong_method(request.method, path, allowed))
    else:
        answer = problem(unknown_path(path))
    return Response(answer.content, answer.status, dict(answer.headers), answer.media_type)
