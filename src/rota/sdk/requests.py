"""How is a request written, and its answer read? A `Call` says both, and is a value.

Carrying it out is the client's part, blocking or not, so no call is written twice.
"""

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct

from rota.sdk.transport import ANSWER_TIMEOUT_S, Request

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_ENCODER = msgspec.json.Encoder()


class Decoder(Protocol[T_co]):
    """Reads an answer; msgspec's decoders do."""

    def decode(self, content: bytes, /) -> T_co: ...


class Call(Request, Generic[T], frozen=True, kw_only=True):
    """A request, and what its answer is read as."""

    decoder: Decoder[T]
    is_repeatable: bool = False  # sending it twice does no more than sending it once
    answers: frozenset[int] = frozenset()  # statuses beyond 2xx whose body is an answer too
    empty: bytes = b"{}"  # what an answer without content stands for
    # The same, but so that it may be sent twice: where another coordinator can be asked.
    made_repeatable: Callable[[], "Call[T]"] | None = None


class Nothing(Struct, frozen=True):
    """An answer whose content does not matter."""


@cache
def decoder_of(answer: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(answer)


def get(path: str, answer: Any, query: Iterable[tuple[str, Any]] = ()) -> Call[Any]:
    pairs = [(name, _text(value)) for name, value in query if value is not None]
    full = f"{path}?{urlencode(pairs)}" if pairs else path
    return Call(method="GET", path=full, decoder=decoder_of(answer), is_repeatable=True)


def post(
    path: str, answer: Any, body: Any = None, *, is_repeatable: bool = False, wait_ms: int = 0
) -> Call[Any]:
    return Call(
        method="POST",
        path=path,
        decoder=decoder_of(answer),
        body=b"" if body is None else _ENCODER.encode(body),
        is_repeatable=is_repeatable,
        timeout_s=ANSWER_TIMEOUT_S + wait_ms / 1000,
    )


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def path_at(*parts: str) -> str:
    return "/api/" + "/".join(quote(part, safe="") for part in parts)
