"""Message routes: the permission of a message and its handler.

The reference page is generated from the same routes. A handler receives a call whose sender has the
permission. It returns the payload of the reply, or raises a `RotaError`. A reply that takes long is
a `DeferredReply`: the next message of the socket does not wait for it.
"""

import inspect
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from msgspec import Raw, Struct

from rota.core import access, limits
from rota.core.access import Action, Caller
from rota.core.tasks.values import check_value
from rota.engine.coordinator import Coordinator
from rota.errors import Invalid
from rota.gateways.quotas import Quotas
from rota.gateways.registration import WorkerQuota
from rota.gateways.websocket.connection import Connection
from rota.gateways.websocket.session.socket_workers import SocketWorkers
from rota.gateways.websocket.session.subscriptions import Subscriptions
from rota.gateways.websocket.streaming.workers import WorkerStreams
from rota.messages.sessions import UI, Envelope
from rota.settings import Settings

S = TypeVar("S")
T = TypeVar("T")

COORDINATOR = "coordinator"
WORKER = "worker"
ANY = "any"
KINDS = frozenset({COORDINATOR, WORKER})  # of addresses

COORDINATOR_PROXY = "client:coordinator-proxy"
WORKER_PROXY = "client:worker-proxy"

NO_REPLY = object()  # returned by a handler whose reply follows by a callback, or that has none


class DeferredReply(NamedTuple):
    """A reply that is sent when the work has ended."""

    work: Coroutine[Any, Any, Any]


@dataclass(slots=True)
class SocketServices:
    """What all handlers share."""

    coordinator: Coordinator
    settings: Settings
    quotas: Quotas
    worker_quota: WorkerQuota
    socket_workers: SocketWorkers = field(init=False)
    subscriptions: Subscriptions = field(init=False)
    streams: WorkerStreams = field(init=False)

    def __post_init__(self) -> None:
        self.socket_workers = SocketWorkers(self.coordinator)
        self.subscriptions = Subscriptions(self.quotas.subscriptions)
        self.streams = WorkerStreams(self.coordinator)

    def drop(self, connection: Connection) -> None:
        """End all that goes on over a socket: nothing more is pushed to it."""
        self.socket_workers.detach_all(connection)
        self.streams.end(connection)
        self.subscriptions.end(connection)


class SocketCall(Struct, frozen=True):
    """One envelope, as its handler sees it."""

    services: SocketServices
    connection: Connection
    envelope: Envelope
    address: str  # without its kind: a queue, or a worker's id

    @property
    def coordinator(self) -> Coordinator:
        return self.services.coordinator

    @property
    def caller(self) -> Caller:
        return self.connection.caller

    def read(self, kind: type[T]) -> T:
        return self.connection.codec.read(self.envelope.payload, kind)

    def read_short(self, kind: type[T], short: type[S]) -> T | S:
        """The payload as a struct, or in its short form."""
        either: Any = kind | short
        found: T | S = self.connection.codec.read(self.envelope.payload, either)
        return found

    def value(self, raw: Raw | None, field: str) -> Raw | None:
        """A payload or result as JSON; refused when it is too large or too deep."""
        if raw is None:
            return None
        json = self.connection.codec.as_json(raw)
        check_value(json, field, most_bytes=self.services.settings.max_payload_bytes)
        return json

    def queue(self) -> str:
        """The queue in a coordinator's address, if the caller may use it."""
        queue = checked_name(self.address, "to")
        access.check_queue(self.caller, queue)
        return queue


def checked_name(text: str | None, field: str) -> str:
    if not text or len(text) > limits.MAX_NAME_LENGTH:
        most = limits.MAX_NAME_LENGTH
        raise Invalid(f"{field}: a text of 1 to {most} characters is needed", field=field)
    return text


# An immediate handler returns the payload of its reply, any other one a coroutine of it.
Handler = Callable[[SocketCall], Any]
AnyHandler = TypeVar("AnyHandler", bound=Callable[[SocketCall], Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    kind: str  # of the address
    type: str
    action: Action
    handler: Handler
    summary: str
    payload: Any = None  # what it takes; None: anything, it is not read
    answer: Any = None
    proxy: str = UI  # the address of the reply
    is_immediate: bool = False  # it never waits: it runs as soon as its message arrives


class MessageRoutes:
    """The messages of one noun, in the order of their definition."""

    def __init__(self) -> None:
        self.rows: list[Route] = []

    def message(
        self,
        kind: str,
        type_: str,
        action: Action,
        *,
        payload: Any = None,
        answer: Any = None,
        proxy: str = UI,
        is_immediate: bool = False,
    ) -> Callable[[AnyHandler], AnyHandler]:
        """Register a handler; its docstring is the summary, and it returns the answer."""

        def register(handler: AnyHandler) -> AnyHandler:
            returned = inspect.get_annotations(handler)["return"]
            has_answer = isinstance(returned, type) and issubclass(returned, Struct)
            route = Route(
                kind=kind,
                type=type_,
                action=action,
                handler=handler,
                summary=" ".join((handler.__doc__ or "").split()),
                payload=payload,
                answer=returned if has_answer else answer,
                proxy=proxy,
                is_immediate=is_immediate,
            )
            self.rows.append(route)
            return handler

        return register
