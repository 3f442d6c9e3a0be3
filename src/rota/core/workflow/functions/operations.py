"""Operations of a function: what it reports, what it asks for, and how that ends."""

from typing import Any, assert_never

from msgspec.structs import replace

from rota.core import limits
from rota.core.workflow.decisions import (
    AskChild,
    AskTasks,
    CancelChild,
    CancelTask,
    EndOperation,
    WarnOperations,
)
from rota.core.workflow.events import ChildEnded, TaskEnded, TimerFired
from rota.core.workflow.functions import signals
from rota.core.workflow.functions.model import (
    REMOTE_KINDS,
    ApprovalRequest,
    CallRequest,
    ChildRequest,
    EventRequest,
    MapRequest,
    Operation,
    Request,
    SleepRequest,
)
from rota.core.workflow.functions.run import (
    ITEM_SPAN,
    CodeRun,
    GroupWaits,
    KeptSignal,
    PendingOperation,
    UnseenEnd,
    decode_entry,
    encode_value,
    item_token,
)

NO_ERROR = {"type": "error", "message": "failed"}


class InvalidReportError(Exception):
    """A report that no function makes. It ends the run, and says why."""


# --- reports --------------------------------------------------------------------------------------


def unknown_part(run: CodeRun, after: int, operations: list[Operation]) -> list[Operation] | None:
    """The entries of a report that the run does not have; None: entries before them are missing."""
    known = run.reported - after
    return None if known < 0 else operations[known:]


def report(run: CodeRun, operations: list[Operation]) -> None:
    """Take up entries that a function has reported."""
    before = run.count
    for one in operations:
        run.reported += 1
        match one.state:
            case "pending":
                _ask(run, one)
            case "started":
                run.append(one)
                run.begun[one.path] = None
                run.count += 1
            case "failed" if one.path in run.pending or one.path in run.unseen:
                withdraw(run, one)
            case "done" | "failed":
                run.append(one)
                run.count += one.path not in run.begun
                run.begun.pop(one.path, None)
                if one.state == "done":
                    _take_effect(run, one)
            case "delivered":
                if run.unseen.pop(one.path, None) is None:
                    raise InvalidReportError(f"{one.path!r} has no end that could be delivered")
                run.append(one)
            case _:
                assert_never(one.state)
    if before < limits.OPERATIONS_WARNING <= run.count:
        run.decisions.append(WarnOperations(run.count))


def _take_effect(run: CodeRun, operation: Operation) -> None:
    """Let callers see what a function publishes, streams and replies."""
    if operation.kind not in {"publish", "stream", "reply"}:
        return
    result = operation.result
    if not isinstance(result, dict):
        raise InvalidReportError(f"{operation.path!r} has a result that is no object")
    value = result.get("value")
    if operation.kind == "publish":
        run.published = {**run.published, str(result.get("key")): value}
    elif operation.kind == "stream":
        run.streams.setdefault(str(result.get("stream")), []).append(encode_value(value))
        run.has_news = True
        run.stream_values += 1
    else:
        signals.reply(run, result.get("number"), value)


# --- asking ---------------------------------------------------------------------------------------


def _ask(run: CodeRun, operation: Operation) -> None:
    request, path = operation.request, operation.path
    if request is None or operation.kind not in REMOTE_KINDS:
        raise InvalidReportError(f"{path!r} is pending without a request")
    if path in run.pending:
        raise InvalidReportError(f"{path!r} is pending twice")
    place = run.append(replace(operation, request=_slim(request)))
    run.count += 1
    token = run.first + place
    pending = PendingOperation(token, path, operation.kind, request, run.now_ms)
    run.pending[path] = pending
    run.tokens[token] = path
    match request:
        case CallRequest():
            run.decisions.append(AskTasks(token))
        case MapRequest():
            _begin_map(run, pending, request)
        case ChildRequest():
            run.decisions.append(AskChild(token, run.resumable.pop(path, None)))
        case SleepRequest():
            if request.due_at_ms <= run.now_ms:
                end(run, pending)
            else:
                run.set_timer("sleep", token, request.due_at_ms)
        case EventRequest() | ApprovalRequest():
            _begin_waiting(run, pending, request)
        case _:
            assert_never(request)


