"""Requests about an open scope: complete it, cancel it, or add branches to it."""

from typing import assert_never

from rota.core.ids import to_text
from rota.core.workflow.commands import SteerScope
from rota.core.workflow.definition.model import MAX_SPAWN
from rota.core.workflow.events import BranchesAdded, ScopeEndRequested
from rota.core.workflow.runtime.run import Run
from rota.core.workflow.runtime.scopes import joins
from rota.core.workflow.runtime.tokens import BranchScope, Token
from rota.errors import IllegalState, Invalid, ScopeNotFound, TooLarge


def scope_completed_by(run: Run, signal: str) -> BranchScope | None:
    """The scope that a signal completes: of those that it can, the one that was opened first."""
    if run.failure is not None:
        return None
    for scope in run.scopes.values():
        if not scope.is_over and any(
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
    if scope is None or scope.is_over:
        raise IllegalState(f"scope {number} of run {run_text!r} is closed", state=run.state)
    return scope


def check(run: Run, command: SteerScope) -> None:
    """Refuse to end a scope that is not open, or to complete one that has no join."""
    scope = find_open(run, command.run_id, command.scope)
    if command.action == "complete" and not run.graph.joins_of(scope.key):
        run_text = to_text(command.run_id)
        detail = f"scope {command.scope} of run {run_text!r} has no join; cancel it instead"
        raise IllegalState(detail, state=run.state)


def check_addition(run: Run, run_id: int, scope: BranchScope, count: int, *, is_last: bool) -> None:
    """Refuse branches that a scope does not take, or that are too many."""
    where = f"scope {scope.number} of run {to_text(run_id)!r}"
    if scope.open is None:
        is_declared = scope.key in run.graph.growing
        reason = "the last ones were added" if is_declared else "its fan-out is not `open`"
        raise IllegalState(f"{where} takes no further branches: {reason}", state=run.state)
    if not count and not is_last:
        raise Invalid("give at least one item to add", field="items")
    if scope.total + count > MAX_SPAWN:
        detail = f"{where} has {scope.total} branches, and may have {MAX_SPAWN}"
        raise TooLarge(detail, limit=MAX_SPAWN)


def scope_around(run: Run, token: Token, fan_out: str | None) -> BranchScope | None:
    """The innermost open scope of a token that takes branches, or that this fan-out has opened."""
    late = run.late_depth(token.stack)
    open_ones = token.stack if late is None else token.stack[late + 1 :]
    for number, _ in reversed(open_ones):
        scope = run.scopes[number]
        if scope.key == fan_out or (fan_out is None and scope.open is not None):
            return scope
    return None


def add_branches(run: Run, event: BranchesAdded) -> None:
    scope = run.scopes.get(event.scope)
    if scope is None or scope.open is None or _is_over(run, scope) or event.key in scope.additions:
        return
    outside = run.counted(scope.stack)
    run.extend_scope(scope, event.items, event.key, is_last=event.is_last)
    joins.evaluate(run, scope)
    joins.close_branches(run, outside)


def _is_over(run: Run, scope: BranchScope) -> bool:
    return scope.is_over or run.failure is not None or run.is_ended


def take_up(run: Run, event: ScopeEndRequested) -> None:
    scope = run.scopes.get(event.scope)
    if scope is None or _is_over(run, scope):
        return
    match event.action:
        case "complete":
            joins.complete(run, scope, event.reason or "a caller completed it")
        case "cancel":
            joins.cancel(run, scope, event.reason or "a caller cancelled it")
        case _:
            assert_never(event.action)
