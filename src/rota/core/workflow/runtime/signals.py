"""Signals: which token a signal reaches, and which are kept until a token waits for them.

An approval answers one question. It reaches a token that waits for it, and is never kept: an answer
that comes twice, or too early, must not answer the next question. The same holds for a signal that
completes a scope. A transient signal that no token waits for is lost. Other signals are kept.
"""

from rota.core.ids import to_text
from rota.core.limits import MAX_KEPT_SIGNALS, MAX_SIGNAL_KEYS
from rota.core.workflow.commands import SignalRun
from rota.core.workflow.events import Signalled
from rota.core.workflow.runtime import nodes
from rota.core.workflow.runtime.run import SLICED_PROCEDURES, Run
from rota.core.workflow.runtime.scopes import joins, requests
from rota.core.workflow.states import RUN_ENDED
from rota.errors import IllegalState, NothingToApprove, TooMany


def addressee(run: Run, name: str, token: int | None) -> int | None:
    """The token that a signal reaches: the one it names, or else the one that has waited longest.

    None: no token waits for it.
    """
    waiting = run.waiting.get(name, {})
    if token is None:
        return next(iter(waiting), None)
    return token if token in waiting else None


def is_unasked_approval(run: Run, name: str, token: int | None) -> bool:
    """Whether a signal approves or rejects something that no token asks for."""
    return name in run.graph.approvals and addressee(run, name, token) is None


def check(run: Run, command: SignalRun) -> None:
    """Refuse a signal that is too late, that nothing asks for, or that is one too many."""
    run_id, name, token = to_text(command.run_id), command.name, command.token
    token_id = None if token is None else f"{run_id}.{token}"
    if run.state in RUN_ENDED:
        detail = f"cannot signal run {run_id!r}: it has ended as {run.state}"
        raise IllegalState(detail, state=run.state)
    if token is None and requests.scope_completed_by(run, name) is not None:
        return
    if is_unasked_approval(run, name, token):
        raise NothingToApprove(run_id, name, token_id)
    if addressee(run, name, token) is not None:
        return
    if name in run.graph.completions:
        detail = f"no scope of run {run_id!r} is open that signal {name!r} completes"
        raise IllegalState(detail, state=run.state)
    if token_id is not None:
        detail = f"token {token_id!r} does not wait for signal {name!r}"
        raise IllegalState(detail, state=run.state)
    if name in run.graph.transient:
        return
    most = MAX_KEPT_SIGNALS
    deferred = sum(isinstance(one, Signalled) for one in run.deferred)
    if sum(map(len, run.signals.values())) + deferred >= most:
        detail = f"run {run_id!r} keeps {most} signals that nothing waits for yet"
        raise TooMany(detail, limit=most)


def take_up(run: Run, event: Signalled) -> None:
    """Give a signal to the token or the scope that it reaches, or keep it."""
    if run.is_ended:
        return
    if event.key is not None:
        _note_key(run, event.key)
    reached = addressee(run, event.name, event.token)
    if reached is not None:
        if event.token is None and nodes.is_behind(run, reached, event.name):
            run.keep_signal(event.name, event.payload)
        else:
            nodes.signalled(run, reached, event.payload, event.name)
    elif event.token is not None:
        return
    elif (scope := requests.scope_completed_by(run, event.name)) is not None:
        joins.complete(run, scope, f"signal {event.name!r} came", event.name)
    elif not _is_of_the_moment(run, event.name):
        run.keep_signal(event.name, event.payload)


def _is_of_the_moment(run: Run, name: str) -> bool:
    """Whether a signal that reaches nothing is lost: nothing may take it later."""
    graph = run.graph
    return name in graph.completions or name in graph.transient or _is_late_answer(run, name)


def _is_late_answer(run: Run, name: str) -> bool:
    """Whether an approval was asked for when it was sent, and is not any more."""
    return run.rules >= SLICED_PROCEDURES and name in run.graph.approvals


def _note_key(run: Run, key: str) -> None:
    """Remember the key of a signal; the oldest is forgotten when there are too many."""
    run.signal_keys[key] = None
    if len(run.signal_keys) > MAX_SIGNAL_KEYS:
        del run.signal_keys[next(iter(run.signal_keys))]
