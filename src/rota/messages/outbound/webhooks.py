"""Webhooks on the wire."""

from typing import Annotated

from msgspec import Meta

from rota.core import limits
from rota.core.webhooks.model import DEFAULT_EVENTS, DeliveryState, Patterns, WebhookFormat
from rota.messages.base import Answer, Request


class WebhookPut(Request, frozen=True, kw_only=True):
    """A webhook as a whole; what is left out has its default."""

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
    # `whsec_` and 24 to 64 bytes in base64. Absent: it keeps the one it has; a new one is made for
    # a new webhook.
    secret: Annotated[str, Meta(max_length=200)] | None = None


class DeliveryView(Answer, frozen=True, kw_only=True):
    id: str  # the header `webhook-id`
    seq: int  # of the event
    type: str
    subject: str
    at_ms: int  # of the event
    state: DeliveryState
    attempts: int  # requests that have ended
    last_at_ms: int | None = None
    next_at_ms: int | None = None  # of the next request; absent: there is none
    code: int | None = None  # the status of the last answer; absent: there was none
    error: str | None = None  # of the last request
    took_ms: int | None = None  # the last request


class WebhookView(Answer, frozen=True, kw_only=True):
    name: str
    url: str
    events: tuple[str, ...]
    queues: tuple[str, ...]
    workflows: tuple[str, ...]
    format: WebhookFormat
    enabled: bool  # as it was put
    description: str
    # The state: `active`, `failing` (the last request failed), `disabled` (by its failures), `off`.
    state: str
    disabled_at_ms: int | None = None
    disabled_because: str | None = None  # `failing` for a day, or `gone`: the receiver answered 410
    failures: int  # requests in a row
    failing_since_ms: int | None = None
    last_success_ms: int | None = None
    missed_at_ms: int | None = None  # when events were pruned before they could be delivered
    delivered: int
    given_up: int  # deliveries without an attempt left
    pending: int  # deliveries that wait
    created_at_ms: int
    updated_at_ms: int
    # Only in the answer to a PUT that has made it: it is not shown again.
    secret: str | None = None
    deliveries: list[DeliveryView] = []  # the newest first; a list of webhooks has none


class WebhookPage(Answer, frozen=True, kw_only=True):
    items: list[WebhookView]


class WebhookTest(Answer, frozen=True, kw_only=True):
    """How the receiver took an event of the type `webhook-test`."""

    ok: bool  # it answered with 2xx
    code: int | None = None
    error: str | None = None
    took_ms: int
