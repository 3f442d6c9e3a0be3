"""Endpoints: a handler with its route, the caller's permission, and what it takes and answers.

A handler is registered by a decorator of its noun's `Routes`. Its signature says the rest: the
types of the body and the query are those of its `HttpCall`, and the answer is what it returns. Its
docstring is the summary and the description of the endpoint. The OpenAPI document is generated from
the same endpoints.

A handler receives a call whose body and query are decoded and whose caller has the permission. It
returns the answer's struct, or raises a `RotaError`.
"""

import asyncio
import inspect
import operator
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import reduce
from types import NoneType, UnionType
from typing import (
    Any,
    Generic,
    Literal,
    TypedDict,
    TypeVar,
    Union,
    Unpack,
    get_args,
    get_origin,
)

import msgspec
from msgspec import Raw, Struct
from starlette.types import Receive

from rota.core import access
from rota.core.access import Action, Caller
from rota.engine.coordinator import Coordinator
from rota.errors import RotaError, Unauthorized
from rota.gateways.auth.authenticator import Authenticator
from rota.gateways.auth.token_uses import ENDED
from rota.gateways.definitions.reader import DefinitionReader
from rota.gateways.http.routing.bodies import ClientGone, disconnected
from rota.gateways.http.routing.responses import HttpResponse, StreamedResponse, problem
from rota.gateways.quotas import Quotas, Reservation
from rota.gateways.registration import WorkerQuota
from rota.messages import NoFields, Request
from rota.settings import Settings

Body = TypeVar("Body")
Query = TypeVar("Query")
Outcome = TypeVar("Outcome")


class NoQuery(Request, frozen=True):
    """No parameters."""


class Traffic:
    """Counts responses by endpoint and status; no caller can add a row."""

    def __init__(self) -> None:
        self.in_flight = 0
        self.answers: Counter[tuple[str, str, int]] = Counter()  # by method, path and status

    def note(self, method: str, path: str, status: int) -> None:
        self.answers[method, path, status] += 1


@dataclass(frozen=True, slots=True)
class HttpServices:
    """What all handlers share."""

    coordinator: Coordinator
    authenticator: Authenticator
    settings: Settings
    traffic: Traffic
    definitions: DefinitionReader
    quotas: Quotas
    worker_quota: WorkerQuota

    @property
    def keeps_uploads_in_memory(self) -> bool:
        """Whether uploads stay in memory as a whole, because there is no folder for files."""
        return self.coordinator.artifact_io.is_in_memory


class HttpCall(Struct, Generic[Body, Query], frozen=True):
    """One request, as its handler sees it."""

    services: HttpServices
    caller: Caller
    path: Mapping[str, str]  # the values of the route's `{…}` parameters, by name
    body: Body
    query: Query
    receive: Receive
    headers: Mapping[bytes, bytes] = {}
    reservation: Reservation = Reservation("")  # what the request holds of what all callers share

    @property
    def coordinator(self) -> Coordinator:
        return self.services.coordinator

    @property
    def settings(self) -> Settings:
        return self.services.settings

    async def while_connected(
        self,
        work: Awaitable[Outcome],
        *,
        undo: Callable[[Outcome], Awaitable[None]] | None = None,
    ) -> Outcome:
        """Wait for `work`, but no longer than the caller does; `undo` a result that comes too late.

        A caller whose token ends meanwhile gets `Unauthorized`.
        """
        working = asyncio.ensure_future(work)
        leaving = asyncio.ensure_future(disconnected(self.receive))
        leaving.add_done_callback(lambda _: working.cancel())
        use = None
        if self.caller.token_id is not None:
            use = self.services.authenticator.uses.add(self.caller, leaving.cancel)
        try:
            if await _is_finished(working, leaving):
                return working.result()
            if undo is not None and not working.cancelled() and working.exception() is None:
                await undo(working.result())
        finally:
            if use is not None:
                self.services.authenticator.uses.drop(use)
            leaving.cancel()
            working.cancel()
        if leaving.cancelled():
            raise Unauthorized(ENDED)
        raise ClientGone


async def _is_finished(working: "asyncio.Future[Any]", leaving: "asyncio.Future[None]") -> bool:
    """Wait for the work; False: the caller has left, which has cancelled it."""
    # Not by `asyncio.wait`, which takes another turn of the loop.
    try:
        await working
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if not leaving.done() or (task is not None and task.cancelling()):
            raise
    except Exception:
        if not leaving.done():
            raise
    return not leaving.done()


class BodyReading(Enum):
    """What is done with a body before the handler is called."""

    JSON = auto()  # decoded into the endpoint's struct
    TEXT = auto()  # handed over as a text
    STREAM = auto()  # left to the handler, which takes it in pieces


