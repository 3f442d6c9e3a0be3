"""What a session reads: the status of a queue or a worker, and events."""

from rota.core import access
from rota.core.access import Action
from rota.core.events import EventFilter, may_see, types_of
from rota.core.sessions import name_of
from rota.engine.queries.workers import WorkerFigures
from rota.engine.topics import EventsAfter
from rota.gateways.websocket.session.routing import (
    ANY,
    COORDINATOR,
    COORDINATOR_PROXY,
    WORKER,
    MessageRoutes,
    SocketCall,
)
from rota.messages.sessions import (
    QueueAnswer,
    SubscribeEvents,
    SubscriptionAnswer,
    UnsubscribeEvents,
    WorkerStateAnswer,
    is_given,
)

routes = MessageRoutes()


@routes.message(COORDINATOR, "get_status", Action.READ, proxy=COORDINATOR_PROXY)
async def status(call: SocketCall) -> QueueAnswer:
    """Show the workers, the depth and the running tasks of a queue."""
    found = await call.coordinator.queries.sessions.status(call.queue())
    return QueueAnswer(
        workers=found.workers,
        queued_tasks=found.queued,
        active_tasks=[(name_of(task), task.worker_id) for task in found.active],
    )


@routes.message(WORKER, "get_state", Action.READ)
async def state(call: SocketCall) -> WorkerStateAnswer:
    """Show what a worker runs, and how many tasks it has completed."""
    figures = await known_worker(call)
    if figures is None:
        return WorkerStateAnswer(worker_id=call.address, current_task=None, processed_count=0)
    worker = figures.worker
    queues = call.caller.queues
    held = [
        task
        for task in await call.coordinator.queries.tasks.held_by(worker.incarnation)
        if queues is None or task.lane.queue in queues
    ]
    return WorkerStateAnswer(
        worker_id=worker.id,
        current_task=name_of(held[0]) if held else None,
        processed_count=sum(
            quality.statistics.tasks_completed for quality in figures.qualities.values()
        ),
    )


async def known_worker(call: SocketCall) -> WorkerFigures | None:
    """The addressed worker, by its id or by an id in the form of its address."""
    queries = call.coordinator.queries
    found = await queries.workers.by_id(call.address)
    if found is None:
        found = await queries.workers.by_id(f"{WORKER}:{call.address}")
    if found is None or not access.may_see_worker(call.caller, found.worker.queues):
        return None
    return found


# --- events --------------------------------------------------------------------------------------


@routes.message(ANY, "subscribe", Action.READ, payload=SubscribeEvents)
async def subscribe(call: SocketCall) -> SubscriptionAnswer:
    """Follow events, from a number on or from now.

    Each comes as an `Event` frame with this message's id as `replyTo`. A list of types is enough.
    """
    asked = call.read_short(SubscribeEvents, list[str])
    if isinstance(asked, list):
        asked = SubscribeEvents(types=asked)
    connection, coordinator = call.connection, call.coordinator
    wanted = EventFilter(types=types_of(asked.types), subject=asked.subject)
    after = coordinator.last_seq if asked.after is None else asked.after
    subscription = coordinator.subscribe(
        EventsAfter(wanted, after, lambda event: may_see(connection.caller, event))
    )
    reply_to = call.envelope.id if is_given(call.envelope.id) else None
    subscription_id = call.services.subscriptions.begin(connection, subscription, reply_to)
    return SubscriptionAnswer(status="subscribed", subscription_id=subscription_id, after=after)


@routes.message(ANY, "unsubscribe", Action.READ, payload=UnsubscribeEvents)
async def unsubscribe(call: SocketCall) -> SubscriptionAnswer:
    """End one subscription, or all of the socket."""
    named = call.read(UnsubscribeEvents).subscription_id
    count = call.services.subscriptions.end(call.connection, named)
    return SubscriptionAnswer(status="unsubscribed", subscription_id=named, count=count)
