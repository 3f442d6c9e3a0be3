"""API calls as values: how a request is written and how its answer is read.

The client carries a call out, on a thread or on an event loop. An exchange of several calls is
written once for both: it yields an `ApiCall` and receives its answer, or has its refusal raised at
the `yield`. It yields a number of seconds to pause. `Client.run` and `Client.arun` carry it out.
"""

import math
import secrets
import time
from collections.abc import Callable, Collection, Generator, Iterable
from functools import cache
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct

from rota.core import limits
from rota.errors import RotaError, Unavailable
from rota.sdk.options.durations import Seconds, optional_seconds
from rota.sdk.transport.transport import ANSWER_TIMEOUT_S, TransportRequest

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

KEY_BYTES = 16
KEY_PREFIX = "once-"  # marks idempotency keys that the SDK made
WAIT_MS = 30_000  # how long the coordinator may hold one answer back
OUTAGE_LIMIT_S = 60.0  # how long a wait without a timeout tolerates a missing coordinator
REASON_AFTER_S = 10.0  # until a wait without a timeout asks once why it goes on
ASK_AGAIN_AFTER_S = 0.5
MOST_RETRY_AFTER_S = 30.0  # however long the coordinator asks a caller to stay away

_ENCODER = msgspec.json.Encoder()


class Decoder(Protocol[T_co]):
    """Reads an answer, as msgspec's decoders do."""

    def decode(self, content: bytes, /) -> T_co: ...


class ApiCall(TransportRequest, Generic[T], frozen=True, kw_only=True):
    """A request with the decoder of its answer."""

    decoder: Decoder[T]
    is_repeatable: bool = False  # sending it twice does no more than sending it once
    answers: frozenset[int] = frozenset()  # statuses beyond 2xx whose body is an answer too
    empty: bytes = b"{}"  # what an empty body means
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


def patch(path: str, answer: Any, body: Any) -> ApiCall[Any]:
    """A change of the fields that are given, which is safe to repeat."""
    return ApiCall(
        method="PATCH",
        path=path,
        decoder=decoder_of(answer),
        body=_ENCODER.encode(body),
        is_repeatable=True,
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


# --- exchanges of several calls -------------------------------------------------------------------

Exchange = Generator[ApiCall[Any] | float, Any, T]


class Wait:
    """The time limits of one wait: of each call, of the whole, and of an outage."""

    def __init__(self, subject: str, timeout: Seconds | None) -> None:
        timeout_s = optional_seconds(timeout, "timeout")
        self._subject = subject
        self._timeout_s = timeout_s
        self._deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._outage_since: float | None = None

    def left_s(self) -> float | None:
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def call_ms(self) -> int:
        """How long the coordinator may hold back the answer to the next call."""
        wait_ms = WAIT_MS
        left_s = self.left_s()
        if left_s is not None:
            wait_ms = min(wait_ms, int(left_s * 1000))
        return min(wait_ms, limits.MAX_WAIT_MS)

    def check(self, state: str) -> None:
        """Raise `TimeoutError` if the time is over; `state` is what the caller has seen last."""
        self._outage_since = None
        if self._deadline is not None and time.monotonic() >= self._deadline:
            raise TimeoutError(f"{self._subject} is still {state} after {self._timeout_s:g} s")

    def pause_s(self, error: RotaError) -> float:
        """How long to pause after a failed call; raises its error when the wait is over."""
        now = time.monotonic()
        self._outage_since = self._outage_since or now
        limit = self._deadline
        if limit is None:
            limit = self._outage_since + OUTAGE_LIMIT_S
        if now + ASK_AGAIN_AFTER_S > limit:
            raise error
        return min(max(ASK_AGAIN_AFTER_S, retry_after_s(error)), limit - now)


def retry_after_s(error: RotaError) -> float:
    """How long the coordinator asked the caller to stay away; 0 when it did not."""
    return min(float(error.facts.get("retry_after_s", 0)), MOST_RETRY_AFTER_S)


def wait_for_end(
    subject: str,
    ask: Callable[[int], ApiCall[Any]],
    ended: Collection[str],
    timeout: Seconds | None,
    *,
    warn: Callable[[Any], Exchange[None]] | None = None,
) -> Exchange[Any]:
    """Ask for a view until its state is one of `ended`, across a coordinator's restart.

    `ask` makes the call from the time that the coordinator may hold its answer back. A wait without
    a timeout calls `warn` once, with the view, when it has lasted `REASON_AFTER_S`.
    """
    wait = Wait(subject, timeout)
    if timeout is not None:
        warn = None  # the error at its end has the reason
    warn_at = time.monotonic() + REASON_AFTER_S
    while True:
        wait_ms = wait.call_ms()
        if warn is not None:
            wait_ms = min(wait_ms, max(0, math.ceil((warn_at - time.monotonic()) * 1000)))
        try:
            view = yield ask(wait_ms)
        except Unavailable as error:
            yield wait.pause_s(error)
            continue
        if view.state in ended:
            return view
        wait.check(view.state)
        if warn is not None and time.monotonic() >= warn_at:
            yield from warn(view)
            warn = None


def every_item(page: Callable[[str | None], ApiCall[Any]]) -> Exchange[list[Any]]:
    """All items of a list; `page` makes the call for the page at a cursor."""
    found: list[Any] = []
    cursor: str | None = None
    while True:
        answer = yield page(cursor)
        found += answer.items
        cursor = answer.next_cursor
        if cursor is None:
            return found