def _begin_waiting(
    run: CodeRun, pending: PendingOperation, request: EventRequest | ApprovalRequest
) -> None:
    kept = signals.wait(run, pending)
    if kept is not None:
        end(run, pending, result=signals.value_of(run, pending, kept))
    elif request.timeout_ms is not None:
        run.set_timer("wait", pending.token, run.now_ms + request.timeout_ms)


def _slim(request: Request) -> Request:
    """The request as the log has it: payloads are large, and no replay needs them."""
    match request:
        case CallRequest():
            return CallRequest(task=request.task, queue=request.queue)
        case MapRequest():
            call = CallRequest(task=request.call.task, queue=request.call.queue)
            return MapRequest(call=call, payloads=[], max_parallel=request.max_parallel)
        case ChildRequest():
            return ChildRequest(workflow=request.workflow)
        case _:
            return request


# --- maps -----------------------------------------------------------------------------------------


def _begin_map(run: CodeRun, pending: PendingOperation, request: MapRequest) -> None:
    count = len(request.payloads)
    if count > limits.MAX_MAP_ITEMS:
        message = f"a map has at most {limits.MAX_MAP_ITEMS} items, and this one has {count}"
        end(run, pending, error={"type": "too_many_items", "message": message})
        return
    pending.results, pending.running = [None] * count, {}
    run.changed_waits[pending.token] = None
    _start_items(run, pending, request, request.max_parallel or count)
    if not count:
        end(run, pending, result=[])


def _start_items(run: CodeRun, pending: PendingOperation, request: MapRequest, most: int) -> None:
    assert pending.running is not None
    first = pending.next_item
    count = min(most, len(request.payloads) - first)
    if count > 0:
        pending.running.update(dict.fromkeys(range(first, first + count)))
        pending.next_item += count
        run.decisions.append(AskTasks(pending.token, first, count))


def _item_ended(run: CodeRun, pending: PendingOperation, index: int, event: TaskEnded) -> None:
    request = pending.request
    assert isinstance(request, MapRequest)
    assert pending.running is not None
    assert pending.results is not None
    if pending.running.pop(index, index) is index:
        return  # it has ended before
    is_collected = request.on_failure == "collect"
    if not event.ok and not is_collected:
        end(run, pending, error={**(event.error or NO_ERROR), "item": index})
        return
    if is_collected:
        ended = {"result": event.result} if event.ok else {"error": event.error or NO_ERROR}
        pending.results[index] = ended
    else:
        pending.results[index] = event.result
    _start_items(run, pending, request, 1)
    if not pending.running:
        end(run, pending, result=pending.results)


# --- ends -----------------------------------------------------------------------------------------


def end(
    run: CodeRun,
    pending: PendingOperation,
    *,
    result: Any = None,
    error: dict[str, Any] | None = None,
) -> None:
    """End a pending operation: the function sees it when it is resumed."""
    stop(run, pending)
    is_failed = error is not None
    place = run.append(
        Operation(
            path=pending.path,
            kind=pending.kind,
            state="failed" if is_failed else "done",
            result=result,
            error=error,
            started_at_ms=pending.asked_at_ms,
            ended_at_ms=run.now_ms,
        )
    )
    request = pending.request
    asked = request if isinstance(request, EventRequest) else None
    run.unseen[pending.path] = UnseenEnd(place, is_failed, asked)
    run.decisions.append(EndOperation(pending.token, "failed" if is_failed else "done"))
    waits = run.waits
    if waits is not None:
        for group in waits.groups.get(pending.path, ()):
            waits.missing[group] -= 1
            if is_failed or not waits.missing[group]:
                run.is_due = True


