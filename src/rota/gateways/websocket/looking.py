"""How do things stand? A coordinator's queue, and a worker, as those at a socket see them."""

from rota.core.access import Action
from rota.core.sessions import name_of
from rota.engine.queries import WorkerFigures
from rota.gateways.websocket.routing import COORDINATOR, COORDINATOR_PROXY, WORKER, Call, Route
from rota.messages.sessions import QueueAnswer, WorkerStateAnswer


async def status(call: Call) -> QueueAnswer:
    found = await call.coordinator.queries.sessions.status(call.queue())
    return QueueAnswer(
        workers=found.workers,
        queued_tasks=found.queued,
        active_tasks=[(name_of(task), task.worker_id) for task in found.active],
    )


async def state(call: Call) -> WorkerStateAnswer:
    """A worker's own view; one that nobody has heard of has done nothing yet."""
    figures = await known_worker(call)
    if figures is None:
        return WorkerStateAnswer(worker_id=call.address, current_task=None, processed_count=0)
    worker = figures.worker
    queues = call.caller.queues
    held = [
        task
        for task in await call.coordinator.queries.sessions.held(worker.incarnation)
        if queues is None or task.lane.queue in queues
    ]
    return WorkerStateAnswer(
        worker_id=worker.id,
        current_task=name_of(held[0]) if held else None,
        processed_count=sum(
            quality.statistics.tasks_completed for quality in figures.qualities.values()
        ),
    )


async def known_worker(call: Call) -> WorkerFigures | None:
    """The worker that is addressed: by its id, or by an id that has the form of its address."""
    queries = call.coordinator.queries
    found = await queries.worker(call.address)
    return found if found is not None else await queries.worker(f"{WORKER}:{call.address}")


ROUTES = (
    Route(
        kind=COORDINATOR,
        type="get_status",
        action=Action.READ,
        handler=status,
        answer=QueueAnswer,
        proxy=COORDINATOR_PROXY,
        summary="Who serves this queue, how much waits, and who runs what.",
    ),
    Route(
        kind=WORKER,
        type="get_state",
        action=Action.READ,
        handler=state,
        answer=WorkerStateAnswer,
        summary="What a worker runs, and how many tasks it has completed.",
    ),
)
