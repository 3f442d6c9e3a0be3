"""Reports of workers on sockets: results, failures, progress."""

import msgspec
from msgspec import Raw

from rota.core.access import Action
from rota.core.commands import Progress, ReportProgress, ReportResults, Result
from rota.core.tasks.model import TaskError, TaskState
from rota.errors import Invalid, StaleLease, TaskNotFound
from rota.gateways.validation import task_error
from rota.gateways.websocket.session.routing import (
    COORDINATOR,
    COORDINATOR_PROXY,
    MessageRoutes,
    SocketCall,
    checked_name,
)
from rota.gateways.websocket.session.socket_workers import HeldTask, SocketWorker, held_of
from rota.gateways.websocket.session.workers import own_worker
from rota.messages.sessions import (
    CompletedTask,
    FailedTask,
    TaskAnswer,
    TaskProgress,
    TaskReference,
)

routes = MessageRoutes()


@routes.message(
    COORDINATOR, "task_complete", Action.WORK, payload=CompletedTask, proxy=COORDINATOR_PROXY
)
async def complete(call: SocketCall) -> TaskAnswer:
    """Report that a task has succeeded."""
    asked = call.read(CompletedTask)
    socket_worker, name = own_worker(call, asked.worker_id), _task_name(call, asked)
    result = _json(call, asked.result, "result")
    done = TaskAnswer(status="completed", task_id=name)
    held = await _held(call, socket_worker, asked, name, reported=TaskState.SUCCEEDED)
    if held is not None:
        await _report(call, socket_worker, held, Result(held.task_id, held.fence, result=result))
    return done


@routes.message(COORDINATOR, "task_failed", Action.WORK, payload=FailedTask)
async def fail(call: SocketCall) -> TaskAnswer:
    """Report that a task has failed; another attempt follows, if any is left."""
    asked = call.read(FailedTask)
    socket_worker, name = own_worker(call, asked.worker_id), _task_name(call, asked)
    error = task_error(asked.error, most_bytes=call.services.settings.max_payload_bytes)
    if asked.retry is not None:
        error = msgspec.structs.replace(error, retryable=asked.retry)
    held = await _held(call, socket_worker, asked, name, reported=TaskState.FAILED)
    if held is not None:
        await _report(call, socket_worker, held, _failure(held, error, asked.retry_in_ms))
    return TaskAnswer(status="failed", task_id=name)


def _failure(held: HeldTask, error: TaskError, retry_in_ms: int | None) -> Result:
    return Result(held.task_id, held.fence, ok=False, error=error, retry_in_ms=retry_in_ms)


async def _report(
    call: SocketCall, socket_worker: SocketWorker, held: HeldTask, result: Result
) -> None:
    """Report a result; the lease of the next task goes into the same batch."""
    worker = socket_worker.worker
    socket_worker.release(held)
    command = ReportResults(
        worker_id=worker.id,
        incarnation=worker.incarnation,
        results=[result],
        by=call.caller,
    )
    try:
        reply = await call.coordinator.execute(command)
    except BaseException:
        socket_worker.take(held)
        raise
    if reply.outcomes[0] not in {"accepted", "duplicate"}:
        raise StaleLease(held.name)


@routes.message(COORDINATOR, "report_progress", Action.WORK, payload=TaskProgress)
async def progress(call: SocketCall) -> TaskAnswer:
    """Report the progress of a task."""
    asked = call.read(TaskProgress)
    socket_worker, name = own_worker(call, asked.worker_id), _task_name(call, asked)
    values = _json(call, asked.progress, "progress"), _json(call, asked.partial, "partial")
    if values == (None, None):
        raise Invalid("progress: give this or partial", field="progress")
    held = await _held(call, socket_worker, asked, name, reported=None)
    assert held is not None
    worker = socket_worker.worker
    command = ReportProgress(
        worker_id=worker.id,
        incarnation=worker.incarnation,
        items=[Progress(held.task_id, held.fence, *values)],
        by=call.caller,
    )
    reply = await call.coordinator.execute(command)
    if reply.outcomes[0] != "accepted":
        raise StaleLease(name)
    return TaskAnswer(status="noted", task_id=name)


# --- the reported task --------------------------------------------------------------------------


def _json(call: SocketCall, raw: Raw | None, field: str) -> bytes | None:
    value = call.value(raw, field)
    return None if value is None else bytes(value)


def _task_name(call: SocketCall, asked: TaskReference) -> str:
    return asked.task_id or checked_name(call.envelope.task_id, "taskId")


async def _held(
    call: SocketCall,
    socket_worker: SocketWorker,
    asked: TaskReference,
    name: str,
    *,
    reported: TaskState | None,
) -> HeldTask | None:
    """The named task, if the worker holds it; None for a repeated report."""
    queue = call.queue()
    held = socket_worker.holding.get((queue, name))
    if held is None:
        task = await call.coordinator.queries.sessions.find(queue, name)
        if task is None:
            raise TaskNotFound(name)
        is_mine = task.worker_id == socket_worker.worker.id
        if is_mine and task.state is TaskState.RUNNING:
            if task.incarnation != socket_worker.worker.incarnation:
                raise StaleLease(name)
            held = held_of(task)
        elif is_mine and task.state is reported and asked.fence in {None, task.fence}:
            return None
        else:
            raise StaleLease(name, f"task {name!r} is not held by this worker")
    if asked.fence not in {None, held.fence}:
        raise StaleLease(name)
    return held
