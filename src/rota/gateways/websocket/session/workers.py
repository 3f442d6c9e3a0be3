"""Workers on sockets: registration, heartbeats, leaving."""

import asyncio
import math
from collections.abc import Sequence

import msgspec

from rota.core import access
from rota.core.access import Action, Caller
from rota.core.commands import LeaveWorker, RegisterWorker
from rota.core.replies import Done
from rota.core.sessions import pin_of
from rota.core.workers.model import WorkerRecord
from rota.errors import Forbidden, WorkerNotFound
from rota.gateways.websocket.session.routing import (
    COORDINATOR,
    COORDINATOR_PROXY,
    MessageRoutes,
    SocketCall,
    checked_name,
)
from rota.gateways.websocket.session.socket_workers import (
    HeldTask,
    SocketWorker,
    heartbeat_of,
    held_of,
)
from rota.messages.sessions import BeatAnswer, NewWorker, WorkerAnswer, WorkerBeat, WorkerReference

USUAL_INTERVAL_MS = 5_000
# A silent peer is pinged after 5.5 s; the next round of heartbeats is up to 2.5 s later.
MOST_SILENCE_MS = 10_000

routes = MessageRoutes()

# --- registration and heartbeats ----------------------------------------------------------------


def interval_ms(degraded_after: float) -> int:
    """The heartbeat interval of a worker on a socket: never so short that our rounds are late."""
    return max(USUAL_INTERVAL_MS, math.ceil(MOST_SILENCE_MS / degraded_after))


@routes.message(
    COORDINATOR, "register_worker", Action.WORK, payload=NewWorker, proxy=COORDINATOR_PROXY
)
async def register(call: SocketCall) -> WorkerAnswer:
    """Register a worker; waiting tasks and later ones are pushed to its socket.

    One that comes back in time keeps what it holds.
    """
    asked = call.read(NewWorker)
    queue, worker_id = call.queue(), _worker_id(call, asked.worker_id)
    services = call.services
    async with services.socket_workers.registering(worker_id):
        figures = await call.coordinator.queries.workers.by_id(worker_id)
        before = _on_socket(None if figures is None else figures.worker)
        command = _registration(
            worker_id,
            queue,
            asked,
            before,
            heartbeat_interval_ms=interval_ms(services.settings.degraded_after),
            by=call.caller,
        )
        _check_served(call.caller, command)
        await services.worker_quota.check(call.connection.reservation.holder, worker_id)
        reply = await call.coordinator.execute(command)
        held: list[HeldTask] = []
        if before is not None and before.incarnation == reply.worker.incarnation:
            held = await _still_held(call, reply.worker, asked.holding)
        services.socket_workers.attach(reply.worker, call.connection, held)
        # Let it begin to wait for work, so that a task in the same frame finds it free.
        await asyncio.sleep(0)
    return WorkerAnswer(
        status="registered", worker_id=worker_id, holding=[one.name for one in held]
    )


def _on_socket(worker: WorkerRecord | None) -> WorkerRecord | None:
    """The worker, if it was registered over a socket: only such a worker can be taken over."""
    return worker if worker is not None and pin_of(worker.id) in worker.capabilities else None


def _registration(
    worker_id: str,
    queue: str,
    asked: NewWorker,
    before: WorkerRecord | None,
    *,
    heartbeat_interval_ms: int,
    by: Caller,
) -> RegisterWorker:
    """The registration of a worker, which adds a queue to those that it serves."""
    served = () if before is None else before.queues or ()
    return RegisterWorker(
        worker_id=worker_id,
        node_id=asked.node_id,
        incarnation=None if before is None else before.incarnation,
        capabilities=tuple(dict.fromkeys((*asked.capabilities, pin_of(worker_id)))),
        max_concurrent_tasks=asked.max_concurrent_tasks,
        tasks=None if asked.tasks is None else tuple(dict.fromkeys(asked.tasks)),
        queues=tuple(dict.fromkeys((*served, queue))),
        heartbeat_interval_ms=heartbeat_interval_ms,
        group=asked.group,
        labels=asked.labels,
        by=by,
    )


def _check_served(caller: Caller, command: RegisterWorker) -> None:
    """Refuse to add a queue to a worker that serves queues of other tenants, without naming them.

    The worker was read before the transaction. Without this check, a registration that finds the
    worker gone meanwhile would take over queues that are not the caller's.
    """
    if caller.queues is not None and not set(caller.queues).issuperset(command.queues or ()):
        raise Forbidden(
            f"worker {command.worker_id!r} serves queues that token {caller.name!r} is not for",
            worker_id=command.worker_id,
        )


async def _still_held(
    call: SocketCall, worker: WorkerRecord, named: Sequence[str] | None
) -> list[HeldTask]:
    """The tasks of a worker that came back; tasks that it does not name are returned."""
    socket_workers = call.services.socket_workers
    attached = socket_workers.by_worker.get(worker.id)
    if attached is not None and attached.worker.incarnation == worker.incarnation:
        held = list(attached.holding.values())
    else:
        tasks = await call.coordinator.queries.tasks.held_by(worker.incarnation)
        # A worker that names no tasks may have restarted without them.
        repeat_at_ms = call.coordinator.clock.now_ms() + call.services.settings.unclaimed_lease_ms
        held = [held_of(task, repeat_at_ms=repeat_at_ms) for task in tasks]
    if named is None:
        return held
    claimed = [one for one in held if one.name in named]
    socket_workers.return_leases(worker, [one for one in held if one.name not in named])
    for one in claimed:
        one.repeat = None
    return claimed


@routes.message(COORDINATOR, "unregister_worker", Action.WORK, payload=WorkerReference)
async def unregister(call: SocketCall) -> WorkerAnswer:
    """Remove a worker; its tasks are queued again at once, without using up an attempt."""
    socket_worker = own_worker(call, call.read(WorkerReference).worker_id)
    worker = socket_worker.worker
    command = LeaveWorker(worker_id=worker.id, incarnation=worker.incarnation, by=call.caller)
    reply = await call.coordinator.execute(command)
    assert isinstance(reply, Done)
    call.services.socket_workers.detach(socket_worker)
    return WorkerAnswer(status="unregistered", worker_id=worker.id, released=reply.count)


@routes.message(COORDINATOR, "heartbeat", Action.WORK, payload=WorkerBeat)
async def heartbeat(call: SocketCall) -> BeatAnswer:
    """Send a heartbeat. Not needed while the socket answers pings."""
    asked = call.read(WorkerBeat)
    socket_worker = own_worker(call, asked.worker_id)
    command = msgspec.structs.replace(heartbeat_of(socket_worker), load=asked.load, by=call.caller)
    beat = await call.coordinator.execute(command)
    call.services.socket_workers.apply_heartbeat(socket_worker, beat)
    return BeatAnswer(
        worker_id=socket_worker.worker.id,
        holding=[held.name for held in socket_worker.holding.values()],
    )


# --- identity -----------------------------------------------------------------------------------


def _worker_id(call: SocketCall, named: str | None) -> str:
    worker_id = named or checked_name(call.envelope.sender, "workerId")
    access.check_worker(call.caller, worker_id)
    return worker_id


def own_worker(call: SocketCall, named: str | None) -> SocketWorker:
    """The named worker, if it is on this socket or another of the same session."""
    worker_id = _worker_id(call, named)
    socket_worker = call.services.socket_workers.by_worker.get(worker_id)
    if socket_worker is None:
        raise WorkerNotFound(worker_id)
    if socket_worker.connection.session_id != call.connection.session_id:
        raise Forbidden(f"worker {worker_id!r} is attached to another session", worker_id=worker_id)
    return socket_worker
