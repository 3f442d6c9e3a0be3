"""Which error did the coordinator answer with? The one of the same code, as if raised here."""

from functools import cache
from typing import Any

import msgspec

from rota import errors
from rota.errors import Overloaded, RotaError, Unavailable
from rota.sdk.transport import Response

_NOT_FACTS = frozenset({"code", "title", "status", "detail", "type", "instance"})
_TEXT_SHOWN = 200

# What a status means when it comes without one of our codes: from a proxy, most likely.
_BY_STATUS: dict[int, type[RotaError]] = {
    400: errors.Invalid,
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    409: errors.Conflict,
    413: errors.TooLarge,
    429: errors.TooMany,
    502: errors.Unavailable,
    503: errors.Unavailable,
    504: errors.Unavailable,
}


def error_of(response: Response, address: str) -> RotaError:
    """The error that a refusal stands for, with its facts."""
    problem = _read(response.body)
    code, detail = problem.get("code"), problem.get("detail")
    kind = _by_code().get(code) if isinstance(code, str) else None
    if kind is None:
        kind = _BY_STATUS.get(response.status, RotaError)
    if not isinstance(detail, str):
        text = response.body[:_TEXT_SHOWN].decode(errors="replace").strip()
        detail = f"{address} answered {response.status}: {text or 'nothing more'}"
    facts = {name: value for name, value in problem.items() if name not in _NOT_FACTS}
    return _rebuilt(kind, detail, facts, response)


def error_named(code: str | None, detail: str) -> RotaError:
    """The error of a code, where nothing but its text is known."""
    kind = RotaError if code is None else _by_code().get(code, RotaError)
    error = kind.__new__(kind)
    RotaError.__init__(error, detail)
    return error


def _read(body: bytes) -> dict[str, Any]:
    try:
        problem = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return {}
    return problem if isinstance(problem, dict) else {}


def _rebuilt(
    kind: type[RotaError], detail: str, facts: dict[str, Any], response: Response
) -> RotaError:
    # The classes make their texts from their facts; here the text is there already.
    error = kind.__new__(kind)
    RotaError.__init__(error, detail, **facts)
    if isinstance(error, Overloaded | Unavailable):
        error.retry_after_s = _retry_after_s(response)
    return error


def _retry_after_s(response: Response) -> int:
    text = response.headers.get("retry-after", "")
    return int(text) if text.isascii() and text.isdigit() else 1


@cache
def _by_code() -> dict[str, type[RotaError]]:
    return {
        kind.code: kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, RotaError)
    }
