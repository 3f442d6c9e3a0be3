"""Queues whose tasks are pushed over HTTP, on the wire."""

from typing import Annotated

from msgspec import Meta

from rota.core import limits
from rota.core.outbound.push import HeaderText
from rota.messages.base import Answer, Request


class PushPut(Request, frozen=True, kw_only=True):
    """Where the tasks of a queue are pushed to; what is left out has its default."""

    url: Annotated[str, Meta(min_length=1, max_length=limits.MAX_OUTBOUND_URL_LENGTH)]
    # For one request, from the lookup of the name to the end of the answer.
    timeout_ms: Annotated[int, Meta(ge=100, le=limits.MAX_PUSH_TIMEOUT_MS)] = 30_000
    # Tasks that are pushed at once; the queue's own limits hold as well.
    concurrency: Annotated[int, Meta(ge=1, le=limits.MAX_PUSH_CONCURRENCY)] = 10
    # Header fields of every request, such as `authorization`; their values are not shown again.
    # Absent: those that it has.
    headers: Annotated[dict[str, HeaderText], Meta(max_length=limits.MAX_PUSH_HEADERS)] | None = (
        None
    )
    # `whsec_` and 24 to 64 bytes in base64. Absent: it keeps the one it has; a new one is made.
    secret: Annotated[str, Meta(max_length=200)] | None = None


class PushView(Answer, frozen=True, kw_only=True):
    queue: str
    url: str
    timeout_ms: int
    concurrency: int
    headers: list[str]  # their names
    worker_id: str  # of the worker that pushes
    # Until when nothing is pushed, because the server is busy; absent: it is not.
    closed_until_ms: int | None = None
    changed_at_ms: int
    # Only in the answer to a PUT that has made it: it is not shown again.
    secret: str | None = None
