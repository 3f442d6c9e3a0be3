"""Workers on sockets, as they speak for themselves: register, beat, leave."""

import asyncio
import math
from collections.abc import Sequence

import msgspec

from rota.core import access
from rota.core.access import Action
from rota.core.events import LeaveWorker, RegisterWorker
from rota.core.replies import Beat, Done, Registered
from rota.core.sessions import pin_of
from rota.core.workers import Worker
from rota.errors import Forbidden, WorkerNotFound
from rota.gateways.websocket.attachments import beat_of
from rota.gateways.websocket.holding import Attachment, Held, held_of
from rota.gateways.websocket.routing import (
    COORDINATOR,
    COORDINATOR_PROXY,
    Call,
    Route,
    checked_name,
)
from rota.messages.sessions import BeatAnswer, NewWorker, OfWorker, WorkerAnswer, WorkerBeat

USUAL_INTERVAL_MS = 5_000
# A silent peer is pinged after 5.5 s, and beaten for in the next round, up to 2.5 s later.
MOST_SILENCE_MS = 10_000

# --- coming and going ---------------------------------------------------------------------------


def interval_ms(degraded_after: float) -> int:
    """At which a socket counts as beating: however few may be missed, it is never late by ours."""
    return max(USUAL_INTERVAL_MS, math.ceil(MOST_SILENCE_MS / degraded_after))


async def register(call: Call) -> WorkerAnswer:
    asked = call.read(NewWorker)
    queue, worker_id = call.queue(), _worker_id(call, asked.worker_id)
    desk = call.desk
    async with desk.attachments.arriving(worker_id):
        figures = await call.coordinator.queries.worker(worker_id)
        before = _on_socket(None if figures is None else figures.worker)
        event = _registration(
            worker_id,
            queue,
            asked,
            before,
            heartbeat_interval_ms=interval_ms(desk.settings.degraded_after),
        )
        for one in event.queues or ():
            access.check_queue(call.caller, one)
        reply = await call.coordinator.handle(event)
        assert isinstance(reply, Registered)
        held: list[Held] = []
        if before is not None and before.incarnation == reply.worker.incarnation:
            held = await _still_held(call, reply.worker, asked.holding)
        desk.attachments.attach(reply.worker, call.connection, held)
        # Until it waits for work: what is submitted next, even in the same frame, finds it free.
        await asyncio.sleep(0)
    return WorkerAnswer(
        status="registered", worker_id=worker_id, holding=[one.name for one in held]
    )


def _on_socket(worker: Worker | None) -> Worker | None:
    """A worker that came over a socket can go on over another; any other would be a stranger."""
    return worker if worker is not None and pin_of(worker.id) in worker.capabilities else None


def _registration(
    worker_id: str,
    queue: str,
    asked: NewWorker,
    before: Worker | None,
    *,
    heartbeat_interval_ms: int,
) -> RegisterWorker:
    """A worker may serve several coordinators: each registration adds one."""
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
    )


async def _still_held(call: Call, worker: Worker, named: Sequence[str] | None) -> list[Held]:
    """What a worker that came back has; what it says it does not run goes to somebody else."""
    attachments = call.desk.attachments
    attached = attachments.by_worker.get(worker.id)
    if attached is not None and attached.worker.incarnation == worker.incarnation:
        held = list(attached.holding.values())
    else:
        tasks = await call.coordinator.queries.sessions.held(worker.incarnation)
        # One that does not say what it runs may have begun anew, and know nothing of these.
        again_at_ms = call.coordinator.clock.now_ms() + call.desk.settings.unclaimed_lease_ms
        held = [held_of(task, again_at_ms=again_at_ms) for task in tasks]
    if named is None:
        return held
    kept = [one for one in held if one.name in named]
    attachments.give_back(worker, [one for one in held if one.name not in named])
    for one in kept:
        one.again = None
    return kept


async def unregister(call: Call) -> WorkerAnswer:
    attachment = own_attachment(call, call.read(OfWorker).worker_id)
    worker = attachment.worker
    event = LeaveWorker(worker_id=worker.id, incarnation=worker.incarnation)
    reply = await call.coordinator.handle(event)
    assert isinstance(reply, Done)
    call.desk.attachments.detach(attachment)
    return WorkerAnswer(status="unregistered", worker_id=worker.id, released=reply.count)


async def heartbeat(call: Call) -> BeatAnswer:
    asked = call.read(WorkerBeat)
    attachment = own_attachment(call, asked.worker_id)
    event = msgspec.structs.replace(beat_of(attachment), load=asked.load)
    beat = await call.coordinator.handle(event)
    assert isinstance(beat, Beat)
    call.desk.attachments.noted(attachment, beat)
    return BeatAnswer(
        worker_id=attachment.worker.id,
        holding=[held.name for held in attachment.holding.values()],
    )


# --- who speaks ---------------------------------------------------------------------------------


def _worker_id(call: Call, named: str | None) -> str:
    worker_id = named or checked_name(call.envelope.sender, "workerId")
    access.check_worker(call.caller, worker_id)
    return worker_id


def own_attachment(call: Call, named: str | None) -> Attachment:
    """The worker that is meant, if it lives on this socket or another of the same session."""
    worker_id = _worker_id(call, named)
    attachment = call.desk.attachments.by_worker.get(worker_id)
    if attachment is None:
        raise WorkerNotFound(worker_id)
    if attachment.connection.session_id != call.connection.session_id:
        raise Forbidden(f"worker {worker_id!r} is attached to another session", worker_id=worker_id)
    return attachment


ROUTES = (
    Route(
        kind=COORDINATOR,
        type="register_worker",
        action=Action.WORK,
        handler=register,
        payload=NewWorker,
        answer=WorkerAnswer,
        proxy=COORDINATOR_PROXY,
        summary="A worker offers itself; tasks that wait, and later ones, are pushed to its "
        "socket. One that comes back in time keeps what it holds.",
    ),
    Route(
        kind=COORDINATOR,
        type="heartbeat",
        action=Action.WORK,
        handler=heartbeat,
        payload=WorkerBeat,
        answer=BeatAnswer,
        summary="A worker says that it lives. Not needed: an open socket that answers pings does.",
    ),
    Route(
        kind=COORDINATOR,
        type="unregister_worker",
        action=Action.WORK,
        handler=unregister,
        payload=OfWorker,
        answer=WorkerAnswer,
        summary="A worker leaves; what it holds goes back at once, without using up an attempt.",
    ),
)
