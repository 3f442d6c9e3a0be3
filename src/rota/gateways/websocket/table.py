"""Which messages are understood? All rows, found by the kind of address and the type."""

from rota.gateways.websocket import looking, reports, streaming, subscriptions, tasks, workers
from rota.gateways.websocket.routing import ANY, KINDS, Route

ROUTES: tuple[Route, ...] = (
    *workers.ROUTES,
    *reports.ROUTES,
    *tasks.ROUTES,
    *looking.ROUTES,
    *subscriptions.ROUTES,
    *streaming.ROUTES,
)

TABLE: dict[tuple[str, str], Route] = {
    (kind, route.type): route
    for route in ROUTES
    for kind in (KINDS if route.kind == ANY else {route.kind})
}
