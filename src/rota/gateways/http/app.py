"""What is offered over HTTP? All endpoints, the pages, and the document that describes them."""

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from rota.dashboard import site as dashboard
from rota.engine.coordinator import Coordinator
from rota.gateways.gate import Gate
from rota.gateways.http import (
    board,
    events,
    failures,
    jobs,
    locks,
    login,
    memory,
    openapi,
    operations,
    pages,
    queues,
    runs,
    scale,
    services,
    system,
    tasks,
    tokens,
    workers,
    workflows,
)
from rota.gateways.http.answers import Answered, Page, encoded, send_answer
from rota.gateways.http.endpoint import Endpoint, Service
from rota.gateways.http.problems import problem, unknown_path, wrong_method
from rota.gateways.http.serving import Application
from rota.gateways.http.traffic import Traffic
from rota.settings import Settings

ENDPOINTS: tuple[Endpoint, ...] = (
    *tasks.ENDPOINTS,
    *queues.ENDPOINTS,
    *scale.ENDPOINTS,
    *workers.ENDPOINTS,
    *jobs.ENDPOINTS,
    *workflows.ENDPOINTS,
    *runs.ENDPOINTS,
    *memory.ENDPOINTS,
    *locks.ENDPOINTS,
    *events.ENDPOINTS,
    *services.ENDPOINTS,
    *tokens.ENDPOINTS,
    *login.ENDPOINTS,
    *board.ENDPOINTS,
    *failures.ENDPOINTS,
    *system.ENDPOINTS,
    *operations.ENDPOINTS,
)


# What a caller is told who asks for a socket without wanting one.
NO_UPGRADE = Answered(b"Expected WebSocket", 400, "text/plain; charset=utf-8")


def create_app(
    coordinator: Coordinator, gate: Gate, settings: Settings, sockets: ASGIApp
) -> ASGIApp:
    """The whole HTTP side of a coordinator, and the door to its sockets."""
    site = Starlette(
        routes=[
            *dashboard.routes(_lost),
            Route("/docs", Page(pages.docs()), methods=["GET"]),
            Route("/openapi.json", Page(encoded(openapi.document(ENDPOINTS))), methods=["GET"]),
            Route("/ws", Page(NO_UPGRADE), methods=["GET"]),
        ],
        exception_handlers={HTTPException: _refuse},
    )
    service = Service(coordinator, gate, settings, Traffic())
    return Application(service, ENDPOINTS, site, sockets)


async def _lost(scope: Scope, _receive: Receive, send: Send) -> None:
    await send_answer(scope, send, problem(unknown_path(scope["path"])))


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
