"""What does a failure lead to? An error route, the end of a branch, or the end of the run.

Before a run ends as failed, what it has done is undone: the compensating tasks of completed nodes
run one after the other, the last done first. What cannot be undone is told by the run's error.
"""

from typing import Any

from rota.core.workflow import branches, routing, synchronization
from rota.core.workflow.run import Failure, Run
from rota.core.workflow.tokens import BranchState, Place, Scope, Token, TokenState
from rota.core.workflow.troubles import Trouble


def fail_token(
    run: Run, number: int, error: dict[str, Any], state: TokenState = TokenState.FAILED
) -> None:
    """A node failed: take its error route, or let the branch or the run fail."""
    token = run.tokens[number]
    route = _route(run, token, error)
    late = run.late_depth(token.stack)
    scope = _judging_scope(run, token, late)
    if route is not None:
        run.write(("nodes", token.node), {"error": error}, token.stack)
        run.create_token(route, parent=number, stack=token.stack, via="on_error")
        run.end_token(number, state, error)
    elif scope is not None and _goes_on(run, scope):
        run.end_token(number, state, error)
        _fail_branch(run, scope, token, error)
    elif late is not None:
        run.end_token(number, state, error)
        _end_late_branch(run, token.stack[late])
    else:
        fail_run(run, {**error, "node": token.node}, culprit=number, culprit_state=state)


def _route(run: Run, token: Token, error: dict[str, Any]) -> str | None:
    for place, route in enumerate(run.graph.definition.nodes[token.node].on_error):
        if route.match is None:
            return route.to
        values = run.values(token.stack, error=error)
        where = f"nodes.{token.node}.on_error[{place}].match"
        if routing.holds(route.match, values, where, token.number):
            return route.to
    return None


def _judging_scope(run: Run, token: Token, late: int | None) -> Scope | None:
    """The innermost open scope of a token that has a join, which says what a failure means."""
    open_ones = token.stack if late is None else token.stack[late + 1 :]
    for number, _ in reversed(open_ones):
        if run.graph.joins_of(run.scopes[number].key):
            return run.scopes[number]
    return None


def _goes_on(run: Run, scope: Scope) -> bool:
    joins = run.graph.joins_of(scope.key)
    return all(join.rule.on_branch_failure == "continue" for join in joins)


def _fail_branch(run: Run, scope: Scope, token: Token, error: dict[str, Any]) -> None:
    """The branch is lost, the others go on."""
    place = token.stack[scope.depth]
    outside = run.counted(scope.stack)
    branch = run.branch(place)
    branches.empty_branch(run, branch)
    branch.error = {**error, "node": token.node}
    branch.failed_at = token.node
    run.set_branch(scope, branch, BranchState.FAILED)
    synchronization.look(run, scope)
    synchronization.settle(run, outside)


def _end_late_branch(run: Run, place: Place) -> None:
    """A branch whose join went on without it failed: nobody is interested any more."""
    branches.empty_branch(run, run.branch(place))
    synchronization.settle(run, (place,))


def take_up(run: Run, trouble: Trouble) -> None:
    """The run fails with the place and the reason; a late branch just ends."""
    token = None if trouble.token is None else run.tokens.get(trouble.token)
    stack = trouble.stack if token is None else token.stack
    late = run.late_depth(stack)
    if late is not None:
        if token is not None:
            run.end_token(token.number, TokenState.FAILED, trouble.error)
        _end_late_branch(run, stack[late])
    else:
        fail_run(run, trouble.error, culprit=trouble.token)


def fail_run(
    run: Run,
    error: dict[str, Any],
    state: str = "failed",
    *,
    culprit: int | None = None,
    culprit_state: TokenState = TokenState.FAILED,
) -> None:
    """End the run as failed, after undoing what asks for it."""
    assert run.failure is None
    run.interrupted = [
        token for token in run.tokens.values() if run.late_depth(token.stack) is None
    ]
    if culprit is not None and culprit in run.tokens:
        run.end_token(culprit, culprit_state, error)
    branches.cancel_everything(run)
    for scope in list(run.scopes.values()):
        if scope.is_closed:
            for branch in scope.branches:
                branches.cancel_branch(run, scope, branch)
            run.forget_scope(scope)
    run.failure = Failure(error, state)
    undo_next(run)


def undo_next(run: Run) -> None:
    """Undo the next completed node; when none is left, the run has failed."""
    failure = run.failure
    assert failure is not None
    if run.undo:
        failure.undoing = undo = run.undo.pop()
        run.has_undone = True
        run.create_token(undo.node, parent=undo.token, stack=(), compensates=undo.token)
        return
    run.failure = None
    error = dict(failure.error)
    if failure.not_undone:
        error["not_undone"] = failure.not_undone
    run.set_state(failure.state, error=error)


def undone(run: Run, token: Token, error: dict[str, Any] | None) -> None:
    """A compensating task has ended; whether it worked or not, the next one is due."""
    assert run.failure is not None
    run.end_token(token.number, TokenState.COMPLETED if error is None else TokenState.FAILED, error)
    if error is not None:
        run.failure.not_undone.append({"node": token.node, "error": error})
    undo_next(run)
