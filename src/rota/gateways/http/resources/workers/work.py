"""Workers over HTTP: registration, heartbeats, leases."""

from typing import Any

import msgspec

from rota.core import access, ids
from rota.core.access import Action
from rota.core.commands import BeatWorker, LeaseWork, ReturnLeases
from rota.core.replies import Granted
from rota.engine.queries.workers import WorkerFigures
from rota.errors import (
    StaleIncarnation,
    WorkerNotFound,
)
from rota.gateways.http.routing.endpoint import HttpCall, NoQuery, Routes
from rota.gateways.http.views.tasks import lease_view
from rota.gateways.http.views.workers import worker_view
from rota.gateways.registration import registration_of
from rota.messages import (
    HeartbeatAnswer,
    HeartbeatRequest,
    LeaseAnswer,
    LeaseRequest,
    WorkerRegistration,
    WorkerView,
)

routes = Routes("Workers")


def acting_worker(call: HttpCall[Any, Any]) -> str:
    """The worker in the path, if the token is bound to no other.

    Whether the caller owns the worker is decided in the transaction; the command has its caller.
    """
    worker_id = call.path["worker_id"]
    access.check_worker(call.caller, worker_id)
    return worker_id


async def current_view(call: HttpCall[Any, Any], worker_id: str) -> WorkerView:
    figures = await call.coordinator.queries.workers.by_id(worker_id)
    if figures is None or not access.may_see_worker(call.caller, figures.worker.queues):
        raise WorkerNotFound(worker_id)
    return _view(call, figures)


def _view(call: HttpCall[Any, Any], figures: WorkerFigures) -> WorkerView:
    return worker_view(figures, now_ms=call.coordinator.clock.now_ms(), settings=call.settings)


# --- registration and heartbeats ------------------------------------------------------------------


@routes.post("/api/workers", Action.WORK, status=201)
async def register(call: HttpCall[WorkerRegistration, NoQuery]) -> WorkerView:
    """Register a worker.

    Without a `worker_id`, the coordinator chooses one. The answer has the `incarnation` to send
    with every later call, and the heartbeat interval to use.
    """
    registration = registration_of(call.body, call.caller)
    await call.services.worker_quota.check(call.reservation.holder, registration.worker_id)
    reply = await call.coordinator.execute(registration)
    figures = WorkerFigures(worker=reply.worker, held=0, qualities={})
    return msgspec.structs.replace(_view(call, figures), lease_ms=reply.lease_ms)


@routes.post(
    "/api/workers/{worker_id}/heartbeat",
    Action.WORK,
    keeps_work=True,
    errors=(WorkerNotFound, StaleIncarnation),
)
async def heartbeat(call: HttpCall[HeartbeatRequest, NoQuery]) -> HeartbeatAnswer:
    """Send the heartbeat of a worker with its running tasks."""
    worker_id = acting_worker(call)
    running = call.body.running
    # An id that no task can have is reported as lost.
    named = {text: ids.from_text(text) for text in running or ()}
    command = BeatWorker(
        worker_id=worker_id,
        incarnation=call.body.incarnation,
        running=None if running is None else tuple(filter(None, named.values())),
        load=call.body.load,
        by=call.caller,
    )
    beat = await call.coordinator.execute(command)
    impossible = [text for text, task_id in named.items() if task_id is None]
    return HeartbeatAnswer(
        health=beat.health,
        state=beat.state,
        cancel=[ids.to_text(task_id) for task_id in beat.cancel],
        lost=[ids.to_text(task_id) for task_id in beat.lost] + impossible,
        heartbeat_interval_ms=beat.heartbeat_interval_ms,
        lease_ms=beat.lease_ms,
    )


# --- leasing -----------------------------------------------------------------------------------


@routes.post(
    "/api/workers/{worker_id}/lease", Action.WORK, errors=(WorkerNotFound, StaleIncarnation)
)
async def lease(call: HttpCall[LeaseRequest, NoQuery]) -> LeaseAnswer:
    """Lease tasks, or wait for some.

    With `running`, the answer begins with the tasks that the worker holds and does not list.
    """
    worker_id = acting_worker(call)
    asked, running = call.body, call.body.running
    command = LeaseWork(
        worker_id=worker_id,
        incarnation=asked.incarnation,
        most=asked.max,
        wait_ms=asked.wait_ms,
        by=call.caller,
        running=None if running is None else tuple(filter(None, map(ids.from_text, running))),
    )

    async def release(granted: Granted) -> None:
        leases = tuple((task.id, task.fence) for task in granted.leases)
        if leases:
            returned = ReturnLeases(
                worker_id=worker_id, incarnation=asked.incarnation, leases=leases
            )
            await call.coordinator.execute(returned)

    granted = await call.while_connected(call.coordinator.execute(command), undo=release)
    return LeaseAnswer(leases=[lease_view(task) for task in granted.leases])
