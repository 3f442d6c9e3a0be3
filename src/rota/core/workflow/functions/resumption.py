"""The payload of the task that runs a function, and the tasks that a function asks for."""

from typing import Any

from msgspec import Raw

from rota.core import limits
from rota.core.ids import to_text
from rota.core.workflow.decisions import AskChild, AskTasks, DispatchTask, StartChild
from rota.core.workflow.functions.model import (
    FUNCTION_TOKEN,
    CallRequest,
    ChildRequest,
    MapRequest,
    capability_of,
    task_of,
)
from rota.core.workflow.functions.run import CodeRun, item_token


def resumption_task(run: CodeRun, run_id: int, links: tuple[str, ...] = ()) -> DispatchTask:
    """The task that runs the function; its payload is a `Resumption`, as JSON."""
    definition = run.function.definition
    requires = definition.requires
    if definition.upgrade == "pinned":
        requires = (*requires, capability_of(definition.name, run.function.version))
    return DispatchTask(
        FUNCTION_TOKEN,
        task_of(definition.name),
        _payload(run, run_id),
        definition.queue,
        definition.priority,
        requires,
        max_attempts=definition.max_attempts,
        links=links,
    )


def _payload(run: CodeRun, run_id: int) -> dict[str, Any]:
    assert run.started is not None
    payload: dict[str, Any] = {
        "run_id": to_text(run_id),
        "workflow": run.function.definition.name,
        "version": run.function.version,
        "input": run.input,
        "started_at_ms": run.started.at_ms,
        "reported": run.reported,
    }
    if run.restarts:
        payload["restarts"] = run.restarts
    if run.cancelled is not None:
        payload["cancelled"] = run.cancelled
    most = limits.MAX_INLINE_LOG_BYTES
    if run.log_bytes <= most:
        payload["log"] = _joined(run.log)
    ended = [run.log[one.place - 1] for one in run.unseen.values()]
    if sum(map(len, ended)) <= most:
        payload["ended"] = _joined(ended)
    return payload


def _joined(entries: list[bytes]) -> Raw:
    return Raw(b"[" + b",".join(entries) + b"]")


def asked_tasks(run: CodeRun, decision: AskTasks) -> list[DispatchTask]:
    """The tasks of a call, or of some items of a map."""
    pending = run.pending.get(run.tokens.get(decision.number, ""))
    if pending is None:
        return []  # it was cancelled by the same event
    request = pending.request
    if isinstance(request, CallRequest):
        return [_task(decision.number, request, request.payload)]
    assert isinstance(request, MapRequest)
    items = range(decision.first, decision.first + decision.count)
    return [
        _task(item_token(decision.number, index), request.call, request.payloads[index])
        for index in items
    ]


def _task(number: int, request: CallRequest, payload: Any) -> DispatchTask:
    return DispatchTask(
        number,
        request.task,
        payload,
        request.queue,
        request.priority,
        request.requires,
        request.timeout_ms,
        request.max_attempts,
        request.backoff,
        request.concurrency,
        request.rate,
        request.fair_key,
    )


def asked_child(run: CodeRun, decision: AskChild) -> StartChild | None:
    """The child run of an operation; None: the same event has cancelled it."""
    pending = run.pending.get(run.tokens.get(decision.number, ""))
    if pending is None:
        return None
    request = pending.request
    assert isinstance(request, ChildRequest)
    return StartChild(
        decision.number, request.workflow, request.input, request.timeout_ms, decision.resumes
    )
