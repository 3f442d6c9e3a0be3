"""The transport seam: one request in, one response out, over HTTP or inside the program.

A transport returns every response, whatever its status; the client interprets it.

What needs several requests or pauses is an exchange: a generator, so it is written once for threads
and event loops. It yields a step and receives what performing that step returned, or has its
`RotaError` raised at the `yield`. A `float` is a pause in seconds. The return value of the
generator is the result of the exchange. `drive` runs it on a thread, `adrive` on an event loop.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

from msgspec import Struct

from rota.errors import Unavailable

JSON = "application/json"
ANSWER_TIMEOUT_S = 30.0  # on top of the wait that the request asks the coordinator for

T = TypeVar("T")


class TransportRequest(Struct, frozen=True, kw_only=True):
    """A request as a transport sends it."""

    method: str
    path: str
    body: bytes | None = None
    timeout_s: float = ANSWER_TIMEOUT_S
    content_type: str = JSON


class Response(NamedTuple):
    status: int
    body: bytes
    headers: Mapping[str, str]  # names in lower case


class Transport(Protocol):
    """Sends requests to a coordinator: `send` from any thread, `asend` from any event loop.

    Both raise `Unavailable` when no response arrives, and `NotSent` when the coordinator cannot
    have received the request.
    """

    @property
    def address(self) -> str: ...

    @property
    def is_embedded(self) -> bool:
        """Whether the coordinator runs inside this program."""

    def send(self, request: TransportRequest) -> Response: ...

    async def asend(self, request: TransportRequest) -> Response: ...

    def close(self) -> None: ...


class NotSent(Unavailable):
    """The coordinator has not received the request; sending it again is safe."""


# --- exchanges ------------------------------------------------------------------------------------


def drive(
    exchange: Generator[Any, Any, T],
    perform: Callable[[Any], Any],
    pause: Callable[[float], object] = time.sleep,
) -> T:
    """Carry out the steps of an exchange, which sees every error, also an interruption."""
    try:
        step = next(exchange)
        while True:
            answer = None
            try:
                if isinstance(step, float):
                    pause(step)
                else:
                    answer = perform(step)
            except BaseException as error:  # noqa: BLE001 - the exchange raises it again
                step = exchange.throw(error)
            else:
                step = exchange.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result


async def adrive(exchange: Generator[Any, Any, T], perform: Callable[[Any], Awaitable[Any]]) -> T:
    try:
        step = next(exchange)
        while True:
            answer = None
            try:
                if isinstance(step, float):
                    await asyncio.sleep(step)
                else:
                    answer = await perform(step)
            except BaseException as error:  # noqa: BLE001 - the exchange raises it again
                step = exchange.throw(error)
            else:
                step = exchange.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result
