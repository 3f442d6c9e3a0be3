"""Webhooks over HTTP: made, changed, tested, looked at. All of it is for unbound admins."""

import secrets
import time
from typing import Any

import msgspec

from rota.core.access import Action
from rota.core.outbound import signatures
from rota.core.outbound.targets import check_literal, parse_target
from rota.core.webhooks.commands import DeleteWebhook, PutWebhook
from rota.core.webhooks.model import (
    WebhookDelivery,
    WebhookRecord,
    WebhookSpec,
    check_patterns,
    delivery_id,
)
from rota.core.webhooks.rendering import trial_event
from rota.engine.outbound.client import OutboundFailed, elapsed_ms
from rota.engine.outbound.responses import problem_of
from rota.engine.webhooks.deliverer import request_for
from rota.engine.webhooks.queries import WebhookFigures
from rota.errors import Invalid, TooMany, WebhookNotFound
from rota.gateways.http.routing.endpoint import HttpCall, NoQuery, Routes
from rota.gateways.http.routing.responses import HttpResponse, encoded
from rota.gateways.validation import checked_name
from rota.messages import NoFields
from rota.messages.outbound.webhooks import (
    DeliveryView,
    WebhookPage,
    WebhookPut,
    WebhookTest,
    WebhookView,
)

UID_BYTES = 9
SECRET_BYTES = 32

routes = Routes("Webhooks")


@routes.put(
    "/api/webhooks/{name}",
    Action.OPERATE,
    answer=WebhookView,
    status=200,
    other_statuses=(201,),
    errors=(Invalid, TooMany),
)
async def put(call: HttpCall[WebhookPut, NoQuery]) -> HttpResponse:
    """Make a webhook, or replace what is set for it.

    A new one begins with the events from now on. The answer to the request that makes it, and to
    one that changes the secret, has the secret; it is never shown again. 201 for a new one.
    """
    name, body = _name(call), call.body
    spec = WebhookSpec(**{field: getattr(body, field) for field in WebhookSpec.__struct_fields__})
    check_literal(call.coordinator.outbound.policy, parse_target(spec.url))
    check_patterns(spec)
    if body.secret is not None:
        signatures.key_of(body.secret)
    command = PutWebhook(
        name=name,
        spec=spec,
        secret=body.secret,
        new_secret=signatures.new_secret(secrets.token_bytes(SECRET_BYTES)),
        new_uid=secrets.token_urlsafe(UID_BYTES),
    )
    shown = await call.coordinator.execute(command)
    view = webhook_view(await _figures(call, shown.record))
    if shown.has_new_secret:
        view = msgspec.structs.replace(view, secret=shown.record.secret)
    return encoded(view, 201 if shown.is_new else 200)


@routes.get("/api/webhooks", Action.OPERATE)
async def listing(call: HttpCall[None, NoQuery]) -> WebhookPage:
    """List the webhooks by name, without their deliveries."""
    found = await call.coordinator.queries.webhooks.all()
    return WebhookPage(items=[webhook_view(one) for one in found])


@routes.get("/api/webhooks/{name}", Action.OPERATE, errors=(WebhookNotFound,))
async def show(call: HttpCall[None, NoQuery]) -> WebhookView:
    """Show a webhook with its newest deliveries."""
    return webhook_view(await _found(call))


@routes.delete("/api/webhooks/{name}", Action.OPERATE, errors=(WebhookNotFound,))
async def delete(call: HttpCall[None, NoQuery]) -> WebhookView:
    """Delete a webhook with its deliveries; what waits is not delivered."""
    shown = await call.coordinator.execute(DeleteWebhook(name=_name(call)))
    return webhook_view(WebhookFigures(shown.record, 0, []))


@routes.post("/api/webhooks/{name}/test", Action.OPERATE, errors=(WebhookNotFound,))
async def test(call: HttpCall[NoFields | None, NoQuery]) -> WebhookTest:
    """Send an event of the type `webhook-test` now, and show how the receiver took it.

    The request is signed like every other. It is sent once, whether the webhook is enabled or not,
    and changes nothing.
    """
    record = (await _found(call)).record
    now_ms, started_s = call.coordinator.clock.now_ms(), time.monotonic()
    delivery = WebhookDelivery(
        webhook=record.name,
        event=trial_event(record.name, now_ms),
        queued_at_ms=now_ms,
        due_ms=now_ms,
    )
    try:
        answer = await call.coordinator.outbound.post(request_for(record, delivery, now_ms))
    except OutboundFailed as failure:
        return WebhookTest(ok=False, error=str(failure), took_ms=elapsed_ms(started_s))
    problem = problem_of(answer)
    return WebhookTest(
        ok=problem is None, code=answer.status, error=problem, took_ms=elapsed_ms(started_s)
    )


def _name(call: HttpCall[Any, Any]) -> str:
    return checked_name(call.path["name"], "name")


async def _found(call: HttpCall[Any, Any]) -> WebhookFigures:
    name = _name(call)
    found = await call.coordinator.queries.webhooks.by_name(name)
    if found is None:
        raise WebhookNotFound(name)
    return found


async def _figures(call: HttpCall[Any, Any], record: WebhookRecord) -> WebhookFigures:
    """What is known about a webhook that was just put; it may be gone already."""
    found = await call.coordinator.queries.webhooks.by_name(record.name)
    return WebhookFigures(record, 0, []) if found is None else found._replace(record=record)


def webhook_view(figures: WebhookFigures) -> WebhookView:
    """A webhook as callers see it: without its secret."""
    record, spec, state = figures.record, figures.record.spec, figures.record.state
    return WebhookView(
        name=record.name,
        url=spec.url,
        events=spec.events,
        queues=spec.queues,
        workflows=spec.workflows,
        format=spec.format,
        enabled=spec.enabled,
        description=spec.description,
        state=record.condition,
        disabled_at_ms=state.disabled_at_ms,
        disabled_because=state.disabled_because,
        failures=state.failures,
        failing_since_ms=state.failing_since_ms,
        last_success_ms=state.last_success_ms,
        missed_at_ms=state.missed_at_ms,
        delivered=state.delivered,
        given_up=state.given_up,
        pending=figures.pending,
        created_at_ms=state.created_at_ms,
        updated_at_ms=state.updated_at_ms,
        deliveries=[_delivery_view(one, state.uid) for one in figures.deliveries],
    )


def _delivery_view(delivery: WebhookDelivery, uid: str) -> DeliveryView:
    event = delivery.event
    return DeliveryView(
        id=delivery_id(uid, event.seq),
        seq=event.seq,
        type=event.type,
        subject=event.subject,
        at_ms=event.at_ms,
        state=delivery.state,
        attempts=delivery.attempts,
        last_at_ms=delivery.last_at_ms,
        next_at_ms=delivery.due_ms,
        code=delivery.code,
        error=delivery.error,
        took_ms=delivery.took_ms,
    )
