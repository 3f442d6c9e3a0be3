"""Tasks over a socket: submit them to a coordinator, or have one worker do one and wait for it."""

from rota.core import access, limits
from rota.core.access import Action
from rota.core.events import SubmitTasks
from rota.core.ids import TaskId
from rota.core.replies import Standing, Stood, Submitted
from rota.core.sessions import key_of, name_of, pin_of
from rota.core.tasks import FINISHED, NULL, NewTask, Task, TaskState
from rota.core.workers import Worker
from rota.errors import Invalid, TaskNotFound, Unavailable, WorkerNotFound
from rota.gateways.websocket.looking import known_worker
from rota.gateways.websocket.routing import (
    COORDINATOR,
    COORDINATOR_PROXY,
    WORKER,
    WORKER_PROXY,
    Call,
    Later,
    Route,
    checked_name,
)
from rota.messages.sessions import FrameError, PinnedTask, SubmittedTask, TaskAnswer

DEFAULT_QUEUE = "default"  # of a worker that serves all


# --- to a coordinator ---------------------------------------------------------------------------


async def assign(call: Call) -> TaskAnswer:
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
    )
    reply = await call.coordinator.handle(SubmitTasks([task], call.connection.session_id))
    assert isinstance(reply, Stood)
    return _standing(call, reply.items[0])


STATUSES = {
    TaskState.SCHEDULED: "queued",
    TaskState.QUEUED: "queued",
    TaskState.RUNNING: "assigned",
    TaskState.SUCCEEDED: "completed",
    TaskState.FAILED: "failed",
    TaskState.CANCELLED: "cancelled",
}


def _standing(call: Call, standing: Standing) -> TaskAnswer:
    task = standing.task
    return TaskAnswer(
        status=STATUSES[task.state],
        task_id=name_of(task),
        worker_id=task.worker_id,
        position=standing.position,
        duplicate=standing.is_duplicate,
        result=_result(call, task),
        error=None if task.error is None else task.error.message,
    )


def _result(call: Call, task: Task) -> object:
    if task.result is None or task.result == b"null":
        return None
    return call.connection.codec.from_json(task.result)


# --- to a worker --------------------------------------------------------------------------------


async def process(call: Call) -> Later:
    """Have one worker do one task. The task is kept; only the wait ends with the socket."""
    asked = call.read_short(PinnedTask, str)
    if isinstance(asked, str):
        asked = PinnedTask(task_id=checked_name(asked, "taskId"))
    name = checked_name(call.envelope.task_id or asked.task_id, "taskId")
    figures = await known_worker(call)
    if figures is None:
        raise WorkerNotFound(call.address)
    queue = _queue_of(figures.worker)
    access.check_queue(call.caller, queue)
    known = await call.coordinator.queries.sessions.find(queue, name)
    task_id = known.id if known is not None else await _submit(call, figures.worker, name, asked)
    return Later(_ended(call, task_id, name))


def _queue_of(worker: Worker) -> str:
    return worker.queues[0] if worker.queues else DEFAULT_QUEUE


async def _submit(call: Call, worker: Worker, name: str, asked: PinnedTask) -> TaskId:
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
    reply = await call.coordinator.handle(SubmitTasks([task]))
    assert isinstance(reply, Submitted)
    return reply.items[0].id


async def _ended(call: Call, task_id: TaskId, name: str) -> TaskAnswer | FrameError:
    coordinator = call.coordinator
    while True:
        await coordinator.wait_finished(task_id, wait_ms=limits.MAX_WAIT_MS)
        task = await coordinator.queries.sessions.task(task_id)
        if task is None:
            raise TaskNotFound(name)
        if task.state is TaskState.SUCCEEDED:
            return TaskAnswer(status="completed", task_id=name, result=_result(call, task))
        if task.state in FINISHED:
            text = task.error.message if task.error is not None else f"task {name!r} was cancelled"
            return FrameError(error=text, code=f"task_{task.state}")
        if not coordinator.is_ready:
            raise Unavailable("the coordinator is stopping; ask again")


ROUTES = (
    Route(
        kind=COORDINATOR,
        type="assign_task",
        action=Action.SUBMIT,
        handler=assign,
        payload=SubmittedTask,
        answer=TaskAnswer,
        proxy=COORDINATOR_PROXY,
        summary="Submit a task: its id as a text, or an object. The same id again is the same "
        "task, answered by how it stands. Its end is pushed to the session.",
    ),
    Route(
        kind=WORKER,
        type="process_task",
        action=Action.SUBMIT,
        handler=process,
        payload=PinnedTask,
        answer=TaskAnswer,
        proxy=WORKER_PROXY,
        summary="Have this worker, and no other, do a task; answered when the task has ended.",
    ),
)
