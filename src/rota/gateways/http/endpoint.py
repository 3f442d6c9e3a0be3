"""What is an endpoint? A row that says who may call it, what it takes, and what it answers.

The OpenAPI document is made from the same rows, so the reference cannot lie. A handler is given
a `Call` whose body and query are decoded and whose caller may do this; it returns the answer's
struct, or raises a `RotaError`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Raw, Struct
from starlette.types import Receive

from rota.core import access
from rota.core.access import Action, Caller
from rota.engine.coordinator import Coordinator
from rota.errors import RotaError
from rota.gateways.gate import Gate
from rota.gateways.http.answers import Answered
from rota.gateways.http.bodies import ClientGone
from rota.gateways.http.problems import problem
from rota.gateways.http.traffic import Traffic
from rota.messages import NoFields, Request
from rota.settings import Settings

Body = TypeVar("Body")
Query = TypeVar("Query")
Outcome = TypeVar("Outcome")


class NoQuery(Request, frozen=True):
    """No parameters."""


@dataclass(frozen=True, slots=True)
class Service:
    """What all handlers share."""

    coordinator: Coordinator
    gate: Gate
    settings: Settings
    traffic: Traffic


class Call(Struct, Generic[Body, Query], frozen=True):
    """One request, as its handler sees it."""

    service: Service
    caller: Caller
    parameter: str  # the part of the path that stands for {…}; empty when there is none
    body: Body
    query: Query
    receive: Receive
    second: str = ""  # the second part of the path that stands for {…}
    headers: Mapping[bytes, bytes] = {}

    @property
    def coordinator(self) -> Coordinator:
        return self.service.coordinator

    @property
    def settings(self) -> Settings:
        return self.service.settings

    async def while_connected(
        self,
        work: Coroutine[Any, Any, Outcome],
        *,
        undo: Callable[[Outcome], Awaitable[None]] | None = None,
    ) -> Outcome:
        """Wait for `work`, but no longer than the caller does; `undo` what nobody will hear of."""
        working = asyncio.ensure_future(work)
        leaving = asyncio.ensure_future(_disconnected(self.receive))
        try:
            await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not leaving.done():
                return working.result()
            working.cancel()
            await asyncio.wait((working,))
            if undo is not None and not working.cancelled() and working.exception() is None:
                await undo(working.result())
            raise ClientGone
        finally:
            leaving.cancel()
            working.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class Reading(Enum):
    """What is done with a body before the handler is called."""

    JSON = auto()  # decoded into the endpoint's struct
    TEXT = auto()  # handed over as a text
    STREAM = auto()  # left to the handler, which takes it in pieces


Handler = Callable[[Call[Any, Any]], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    method: str
    path: str
    summary: str
    handler: Handler
    action: Action | None  # None: open to everybody
    answer: Any
    noun: str
    body: Any = None  # what it takes; None: nothing
    is_body_needed: bool = False
    reads: Reading = Reading.JSON
    query: type[Request] = NoQuery
    status: int = 200
    other_statuses: tuple[int, ...] = ()
    media_type: str = "application/json"
    errors: tuple[type[RotaError], ...] = ()
    refuse: Callable[[RotaError], Answered] = problem
    refusal: Any = None  # the schema of an error answer; None: a problem
    description: str = ""
    # Whether it is begun without a task of its own. Until it first waits for something it must not
    # ask for the running task, as `asyncio.timeout` does.
    is_brisk: bool = False
    decoder: msgspec.json.Decoder[Any] = field(init=False)

    def __post_init__(self) -> None:
        is_json = self.reads is Reading.JSON
        accepted = (self.body or NoFields) if is_json else NoFields
        if not self.is_body_needed and accepted is not Raw:  # Raw takes null as it is
            accepted = accepted | None
        object.__setattr__(self, "decoder", msgspec.json.Decoder(accepted))

    @property
    def takes_body(self) -> bool:
        return self.method in {"POST", "PUT", "PATCH"}

    @property
    def is_change(self) -> bool:
        return self.method != "GET"

    def check(self, caller: Caller) -> None:
        if self.action is not None:
            access.check(caller, self.action)
