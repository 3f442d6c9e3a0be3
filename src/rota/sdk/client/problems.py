"""Turns a coordinator's error answer into the exception of the same code."""

from functools import cache
from typing import Any

import msgspec

from rota import errors
from rota.errors import Overloaded, RotaError, Unavailable
from rota.sdk.transport.transport import Response

_NOT_FACTS = frozenset({"code", "title", "status", "detail", "type", "instance"})
_TEXT_SHOWN = 200

# The meaning of a status without one of Rota's codes; most likely a proxy sent it.
_BY_STATUS: dict[int, type[RotaError]] = {
    400: errors.Invalid,
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    408: errors.RequestTimeout,
    409: errors.Conflict,
    413: errors.TooLarge,
    414: errors.TargetTooLong,
    429: errors.TooMany,
    431: errors.HeadTooLarge,
    502: errors.Unavailable,
    503: errors.Unavailable,
    504: errors.Unavailable,
}


def error_of(response: Response, address: str) -> RotaError:
    """The exception of an error answer, with its facts."""
    problem = _read(response.body)
    code, detail = problem.get("code"), problem.get("detail")
    kind = _by_code().get(code) if isinstance(code, str) else None
    if kind is None:
        kind = _BY_STATUS.get(response.status, RotaError)
    if not isinstance(detail, str):
        text = response.body[:_TEXT_SHOWN].decode(errors="replace").strip()
        detail = f"{address} answered {response.status}: {text or 'nothing more'}"
    facts = {name: value for name, value in problem.items() if name not in _NOT_FACTS}
    retry_after = response.headers.get("retry-after", "")
    if retry_after.isascii() and retry_after.isdigit():
        facts["retry_after_s"] = int(retry_after)
    error = _rebuilt(kind, detail, facts)
    if isinstance(error, Overloaded | Unavailable):
        error.retry_after_s = facts.get("retry_after_s", 1)
    return error


def error_named(code: str | None, detail: str) -> RotaError:
    """The exception of a code, without facts."""
    return _rebuilt(RotaError if code is None else _by_code().get(code, RotaError), detail, {})


def _read(body: bytes) -> dict[str, Any]:
    try:
        problem = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return {}
    return problem if isinstance(problem, dict) else {}


def _rebuilt(kind: type[RotaError], detail: str, facts: dict[str, Any]) -> RotaError:
    # The classes build their texts from their facts; here the text is known already.
    error = kind.__new__(kind)
    RotaError.__init__(error, detail, **facts)
    return error


@cache
def _by_code() -> dict[str, type[RotaError]]:
    return {
        kind.code: kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, RotaError)
    }
