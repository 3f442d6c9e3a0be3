"""Requests about an open scope: complete it by a signal or by a call, or cancel it."""

from typing import assert_never

from rota.core.ids import to_text
from rota.core.workflow.commands import SteerScope
from rota.core.workflow.events import ScopeEndRequested
from rota.core.workflow.runtime.run import Run
from rota.core.workflow.runtime.scopes import joins
from rota.core.workflow.runtime.tokens import BranchScope
from rota.errors import IllegalState, ScopeNotFound


def scope_completed_by(run: Run, signal: str) -> BranchScope | None:
    """The scope that a signal completes: of those that it can, the one that was opened first."""
    if run.failure is not None:
        return None
    for scope in run.scopes.values():
        if not scope.is_closed and any(
            joins.completing_signal(join) == signal for join in run.graph.joins_of(scope.key)
        ):
            return scope
    return None


def find_open(run: Run, run_id: int, number: int) -> BranchScope:
    """The open scope of this number; refuse one that was never opened, or that is closed."""
    run_text, scope = to_text(run_id), run.scopes.get(number)
    if not 1 <= number <= run.last_scope:
        raise ScopeNotFound(run_text, number)
    if run.is_ended:
        detail = f"scope {number} of run {run_text!r} is not open: the run has {run.state}"
        raise IllegalState(detail, state=run.state)
    if run.failure is not None:
        detail = f"scope {number} of run {run_text!r} is not open: the run is undoing its work"
        raise IllegalState(detail, state=run.state)
    if scope is None or scope.is_closed:
        raise IllegalState(f"scope {number} of run {run_text!r} is closed", state=run.state)
    return scope


def check(run: Run, command: SteerScope) -> None:
    """Refuse to end a scope that is not open, or to complete one that has no join."""
    scope = find_open(run, command.run_id, command.scope)
    if command.action == "complete" and not run.graph.joins_of(scope.key):
        run_text = to_text(command.run_id)
        detail = f"scope {command.scope} of run {run_text!r} has no join; cancel it instead"
        raise IllegalState(detail, state=run.state)


def take_up(run: Run, event: ScopeEndRequested) -> None:
    scope = run.scopes.get(event.scope)
    if scope is None or scope.is_closed or run.failure is not None or run.is_ended:
        return
    match event.action:
        case "complete":
            joins.complete(run, scope, event.reason or "a caller completed it")
        case "cancel":
            joins.cancel(run, scope, event.reason or "a caller cancelled it")
        case _:
            assert_never(event.action)
