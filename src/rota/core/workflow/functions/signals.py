"""Signals of functions: which operation a signal reaches, and which are kept until one asks.

An approval answers one question: it reaches an operation that asks, and is never kept.
"""

from collections import deque
from typing import Any

from rota.core.ids import to_text
from rota.core.limits import MAX_KEPT_SIGNALS, MAX_SIGNAL_KEYS
from rota.core.workflow.commands import SignalRun
from rota.core.workflow.decisions import KeepSignal, TakeSignal
from rota.core.workflow.definition import schemas
from rota.core.workflow.functions.model import ApprovalRequest, EventRequest, name_of
from rota.core.workflow.functions.run import CodeRun, KeptSignal, PendingOperation, encode_value
from rota.errors import IllegalState, Invalid, NothingToApprove, TooMany


def awaited(pending: PendingOperation) -> str:
    """The name of the signal that an operation waits for."""
    request = pending.request
    return request.name if isinstance(request, EventRequest) else name_of(pending.path)


def addressee(run: CodeRun, name: str, token: int | None) -> int | None:
    """The token that a signal reaches: the one it names, or else the one that has waited longest.

    None: no operation waits for it.
    """
    waiting = run.waiting.get(name, {})
    if token is None:
        return next(iter(waiting), None)
    return token if token in waiting else None


def check(run: CodeRun, command: SignalRun) -> None:
    """Refuse a signal that is too late, that nothing asks for, or that is one too many."""
    run_id, name, token = to_text(command.run_id), command.name, command.token
    token_id = None if token is None else f"{run_id}.{token}"
    if run.is_ended:
        detail = f"cannot signal run {run_id!r}: it has ended as {run.state}"
        raise IllegalState(detail, state=run.state)
    reached = addressee(run, name, token)
    if reached is not None:
        _check_form(run, reached, command.payload)
        return
    if name in run.approvals or name in run.function.definition.approvals:
        raise NothingToApprove(run_id, name, token_id)
    if token_id is not None:
        detail = f"token {token_id!r} does not wait for signal {name!r}"
        raise IllegalState(detail, state=run.state)
    if sum(map(len, run.signals.values())) >= MAX_KEPT_SIGNALS:
        detail = f"run {run_id!r} keeps {MAX_KEPT_SIGNALS} signals that nothing waits for yet"
        raise TooMany(detail, limit=MAX_KEPT_SIGNALS)


def _check_form(run: CodeRun, token: int, payload: Any) -> None:
    """Refuse an approval that does not fit the form that was asked for; a rejection fits any."""
    request = run.pending[run.tokens[token]].request
    if not isinstance(request, ApprovalRequest) or request.form is None:
        return
    if not _is_approved(payload):
        return
    problems = schemas.value_problems(request.form, payload)
    if problems:
        raise Invalid(f"payload: {'; '.join(problems)}", field="payload", problems=problems)


def count(run: CodeRun, payload: Any, key: str | None) -> KeptSignal:
    """Count a signal, and remember its key."""
    run.signal_count += 1
    if key is not None:
        run.signal_keys[key] = None
        if len(run.signal_keys) > MAX_SIGNAL_KEYS:
            forgotten = next(iter(run.signal_keys))
            del run.signal_keys[forgotten]
            run.replies.pop(forgotten, None)
    return KeptSignal(run.signal_count, payload, key)


def put_aside(run: CodeRun, name: str, signal: KeptSignal) -> None:
    """Keep a signal until an operation asks for it."""
    run.signals.setdefault(name, deque()).append(signal)
    run.decisions.append(KeepSignal(name))


def put_back(run: CodeRun, name: str, signal: KeptSignal) -> None:
    """Put a signal that no operation has received before all others of its name."""
    run.signals.setdefault(name, deque()).appendleft(signal)
    run.decisions.append(KeepSignal(name))


def wait(run: CodeRun, pending: PendingOperation) -> KeptSignal | None:
    """Let an operation wait for a signal; returns one that was kept for it, if there is one."""
    name = awaited(pending)
    if isinstance(pending.request, ApprovalRequest):
        run.approvals[name] = None
    elif name in run.signals:
        kept = run.signals[name]
        signal = kept.popleft()
        if not kept:
            del run.signals[name]
        run.decisions.append(TakeSignal(name))
        return signal
    run.waiting.setdefault(name, {})[pending.token] = None
    run.changed_waits[pending.token] = None
    return None


def stop_waiting(run: CodeRun, pending: PendingOperation) -> None:
    name = awaited(pending)
    waiting = run.waiting.get(name)
    if waiting is not None and waiting.pop(pending.token, 0) is None and not waiting:
        del run.waiting[name]
    run.changed_waits[pending.token] = None


def value_of(run: CodeRun, pending: PendingOperation, signal: KeptSignal) -> Any:
    """The result of the operation that a signal ends."""
    request = pending.request
    if isinstance(request, EventRequest) and request.is_answered:
        if signal.key is not None:
            run.answerable[signal.number] = signal.key
        return {"number": signal.number, "payload": signal.payload}
    return signal.payload


def rejection_of(pending: PendingOperation, payload: Any) -> dict[str, Any] | None:
    """The error of an approval that is refused; None: it is granted, or no approval."""
    if not isinstance(pending.request, ApprovalRequest) or _is_approved(payload):
        return None
    return {"type": "rejected", "message": "the approval was refused", "details": payload}


def _is_approved(payload: Any) -> bool:
    return payload.get("approved") is True if isinstance(payload, dict) else payload is True


def reply(run: CodeRun, number: Any, value: Any) -> None:
    """Keep the answer to a received signal for the caller that knows its key."""
    key = run.answerable.pop(number, None) if isinstance(number, int) else None
    if key is not None and key in run.signal_keys:
        run.replies[key] = encode_value(value)
        run.has_news = True
