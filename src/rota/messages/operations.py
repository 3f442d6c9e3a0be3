"""Health, problems and access tokens on the wire."""

from typing import Annotated, Literal

from msgspec import Meta

from rota.core.tasks.model import Name
from rota.messages.base import Answer, Request
from rota.messages.workers import Names


class Check(Answer, frozen=True, kw_only=True):
    component: str
    isHealthy: bool  # noqa: N815 - the seed wire's spelling
    detail: str | None = None


class HealthAnswer(Answer, frozen=True, kw_only=True):
    status: Literal["healthy", "unhealthy"]
    checks: list[Check]
    components: list[Check]  # the same as `checks`
    uptime: float  # seconds
    timestamp: int  # Unix time in ms
    version: str
    warnings: list[str] = []  # such as listening without tokens


class Problem(Answer, frozen=True, kw_only=True):
    """`application/problem+json`; the facts of an error are additional fields."""

    code: str
    title: str
    status: int
    detail: str


class TokenRequest(Request, frozen=True, kw_only=True):
    scopes: Annotated[
        list[Literal["admin", "submit", "read", "worker"]], Meta(min_length=1, max_length=4)
    ]
    name: Name = "unnamed"
    # Bound to these; absent: no access to queues if it is bound to services, else not bound.
    queues: Names | None = None
    # The same for services.
    services: Names | None = None
    worker_id: Name | None = None  # bound to this one; absent: not bound
    expires_in_ms: Annotated[int, Meta(ge=1_000, le=2**53)] | None = None


class TokenView(Answer, frozen=True, kw_only=True):
    id: str
    name: str
    scopes: tuple[str, ...]
    queues: tuple[str, ...] | None = None
    services: tuple[str, ...] | None = None
    worker_id: str | None = None
    created_at_ms: int
    expires_at_ms: int | None = None


class NewTokenAnswer(TokenView, frozen=True, kw_only=True):
    token: str  # shown once; only its hash is stored


class TokenRevoked(Answer, frozen=True, kw_only=True):
    id: str


class TokenPage(Answer, frozen=True, kw_only=True):
    items: list[TokenView]
    next_cursor: str | None = None
