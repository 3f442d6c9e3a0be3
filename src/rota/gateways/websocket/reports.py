"""Workers on sockets, when they report: results, failures, and how far they are."""

import msgspec
from msgspec import Raw

from rota.core.access import Action
from rota.core.events import Progress, ReportProgress, ReportResults, Result
from rota.core.replies import Outcomes
from rota.core.tasks import TaskError, TaskState
from rota.errors import Invalid, StaleLease, TaskNotFound
from rota.gateways.http.reports import task_error
from rota.gateways.websocket.holding import Attachment, Held, held_of
from rota.gateways.websocket.routing import (
    COORDINATOR,
    COORDINATOR_PROXY,
    Call,
    Route,
    checked_name,
)
from rota.gateways.websocket.workers import own_attachment
from rota.messages.sessions import CompletedTask, FailedTask, OfTask, TaskAnswer, TaskProgress


async def complete(call: Call) -> TaskAnswer:
    asked = call.read(CompletedTask)
    attachment, name = own_attachment(call, asked.worker_id), _task_name(call, asked)
    result = _json(call, asked.result, "result")
    done = TaskAnswer(status="completed", task_id=name)
    held = await _held(call, attachment, asked, name, said=TaskState.SUCCEEDED)
    if held is not None:
        await _report(call, attachment, held, Result(held.task_id, held.fence, result=result))
    return done


async def fail(call: Call) -> TaskAnswer:
    asked = call.read(FailedTask)
    attachment, name = own_attachment(call, asked.worker_id), _task_name(call, asked)
    error = task_error(asked.error, most_bytes=call.desk.settings.max_payload_bytes)
    if asked.retry is not None:
        error = msgspec.structs.replace(error, retryable=asked.retry)
    held = await _held(call, attachment, asked, name, said=TaskState.FAILED)
    if held is not None:
        await _report(call, attachment, held, _failure(held, error, asked.retry_in_ms))
    return TaskAnswer(status="failed", task_id=name)


def _failure(held: Held, error: TaskError, retry_in_ms: int | None) -> Result:
    return Result(held.task_id, held.fence, ok=False, error=error, retry_in_ms=retry_in_ms)


async def _report(call: Call, attachment: Attachment, held: Held, result: Result) -> None:
    """Say what became of a task; the call for the next one goes into the same batch."""
    worker = attachment.worker
    attachment.let_go(held)
    event = ReportResults(worker_id=worker.id, incarnation=worker.incarnation, results=[result])
    try:
        reply = await call.coordinator.handle(event)
    except BaseException:
        attachment.take(held)
        raise
    assert isinstance(reply, Outcomes)
    if reply.outcomes[0] not in {"accepted", "duplicate"}:
        raise StaleLease(held.name)


async def progress(call: Call) -> TaskAnswer:
    asked = call.read(TaskProgress)
    attachment, name = own_attachment(call, asked.worker_id), _task_name(call, asked)
    values = _json(call, asked.progress, "progress"), _json(call, asked.partial, "partial")
    if values == (None, None):
        raise Invalid("progress: give this or partial", field="progress")
    held = await _held(call, attachment, asked, name, said=None)
    assert held is not None
    worker = attachment.worker
    event = ReportProgress(
        worker_id=worker.id,
        incarnation=worker.incarnation,
        items=[Progress(held.task_id, held.fence, *values)],
    )
    reply = await call.coordinator.handle(event)
    assert isinstance(reply, Outcomes)
    if reply.outcomes[0] != "accepted":
        raise StaleLease(name)
    return TaskAnswer(status="noted", task_id=name)


# --- of what -----------------------------------------------------------------------------------


def _json(call: Call, raw: Raw | None, field: str) -> bytes | None:
    value = call.value(raw, field)
    return None if value is None else bytes(value)


def _task_name(call: Call, asked: OfTask) -> str:
    return asked.task_id or checked_name(call.envelope.task_id, "taskId")


async def _held(
    call: Call, attachment: Attachment, asked: OfTask, name: str, *, said: TaskState | None
) -> Held | None:
    """The task that is meant, if the worker has it; None when it has said the same before."""
    queue = call.queue()
    held = attachment.holding.get((queue, name))
    if held is None:
        task = await call.coordinator.queries.sessions.find(queue, name)
        if task is None:
            raise TaskNotFound(name)
        is_mine = task.worker_id == attachment.worker.id
        if is_mine and task.state is TaskState.RUNNING:
            if task.incarnation != attachment.worker.incarnation:
                raise StaleLease(name)
            held = held_of(task)
        elif is_mine and task.state is said and asked.fence in {None, task.fence}:
            return None
        else:
            raise StaleLease(name, f"task {name!r} is not held by this worker")
    if asked.fence not in {None, held.fence}:
        raise StaleLease(name)
    return held


ROUTES = (
    Route(
        kind=COORDINATOR,
        type="task_complete",
        action=Action.WORK,
        handler=complete,
        payload=CompletedTask,
        answer=TaskAnswer,
        proxy=COORDINATOR_PROXY,
        summary="A worker has done a task that it holds.",
    ),
    Route(
        kind=COORDINATOR,
        type="task_failed",
        action=Action.WORK,
        handler=fail,
        payload=FailedTask,
        answer=TaskAnswer,
        summary="A worker could not do a task that it holds; another attempt follows, if any is "
        "left.",
    ),
    Route(
        kind=COORDINATOR,
        type="report_progress",
        action=Action.WORK,
        handler=progress,
        payload=TaskProgress,
        answer=TaskAnswer,
        summary="How far a worker is with a task that it holds.",
    ),
)
