"""Errors as `application/problem+json`, with their facts as fields."""

from collections.abc import Iterable

import msgspec

from rota.errors import (
    MethodNotAllowed,
    NotFound,
    RequestTimeout,
    RotaError,
    Unauthorized,
)
from rota.gateways.http.routing.responses import HttpResponse

MEDIA_TYPE = "application/problem+json"
DEFAULT_RETRY_AFTER_S = 1


def problem(error: RotaError) -> HttpResponse:
    """The answer for an error."""
    fields = {
        **error.facts,
        "code": error.code,
        "title": error.title,
        "status": error.status,
        "detail": error.detail,
    }
    content = msgspec.json.encode(fields, enc_hook=str)
    return HttpResponse(content, error.status, MEDIA_TYPE, extra_headers(error))


def extra_headers(error: RotaError) -> tuple[tuple[str, str], ...]:
    """The headers of an error, for clients that never read the body."""
    if error.status in {429, 503}:
        return (("retry-after", str(error.facts.get("retry_after_s", DEFAULT_RETRY_AFTER_S))),)
    if isinstance(error, Unauthorized):
        return (("www-authenticate", "Bearer"),)
    if isinstance(error, RequestTimeout):
        return (("connection", "close"),)  # what is left of the request is not waited for
    if isinstance(error, MethodNotAllowed):
        return (("allow", ", ".join(error.facts["allowed"])),)
    return ()


def unknown_path(path: str) -> NotFound:
    return NotFound(f"path {path!r} not found", path=path)


def wrong_method(method: str, path: str, allowed: Iterable[str]) -> MethodNotAllowed:
    names = sorted(allowed)
    return MethodNotAllowed(
        f"{method} is not for {path!r}; there is {', '.join(names)}", path=path, allowed=names
    )
