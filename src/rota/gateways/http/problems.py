"""How does an error look over HTTP? As `application/problem+json`, with its facts as fields."""

from collections.abc import Iterable

import msgspec

from rota.errors import (
    Internal,
    MethodNotAllowed,
    NotFound,
    RotaError,
    StoreError,
    Unauthorized,
    Unavailable,
)
from rota.gateways.http.answers import Answered

MEDIA_TYPE = "application/problem+json"
DEFAULT_RETRY_AFTER_S = 1


def problem(error: RotaError) -> Answered:
    """The answer that tells this error."""
    fields = {
        **error.facts,
        "code": error.code,
        "title": error.title,
        "status": error.status,
        "detail": error.detail,
    }
    content = msgspec.json.encode(fields, enc_hook=str)
    return Answered(content, error.status, MEDIA_TYPE, extra_headers(error))


def extra_headers(error: RotaError) -> tuple[tuple[str, str], ...]:
    """What must stand in a header as well, for clients that never read the body."""
    if error.status in {429, 503}:
        return (("retry-after", str(error.facts.get("retry_after_s", DEFAULT_RETRY_AFTER_S))),)
    if isinstance(error, Unauthorized):
        return (("www-authenticate", "Bearer"),)
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


def presentable(error: Exception) -> RotaError:
    """What a caller may know of any error: theirs in full, ours not at all."""
    if isinstance(error, StoreError):
        return Unavailable("the store cannot be used at the moment")
    if isinstance(error, RotaError):
        return error
    return Internal("an internal error; the coordinator's log has the reason")
