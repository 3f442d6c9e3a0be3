"""Queues whose tasks are pushed over HTTP. All of it is for unbound admins."""

import secrets
from typing import Any

import msgspec

from rota.core.access import Action
from rota.core.outbound import signatures
from rota.core.outbound.push import WORKER_PREFIX, DropPush, PushRecord, PushSpec, PutPush
from rota.core.outbound.targets import check_literal, parse_target
from rota.engine.outbound.client import check_headers
from rota.errors import Invalid, PushNotFound, TooMany
from rota.gateways.http.routing.endpoint import HttpCall, NoQuery, Routes
from rota.gateways.http.routing.responses import HttpResponse, encoded
from rota.gateways.validation import checked_name
from rota.messages.outbound.push import PushPut, PushView

SECRET_BYTES = 32

routes = Routes("Queues")


@routes.put(
    "/api/queues/{queue}/push",
    Action.OPERATE,
    answer=PushView,
    status=200,
    other_statuses=(201,),
    errors=(Invalid, TooMany),
)
async def put(call: HttpCall[PushPut, NoQuery]) -> HttpResponse:
    """Push the tasks of a queue to a URL, or change how.

    The answer to the request that makes the secret has it; it is never shown again. A queue need
    not exist yet. 201 if its tasks were not pushed before.
    """
    queue, body = _queue(call), call.body
    check_literal(call.coordinator.outbound.policy, parse_target(body.url))
    headers = body.headers
    if headers is None:
        known = (await call.coordinator.queries.queues.pushed()).get(queue)
        headers = {} if known is None else known.spec.headers
    check_headers(headers)
    if body.secret is not None:
        signatures.key_of(body.secret)
    command = PutPush(
        queue=queue,
        spec=PushSpec(
            url=body.url,
            timeout_ms=body.timeout_ms,
            concurrency=body.concurrency,
            headers=headers,
        ),
        secret=body.secret,
        new_secret=signatures.new_secret(secrets.token_bytes(SECRET_BYTES)),
    )
    shown = await call.coordinator.execute(command)
    view = _view(shown.record, now_ms=call.coordinator.clock.now_ms())
    if shown.has_new_secret:
        view = msgspec.structs.replace(view, secret=shown.record.secret)
    return encoded(view, 201 if shown.is_new else 200)


@routes.get("/api/queues/{queue}/push", Action.OPERATE, errors=(PushNotFound,))
async def show(call: HttpCall[None, NoQuery]) -> PushView:
    """Show where the tasks of a queue are pushed to."""
    queue = _queue(call)
    record = (await call.coordinator.queries.queues.pushed()).get(queue)
    if record is None:
        raise PushNotFound(queue)
    return _view(record, now_ms=call.coordinator.clock.now_ms())


@routes.delete("/api/queues/{queue}/push", Action.OPERATE, errors=(PushNotFound,))
async def delete(call: HttpCall[None, NoQuery]) -> PushView:
    """Push the tasks of a queue no more; requests under way are finished."""
    shown = await call.coordinator.execute(DropPush(queue=_queue(call)))
    return _view(shown.record, now_ms=call.coordinator.clock.now_ms())


def _queue(call: HttpCall[Any, Any]) -> str:
    return checked_name(call.path["queue"], "queue")


def _view(record: PushRecord, *, now_ms: int) -> PushView:
    """A pushed queue as admins see it: without its secret, and without values of headers."""
    closed_ms = record.closed_until_ms
    return PushView(
        queue=record.queue,
        url=record.spec.url,
        timeout_ms=record.spec.timeout_ms,
        concurrency=record.spec.concurrency,
        headers=sorted(record.spec.headers),
        worker_id=f"{WORKER_PREFIX}{record.queue}",
        closed_until_ms=closed_ms if closed_ms > now_ms else None,
        changed_at_ms=record.changed_at_ms,
    )
