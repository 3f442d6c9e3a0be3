"""What is a message that we understand? A row that says who may send it, and what it leads to.

The reference page is made from the same rows. A handler is given a `Call` whose sender may do this,
and returns the payload of the reply, or raises a `RotaError`. What takes long is returned as
`Later`: whatever the socket says next does not wait for it.
"""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from msgspec import Raw, Struct

from rota.core import access, limits
from rota.core.access import Action, Caller
from rota.core.values import check_value
from rota.engine.coordinator import Coordinator
from rota.errors import Invalid
from rota.gateways.websocket.connection import Connection
from rota.messages.sessions import UI, Envelope
from rota.settings import Settings

if TYPE_CHECKING:
    from rota.gateways.websocket.attachments import Attachments
    from rota.gateways.websocket.streaming_workers import Streams
    from rota.gateways.websocket.subscriptions import Subscriptions

S = TypeVar("S")
T = TypeVar("T")

COORDINATOR = "coordinator"
WORKER = "worker"
ANY = "any"
KINDS = frozenset({COORDINATOR, WORKER})  # of addresses

COORDINATOR_PROXY = "client:coordinator-proxy"
WORKER_PROXY = "client:worker-proxy"


SILENT = object()  # returned by a handler: its reply follows by itself, or there is none


class Later(NamedTuple):
    """The reply follows when this has ended."""

    work: Coroutine[Any, Any, Any]


@dataclass(frozen=True, slots=True)
class Desk:
    """What all handlers share."""

    coordinator: Coordinator
    settings: Settings
    attachments: "Attachments"
    subscriptions: "Subscriptions"
    streams: "Streams"


class Call(Struct, frozen=True):
    """One envelope, as its handler sees it."""

    desk: Desk
    connection: Connection
    envelope: Envelope
    address: str  # without its kind: a queue, or a worker's id

    @property
    def coordinator(self) -> Coordinator:
        return self.desk.coordinator

    @property
    def caller(self) -> Caller:
        return self.connection.caller

    def read(self, kind: type[T]) -> T:
        return self.connection.codec.read(self.envelope.payload, kind)

    def read_short(self, kind: type[T], short: type[S]) -> T | S:
        """A payload, or the one thing in it that most have to say."""
        either: Any = kind | short
        found: T | S = self.connection.codec.read(self.envelope.payload, either)
        return found

    def value(self, raw: Raw | None, field: str) -> Raw | None:
        """A value that only workers understand, as JSON; refused when it is too large or deep."""
        if raw is None:
            return None
        json = self.connection.codec.as_json(raw)
        check_value(json, field, most_bytes=self.desk.settings.max_payload_bytes)
        return json

    def queue(self) -> str:
        """The queue that a coordinator's address means, if the caller may use it."""
        queue = checked_name(self.address, "to")
        access.check_queue(self.caller, queue)
        return queue


def checked_name(text: str | None, field: str) -> str:
    if not text or len(text) > limits.MAX_NAME_LENGTH:
        most = limits.MAX_NAME_LENGTH
        raise Invalid(f"{field}: a text of 1 to {most} characters is needed", field=field)
    return text


# One that is brisk returns its answer, all others what brings it.
Handler = Callable[[Call], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    kind: str  # of the address
    type: str
    action: Action
    handler: Handler
    summary: str
    payload: Any = None  # what it takes; None: anything, it is not looked at
    answer: Any = None
    proxy: str = UI  # to whom the reply is addressed
    is_brisk: bool = False  # it waits for nothing: it is called in the moment its message comes in
