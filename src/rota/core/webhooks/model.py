"""A webhook and its deliveries, as values."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from rota.core import limits
from rota.core.events import EVENT_KINDS, LoggedEvent
from rota.core.tasks.model import Name
from rota.errors import Invalid

WebhookFormat = Literal["rota", "slack"]
# `waiting`: it is tried, or tried again. `delivered`: the receiver answered with 2xx. `failed`: it
# is tried no more.
DeliveryState = Literal["waiting", "delivered", "failed"]
# `failing`: its last request has failed. `disabled`: by its failures. `off`: by an operator.
WebhookCondition = Literal["active", "failing", "disabled", "off"]
Pattern = Annotated[str, Meta(min_length=1, max_length=limits.MAX_NAME_LENGTH)]
Patterns = Annotated[tuple[Pattern, ...], Meta(max_length=limits.MAX_WEBHOOK_EVENTS)]

# What an operator wants to know without having asked for anything.
DEFAULT_EVENTS = (
    "task-failed",
    "run-failed",
    "run-timed-out",
    "run-approval-asked",
    "queue-stuck",
    "queue-target-missed",
    "schedule-refused",
    "worker-unregistered:unhealthy",
)


class WebhookSpec(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an admin has set."""

    url: Annotated[str, Meta(min_length=1, max_length=limits.MAX_OUTBOUND_URL_LENGTH)]
    # Types of events; `task-*` for all that begin so, `worker-unregistered:unhealthy` for those
    # with that `reason`.
    events: Patterns = DEFAULT_EVENTS
    # Only events of these queues and workflows; a name, or a beginning and a star. Empty: of all.
    queues: Patterns = ()
    workflows: Patterns = ()
    format: WebhookFormat = "rota"  # `slack`: an object with a `text`
    enabled: bool = True
    description: Annotated[str, Meta(max_length=1_000)] = ""


class WebhookState(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What changes by deliveries."""

    uid: str  # begins the ids of its deliveries; never used again
    created_at_ms: int
    updated_at_ms: int
    disabled_at_ms: int | None = None  # by its failures; None: it was not
    disabled_because: str | None = None
    failures: int = 0  # in a row
    failing_since_ms: int | None = None
    last_success_ms: int | None = None
    delivered: int = 0
    given_up: int = 0
    missed_at_ms: int | None = None  # when events were pruned before they could be delivered


class WebhookRecord(Struct, frozen=True, kw_only=True):
    name: Name
    spec: WebhookSpec
    secret: str
    cursor: int  # every event up to this number has been taken or left
    state: WebhookState

    @property
    def is_live(self) -> bool:
        return self.spec.enabled and self.state.disabled_at_ms is None

    @property
    def condition(self) -> WebhookCondition:
        if not self.spec.enabled:
            return "off"
        if self.state.disabled_at_ms is not None:
            return "disabled"
        return "failing" if self.state.failures else "active"


class WebhookDelivery(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One event on its way to one receiver."""

    webhook: str
    event: LoggedEvent
    state: DeliveryState = "waiting"
    attempts: int = 0  # requests that have ended
    queued_at_ms: int
    due_ms: int | None  # of the next request; None: there is none
    last_at_ms: int | None = None  # the end of the last request
    code: int | None = None  # the status of the last answer; None: there was none
    error: str | None = None  # of the last request
    took_ms: int | None = None


def delivery_id(uid: str, seq: int) -> str:
    """The id under which a receiver knows a delivery, the same for every attempt."""
    return f"{uid}-{seq}"


def check_patterns(spec: WebhookSpec) -> None:
    """Refuse patterns of events that can never match: they would look like silence."""
    if not spec.events:
        raise Invalid("events: name at least one type, or leave it out", field="events")
    for pattern in spec.events:
        kind, colon, reason = pattern.partition(":")
        named = matching_types(kind)
        if not named:
            raise Invalid(f"events: there are no events of type {kind!r}", field="events")
        if colon and not (reason and any("reason" in EVENT_KINDS[one].data for one in named)):
            raise Invalid(
                f"events: {pattern!r}: events of type {kind!r} have no reason", field="events"
            )
    for field, patterns in (("queues", spec.queues), ("workflows", spec.workflows)):
        for pattern in patterns:
            if "*" in pattern[:-1]:
                raise Invalid(f"{field}: {pattern!r}: a star may only be at the end", field=field)


def matching_types(pattern: str) -> frozenset[str]:
    """The types that a pattern names: one, or all that begin with it."""
    if pattern.endswith("*"):
        return frozenset(kind for kind in EVENT_KINDS if kind.startswith(pattern[:-1]))
    return frozenset(EVENT_KINDS.keys() & {pattern})


def wanted_types(spec: WebhookSpec) -> frozenset[str]:
    """The types of events that a webhook may deliver."""
    return frozenset().union(*(matching_types(one.partition(":")[0]) for one in spec.events))


def wants(spec: WebhookSpec, event: LoggedEvent) -> bool:
    """Whether a webhook delivers an event."""
    if not any(_is_of_type(pattern, event) for pattern in spec.events):
        return False
    if not spec.queues and not spec.workflows:
        return True
    workflow = event.data.get("workflow")
    if workflow is not None and any(_fits(one, workflow) for one in spec.workflows):
        return True
    return any(_fits(one, queue) for one in spec.queues for queue in queues_of(event))


def queues_of(event: LoggedEvent) -> tuple[str, ...]:
    """The queues that an event is about."""
    match event.type.partition("-")[0]:
        case "queue":
            return (event.subject,)
        case "worker":
            return tuple(event.data.get("queues") or ())
        case _:
            queue: Any = event.data.get("queue")
            return (queue,) if isinstance(queue, str) else ()


def _is_of_type(pattern: str, event: LoggedEvent) -> bool:
    kind, colon, reason = pattern.partition(":")
    if colon and event.data.get("reason") != reason:
        return False
    return _fits(kind, event.type)


def _fits(pattern: str, name: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def encode_spec(spec: WebhookSpec) -> bytes:
    return msgspec.json.encode(spec)