Handler = Callable[[HttpCall[Any, Any]], Awaitable[Any]]
AnyHandler = TypeVar("AnyHandler", bound=Callable[..., Awaitable[Any]])


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpEndpoint:
    method: str
    path: str
    summary: str
    handler: Handler
    action: Action | None  # None: open to every caller
    answer: Any
    noun: str
    body: Any = None  # what it takes; None: nothing
    is_body_needed: bool = False
    reads: BodyReading = BodyReading.JSON
    body_limit: str | None = None  # the limit on its body; None: the setting max_body_bytes
    query: type[Request] = NoQuery
    status: int = 200
    other_statuses: tuple[int, ...] = ()
    media_type: str = "application/json"
    errors: tuple[type[RotaError], ...] = ()
    refuse: Callable[[RotaError], HttpResponse] = problem
    refusal: Any = None  # the schema of an error answer; None: a problem
    description: str = ""
    is_deprecated: bool = False
    # Whether it is begun without a task of its own. Until it first waits for something it must not
    # ask for the running task, as `asyncio.timeout` does.
    starts_eagerly: bool = False
    # Whether a registered worker needs this call to keep its work: it has a quota of its own.
    keeps_work: bool = False
    # Whether the parameter of its path may have slashes that are not percent-encoded.
    takes_slashes: bool = False
    waits_in: Literal["body", "query"] | None = field(init=False)  # where its `wait_ms` is
    decoder: msgspec.json.Decoder[Any] = field(init=False)

    def __post_init__(self) -> None:
        is_json = self.reads is BodyReading.JSON
        accepted = (self.body or NoFields) if is_json else NoFields
        if not self.is_body_needed and accepted is not Raw:  # Raw takes null as it is
            accepted = accepted | None
        object.__setattr__(self, "decoder", msgspec.json.Decoder(accepted))
        object.__setattr__(self, "waits_in", self._waits_in())

    def _waits_in(self) -> Literal["body", "query"] | None:
        if "wait_ms" in self.query.__struct_fields__:
            return "query"
        return "body" if "wait_ms" in getattr(self.body, "__struct_fields__", ()) else None

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters in its path, in order."""
        return tuple(part[1:-1] for part in self.path.split("/") if part.startswith("{"))

    @property
    def takes_body(self) -> bool:
        return self.method in {"POST", "PUT", "PATCH"}

    @property
    def is_change(self) -> bool:
        return self.method != "GET"

    def check(self, caller: Caller) -> None:
        if self.action is not None:
            access.check(caller, self.action)


class EndpointOptions(TypedDict, total=False):
    """What an endpoint's signature does not say."""

    alias: str  # an old path of the endpoint, which is deprecated
    description: str  # after that of the docstring
    answer: Any
    body: Any  # the schema of a body that the handler reads itself
    reads: BodyReading
    body_limit: str
    status: int
    other_statuses: tuple[int, ...]
    media_type: str
    errors: tuple[type[RotaError], ...]
    refuse: Callable[[RotaError], HttpResponse]
    refusal: Any
    starts_eagerly: bool
    keeps_work: bool
    takes_slashes: bool


class Routes:
    """The endpoints of one noun, in the order of their definition."""

    def __init__(self, noun: str, **defaults: Unpack[EndpointOptions]) -> None:
        """`defaults` hold for every endpoint that does not say otherwise."""
        self._noun = noun
        self._defaults = defaults
        self.endpoints: list[HttpEndpoint] = []

    def get(
        self, path: str, action: Action | None, **options: Unpack[EndpointOptions]
    ) -> Callable[[AnyHandler], AnyHandler]:
        return self._register("GET", path, action, options)

    def post(
        self, path: str, action: Action | None, **options: Unpack[EndpointOptions]
    ) -> Callable[[AnyHandler], AnyHandler]:
        return self._register("POST", path, action, options)

    def put(
        self, path: str, action: Action | None, **options: Unpack[EndpointOptions]
    ) -> Callable[[AnyHandler], AnyHandler]:
        return self._register("PUT", path, action, options)

    def patch(
        self, path: str, action: Action | None, **options: Unpack[EndpointOptions]
    ) -> Callable[[AnyHandler], AnyHandler]:
        return self._register("PATCH", path, action, options)

    def delete(
        self, path: str, action: Action | None, **options: Unpack[EndpointOptions]
    ) -> Callable[[AnyHandler], AnyHandler]:
        return self._register("DELETE", path, action, options)

    def _register(
        self, method: str, path: str, action: Action | None, options: EndpointOptions
    ) -> Callable[[AnyHandler], AnyHandler]:
        given: dict[str, Any] = {**self._defaults, **options}
        alias = given.pop("alias", None)

        def register(handler: AnyHandler) -> AnyHandler:
            fields = {**_signature(handler), **given}
            summary, description = _documentation(handler)
            fields["description"] = f"{description} {given.get('description', '')}".strip()
            endpoint = HttpEndpoint(
                noun=self._noun,
                method=method,
                path=path,
                action=action,
                handler=handler,
                summary=summary,
                **fields,
            )
            self.endpoints.append(endpoint)
            if alias is not None:
                self.endpoints.append(_alias_of(endpoint, alias))
            return handler

        return register


def _alias_of(endpoint: HttpEndpoint, path: str) -> HttpEndpoint:
    return replace(
        endpoint,
        path=path,
        is_deprecated=True,
        description=f"Deprecated: the old path of `{endpoint.path}`, kept for one version.",
    )


def _signature(handler: Callable[..., Any]) -> dict[str, Any]:
    """The types of the body, the query and the answer, from the handler's annotations."""
    annotations = inspect.get_annotations(handler)
    answer = annotations.pop("return")
    (call,) = annotations.values()
    body, query = get_args(call)
    taken = _without(body, NoneType)
    return {
        "body": None if taken is NoFields else taken,
        "is_body_needed": taken is body and taken is not None,
        "query": query,
        "answer": _without(answer, HttpResponse, StreamedResponse),
    }


def _without(annotation: Any, *left_out: Any) -> Any:
    """A union without some of its members; None when nothing is left."""
    members = get_args(annotation) if _is_union(annotation) else (annotation,)
    kept = [one for one in members if one not in left_out and one is not None]
    if len(kept) == len(members):
        return annotation
    return reduce(operator.or_, kept) if kept else None


def _is_union(annotation: Any) -> bool:
    return get_origin(annotation) in {Union, UnionType}


def _documentation(handler: Callable[..., Any]) -> tuple[str, str]:
    """The first sentence of the docstring, and the rest of it as one paragraph."""
    summary, _, description = (inspect.getdoc(handler) or "").partition("\n\n")
    return summary.removesuffix("."), " ".join(description.split())
