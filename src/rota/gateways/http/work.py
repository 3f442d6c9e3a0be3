"""Workers over HTTP, as they speak for themselves: register, beat, lease."""

import secrets
from typing import Any

import msgspec

from rota.core import access, ids
from rota.core.access import Action, Caller
from rota.core.events import (
    Heartbeat,
    LeaseWork,
    RegisterWorker,
    ReturnLeases,
)
from rota.core.replies import Beat, Granted, Registered
from rota.engine.queries import WorkerFigures
from rota.errors import (
    Forbidden,
    StaleIncarnation,
    WorkerNotFound,
)
from rota.gateways.http.endpoint import Call, Endpoint, NoQuery
from rota.gateways.http.views import lease_view
from rota.gateways.http.worker_views import worker_view
from rota.messages import (
    HeartbeatAnswer,
    HeartbeatRequest,
    LeaseAnswer,
    LeaseRequest,
    WorkerRegistration,
    WorkerView,
)

GIVEN_ID_BYTES = 8


async def acting_worker(call: Call[Any, Any]) -> str:
    """The worker in the path, if this caller may speak for it."""
    worker_id = call.parameter
    access.check_worker(call.caller, worker_id)
    if call.caller.queues is not None:
        figures = await call.coordinator.queries.worker(worker_id)
        if figures is None:
            raise WorkerNotFound(worker_id)
        check_queues(call.caller, figures.worker.queues)
    return worker_id


def check_queues(caller: Caller, queues: tuple[str, ...] | None) -> None:
    if queues is None:
        raise Forbidden(f"token {caller.name!r} is bound to queues; this worker serves all")
    for queue in queues:
        access.check_queue(caller, queue)


async def current_view(call: Call[Any, Any], worker_id: str) -> WorkerView:
    figures = await call.coordinator.queries.worker(worker_id)
    if figures is None:
        raise WorkerNotFound(worker_id)
    return _view(call, figures)


def _view(call: Call[Any, Any], figures: WorkerFigures) -> WorkerView:
    return worker_view(figures, now_ms=call.coordinator.clock.now_ms(), settings=call.settings)


# --- coming and beating --------------------------------------------------------------------------


def registration_of(asked: WorkerRegistration, caller: Caller) -> RegisterWorker:
    """What a worker wants to be, if this caller may be that."""
    queues = caller.queues if asked.queues is None else tuple(asked.queues)
    if caller.queues is not None:
        check_queues(caller, queues)
    given_id = caller.worker_id or f"w-{secrets.token_hex(GIVEN_ID_BYTES)}"
    worker_id = asked.worker_id or given_id
    access.check_worker(caller, worker_id)
    return RegisterWorker(
        worker_id=worker_id,
        node_id=asked.node_id,
        capabilities=tuple(dict.fromkeys(asked.capabilities)),
        max_concurrent_tasks=asked.max_concurrent_tasks,
        tasks=None if asked.tasks is None else tuple(dict.fromkeys(asked.tasks)),
        queues=None if queues is None else tuple(dict.fromkeys(queues)),
        heartbeat_interval_ms=asked.heartbeat_interval_ms,
        group=asked.group,
        labels=asked.labels,
    )


async def register(call: Call[WorkerRegistration, NoQuery]) -> WorkerView:
    reply = await call.coordinator.handle(registration_of(call.body, call.caller))
    assert isinstance(reply, Registered)
    figures = WorkerFigures(worker=reply.worker, held=0, qualities={})
    return msgspec.structs.replace(_view(call, figures), lease_ms=reply.lease_ms)


async def heartbeat(call: Call[HeartbeatRequest, NoQuery]) -> HeartbeatAnswer:
    worker_id = await acting_worker(call)
    running = call.body.running
    # An id that no task can have is no longer theirs, and was not ever.
    named = {text: ids.from_text(text) for text in running or ()}
    event = Heartbeat(
        worker_id=worker_id,
        incarnation=call.body.incarnation,
        running=None if running is None else tuple(filter(None, named.values())),
        load=call.body.load,
    )
    beat = await call.coordinator.handle(event)
    assert isinstance(beat, Beat)
    never_theirs = [text for text, task_id in named.items() if task_id is None]
    return HeartbeatAnswer(
        health=beat.health,
        state=beat.state,
        cancel=[ids.to_text(task_id) for task_id in beat.cancel],
        lost=[ids.to_text(task_id) for task_id in beat.lost] + never_theirs,
        heartbeat_interval_ms=beat.heartbeat_interval_ms,
        lease_ms=beat.lease_ms,
    )


# --- leasing -----------------------------------------------------------------------------------


async def lease(call: Call[LeaseRequest, NoQuery]) -> LeaseAnswer:
    worker_id = await acting_worker(call)
    asked = call.body
    event = LeaseWork(worker_id=worker_id, incarnation=asked.incarnation, most=asked.max)

    async def give_back(granted: Granted) -> None:
        leases = tuple((task.id, task.fence) for task in granted.leases)
        if leases:
            returned = ReturnLeases(
                worker_id=worker_id, incarnation=asked.incarnation, leases=leases
            )
            await call.coordinator.handle(returned)

    granted = await call.while_connected(
        call.coordinator.lease(event, wait_ms=asked.wait_ms), undo=give_back
    )
    return LeaseAnswer(leases=[lease_view(task) for task in granted.leases])


ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/api/workers",
        summary="Register a worker",
        description="Under an id of its own or a given one. The answer has the `incarnation` to "
        "show with every later call, and the heartbeat interval that counts.",
        noun="Workers",
        action=Action.WORK,
        handler=register,
        body=WorkerRegistration,
        is_body_needed=True,
        answer=WorkerView,
        status=201,
    ),
    Endpoint(
        method="POST",
        path="/api/workers/{worker_id}/heartbeat",
        summary="Say that a worker is alive, and what it runs",
        noun="Workers",
        action=Action.WORK,
        handler=heartbeat,
        body=HeartbeatRequest,
        is_body_needed=True,
        answer=HeartbeatAnswer,
        errors=(WorkerNotFound, StaleIncarnation),
    ),
    Endpoint(
        method="POST",
        path="/api/workers/{worker_id}/lease",
        summary="Take work, waiting for it if there is none",
        noun="Workers",
        action=Action.WORK,
        handler=lease,
        body=LeaseRequest,
        is_body_needed=True,
        answer=LeaseAnswer,
        errors=(WorkerNotFound, StaleIncarnation),
    ),
)
