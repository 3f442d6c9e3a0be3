"""Tasks over a socket: submitted to a queue, or to one worker and waited for."""

from rota.core import access, limits
from rota.core.access import Action
from rota.core.commands import SubmitTasks
from rota.core.ids import TaskId
from rota.core.replies import SubmissionStatus, SubmissionStatuses, Submitted
from rota.core.sessions import key_of, name_of, pin_of
from rota.core.tasks.keys import KeySpace
from rota.core.tasks.model import FINISHED, NULL, NewTask, TaskRecord, TaskState
from rota.core.workers.model import WorkerRecord
from rota.errors import Invalid, TaskNotFound, Unavailable, WorkerNotFound
from rota.gateways.websocket.session.routing import (
    COORDINATOR,
    COORDINATOR_PROXY,
    WORKER,
    WORKER_PROXY,
    DeferredReply,
    MessageRoutes,
    SocketCall,
    checked_name,
)
from rota.gateways.websocket.session.status import known_worker
from rota.messages.sessions import FrameError, PinnedTask, SubmittedTask, TaskAnswer

DEFAULT_QUEUE = "default"  # of a worker that serves all

routes = MessageRoutes()


# --- to a coordinator ---------------------------------------------------------------------------


@routes.message(
    COORDINATOR, "assign_task", Action.SUBMIT, payload=SubmittedTask, proxy=COORDINATOR_PROXY
)
async def assign(call: SocketCall) -> TaskAnswer:
    """Submit a task: its id as a text, or an object.

    The same id again is the same task, answered with its state. Its end is pushed to the
    session.
    """
    asked = call.read_short(SubmittedTask, str)
    if isinstance(asked, str):
        asked = SubmittedTask(task_id=checked_name(asked, "taskId"))
    queue = call.queue()
    task = NewTask(
        name=asked.name,
        payload=call.value(asked.payload, "payload") or NULL,
        queue=queue,
        priority=asked.priority,
        requires=tuple(asked.requires),
        key=key_of(queue, asked.task_id),
        concurrency=asked.concurrency,
        rate=asked.rate,
        fair_key=asked.fair_key,
        start_within_ms=asked.start_within_ms,
        on_expiry=asked.on_expiry,
        unique=asked.unique,
        debounce=asked.debounce,
    )
    reply = await call.coordinator.execute(
        SubmitTasks(
            [task],
            call.connection.session_id,
            KeySpace.SESSION,
            call.caller if call.caller.is_bound else None,
        )
    )
    assert isinstance(reply, SubmissionStatuses)
    return _task_answer(call, reply.items[0])


STATUSES = {
    TaskState.SCHEDULED: "queued",
    TaskState.QUEUED: "queued",
    TaskState.RUNNING: "assigned",
    TaskState.SUCCEEDED: "completed",
    TaskState.FAILED: "failed",
    TaskState.CANCELLED: "cancelled",
}


def _task_answer(call: SocketCall, found: SubmissionStatus) -> TaskAnswer:
    task = found.task
    return TaskAnswer(
        status=STATUSES[task.state],
        task_id=name_of(task),
        worker_id=task.worker_id,
        position=found.position,
        duplicate=found.is_duplicate,
        result=_result(call, task),
        error=None if task.error is None else task.error.message,
    )


def _result(call: SocketCall, task: TaskRecord) -> object:
    if task.result is None or task.result == b"null":
        return None
    return call.connection.codec.from_json(task.result)


# --- to a worker --------------------------------------------------------------------------------


@routes.message(
    WORKER, "process_task", Action.SUBMIT, payload=PinnedTask, answer=TaskAnswer, proxy=WORKER_PROXY
)
async def process(call: SocketCall) -> DeferredReply:
    """Have this worker, and no other, do a task; answered when the task has ended."""
    asked = call.read_short(PinnedTask, str)
    if isinstance(asked, str):
        asked = PinnedTask(task_id=checked_name(asked, "taskId"))
    name = checked_name(call.envelope.task_id or asked.task_id, "taskId")
    figures = await known_worker(call)
    if figures is None:
        raise WorkerNotFound(call.address)
    queue = _queue_of(figures.worker)
    access.check_queue(call.caller, queue, of=f"worker {call.address!r}")
    known = await call.coordinator.queries.sessions.find(queue, name)
    task_id = known.id if known is not None else await _submit(call, figures.worker, name, asked)
    return DeferredReply(_ended(call, task_id, name))


def _queue_of(worker: WorkerRecord) -> str:
    return worker.queues[0] if worker.queues else DEFAULT_QUEUE


async def _submit(call: SocketCall, worker: WorkerRecord, name: str, asked: PinnedTask) -> TaskId:
    pin = pin_of(worker.id)
    if pin not in worker.capabilities:
        raise Invalid(
            f"worker {worker.id!r} did not register over a socket, and has no capability {pin!r}",
            field="to",
        )
    queue = _queue_of(worker)
    task = NewTask(
        name=asked.name,
        payload=call.value(asked.payload, "payload") or NULL,
        queue=queue,
        requires=(pin,),
        key=key_of(queue, name),
    )
    reply = await call.coordinator.execute(SubmitTasks([task], key_space=KeySpace.SESSION))
    assert isinstance(reply, Submitted)
    return reply.items[0].id


async def _ended(call: SocketCall, task_id: TaskId, name: str) -> TaskAnswer | FrameError:
    coordinator = call.coordinator
    while True:
        await coordinator.wait_for_end(task_id, wait_ms=limits.MAX_WAIT_MS)
        task = await coordinator.queries.tasks.by_id(task_id)
        if task is None:
            raise TaskNotFound(name)
        if task.state is TaskState.SUCCEEDED:
            return TaskAnswer(status="completed", task_id=name, result=_result(call, task))
        if task.state in FINISHED:
            text = task.error.message if task.error is not None else f"task {name!r} was cancelled"
            return FrameError(error=text, code=f"task_{task.state}")
        if coordinator.is_stopping:
            raise Unavailable("the coordinator is stopping; ask again")