def stop(run: CodeRun, pending: PendingOperation) -> None:
    """Stop what is under way for an operation that is pending no more."""
    del run.pending[pending.path]
    del run.tokens[pending.token]
    for index in pending.running or ():
        run.decisions.append(CancelTask(item_token(pending.token, index)))
    if pending.kind == "sleep":
        run.drop_timer("sleep", pending.token)
    elif pending.kind == "map":
        run.changed_waits[pending.token] = None
    elif pending.kind in {"event", "receive", "approval"}:
        run.drop_timer("wait", pending.token)
        signals.stop_waiting(run, pending)


def cancel(run: CodeRun, pending: PendingOperation) -> None:
    """Cancel a pending operation, whose end nothing waits for."""
    stop(run, pending)
    if pending.kind == "call":
        run.decisions.append(CancelTask(pending.token))
    elif pending.kind == "run":
        run.decisions.append(CancelChild(pending.token, "undo"))


def withdraw(run: CodeRun, operation: Operation) -> None:
    """Cancel an operation that its function has given up, as the losers of a race are.

    A signal that it has taken meanwhile was not seen: the signal is kept for the next one.
    """
    run.append(operation)
    pending = run.pending.get(operation.path)
    if pending is not None:
        cancel(run, pending)
        run.decisions.append(EndOperation(pending.token, "failed"))
        return
    give_back_signal(run, operation.path)


def give_back_signal(run: CodeRun, path: str) -> None:
    """Forget an end that no function has seen; a signal that it has taken is kept for the next."""
    unseen = run.unseen.pop(path, None)
    asked = None if unseen is None or unseen.is_failed else unseen.asked
    if unseen is None or asked is None:
        return
    result = decode_entry(run.log[unseen.place - 1]).result
    if asked.is_answered:  # it keeps its number, and the key under which it is answered
        number = result["number"]
        key = run.answerable.pop(number, None)
        signals.put_back(run, asked.name, KeptSignal(number, result["payload"], key))
    else:
        signals.put_back(run, asked.name, signals.count(run, result, None))


def cancel_all(run: CodeRun) -> None:
    for pending in [*run.pending.values()]:
        cancel(run, pending)


def task_ended(run: CodeRun, event: TaskEnded) -> None:
    pending = run.pending.get(run.tokens.get(event.token % ITEM_SPAN, ""))
    if pending is None:
        return  # cancelled before its result came
    run.note_span(event.traceparent)
    if event.token >= ITEM_SPAN:
        _item_ended(run, pending, event.token // ITEM_SPAN - 1, event)
    elif event.ok:
        end(run, pending, result=event.result)
    else:
        end(run, pending, error=event.error or NO_ERROR)


def child_ended(run: CodeRun, event: ChildEnded) -> None:
    pending = run.pending.get(run.tokens.get(event.token, ""))
    if pending is None:
        return
    run.note_span(event.traceparent)
    if event.ok:
        end(run, pending, result=event.result)
    else:
        end(run, pending, error=event.error or NO_ERROR)


def timer_fired(run: CodeRun, event: TimerFired) -> None:
    """End a sleep, or the patience of an operation that waits for a signal."""
    pending = run.pending[run.tokens[event.number]]
    if event.kind == "sleep":
        end(run, pending)
    else:
        message = f"nothing came for {pending.path!r} in time"
        end(run, pending, error={"type": "timeout", "message": message})


# --- waiting --------------------------------------------------------------------------------------


def wait_for(run: CodeRun, groups: list[list[str]]) -> None:
    """Let a function wait; it is due at once if one of its groups has ended already."""
    waits = run.waits = GroupWaits([], {})
    for number, group in enumerate(groups):
        missing = 0
        is_known = False
        for path in group:
            if path in run.pending:
                waits.groups.setdefault(path, []).append(number)
                missing += 1
            elif path in run.unseen:
                is_known = True
                run.is_due |= run.unseen[path].is_failed
        waits.missing.append(missing)
        if not missing:
            if not is_known:
                raise InvalidReportError(
                    "the function waits for operations that it has seen the end of"
                )
            run.is_due = True
