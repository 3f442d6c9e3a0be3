"""API calls as values: how a request is written and how its answer is read.

The client carries a call out, on a thread or on an event loop.
"""

import secrets
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct

from rota.sdk.transport.transport import ANSWER_TIMEOUT_S, TransportRequest

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

KEY_BYTES = 16
KEY_PREFIX = "once-"  # marks idempotency keys that the SDK made

_ENCODER = msgspec.json.Encoder()


class Decoder(Protocol[T_co]):
    """Reads an answer, as msgspec's decoders do."""

    def decode(self, content: bytes, /) -> T_co: ...


class ApiCall(TransportRequest, Generic[T], frozen=True, kw_only=True):
    """A request with the decoder of its answer."""

    decoder: Decoder[T]
    is_repeatable: bool = False  # sending it twice does no more than sending it once
    answers: frozenset[int] = frozenset()  # statuses beyond 2xx whose body is an answer too
    empty: bytes = b"{}"  # what an empty body stands for
    # Makes the same call repeatable, for a client that can ask another coordinator.
    made_repeatable: Callable[[], "ApiCall[T]"] | None = None


class Nothing(Struct, frozen=True):
    """An answer whose content does not matter."""


@cache
def decoder_of(answer: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(answer)


def get(
    path: str, answer: Any, query: Iterable[tuple[str, Any]] = (), *, wait_ms: int = 0
) -> ApiCall[Any]:
    """A GET request; with `wait_ms` the coordinator may hold its answer back for so long."""
    pairs = [(name, _text(value)) for name, value in query if value is not None]
    if wait_ms:
        pairs.append(("wait_ms", str(wait_ms)))
    return ApiCall(
        method="GET",
        path=f"{path}?{urlencode(pairs)}" if pairs else path,
        decoder=decoder_of(answer),
        is_repeatable=True,
        timeout_s=ANSWER_TIMEOUT_S + wait_ms / 1000,
    )


def post(
    path: str, answer: Any, body: Any = None, *, is_repeatable: bool = False, wait_ms: int = 0
) -> ApiCall[Any]:
    return ApiCall(
        method="POST",
        path=path,
        decoder=decoder_of(answer),
        body=b"" if body is None else _ENCODER.encode(body),
        is_repeatable=is_repeatable,
        timeout_s=ANSWER_TIMEOUT_S + wait_ms / 1000,
    )


def put(path: str, answer: Any, body: Any, *, is_repeatable: bool = True) -> ApiCall[Any]:
    return ApiCall(
        method="PUT",
        path=path,
        decoder=decoder_of(answer),
        body=body if isinstance(body, bytes) else _ENCODER.encode(body),
        is_repeatable=is_repeatable,
    )


def delete(path: str, answer: Any = Nothing) -> ApiCall[Any]:
    return ApiCall(method="DELETE", path=path, decoder=decoder_of(answer))


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def path_at(*parts: str, **query: object) -> str:
    """The path of an API resource; query parameters that are None are left out."""
    path = "/api/" + "/".join(quote(part, safe="") for part in parts)
    given = {name: value for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path


def new_key() -> str:
    """An idempotency key for a submission that has none."""
    return f"{KEY_PREFIX}{secrets.token_hex(KEY_BYTES)}"
