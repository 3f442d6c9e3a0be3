"""Failure handling: an error route, the end of a branch, or the end of the run.

Before a run ends as failed or cancelled, it is compensated. First its sub-workflows that are under
way are cancelled, and undo their own work. Then the compensating tasks of completed nodes run one
after the other, the last completed first; a completed sub-workflow is undone in its place, its last
completed node first, unless its node has a compensating task of its own. The run's error lists what
could not be undone.
"""

from collections.abc import Mapping
from typing import Any

from rota.core.workflow.decisions import CancelChild
from rota.core.workflow.events import CancelMode, ChildEnded, RunCancelRequested
from rota.core.workflow.runtime import routing
from rota.core.workflow.runtime.errors import RunError
from rota.core.workflow.runtime.recovery import Failure, Undo
from rota.core.workflow.runtime.run import Run, Steps
from rota.core.workflow.runtime.scopes import branches
from rota.core.workflow.runtime.scopes import joins as runtime_joins
from rota.core.workflow.runtime.tokens import BranchScope, Place, Token
from rota.core.workflow.states import BranchState, RunState, TokenState

TOKENS_PER_STEP = 50  # that a failure notes in one step
STEPS_OF_A_CHILD = 10  # that the cancellation of a sub-workflow counts for


def fail_token(
    run: Run, number: int, error: dict[str, Any], state: TokenState = TokenState.FAILED
) -> None:
    """Fail a token: follow its error route, or fail the branch or the run."""
    token = run.tokens[number]
    route = _route(run, token, error)
    late = run.late_depth(token.stack)
    scope = _judging_scope(run, token, late)
    if route is not None:
        run.write(("nodes", token.node), {"error": error}, token.stack)
        run.create_token(route, parent=number, stack=token.stack, via="on_error")
        run.end_token(number, state, error)
    elif scope is not None and _tolerates_failures(run, scope):
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


def _judging_scope(run: Run, token: Token, late: int | None) -> BranchScope | None:
    """The innermost open scope of a token with a join, whose rule decides on a failure."""
    open_ones = token.stack if late is None else token.stack[late + 1 :]
    for number, _ in reversed(open_ones):
        if run.graph.joins_of(run.scopes[number].key):
            return run.scopes[number]
    return None


def _tolerates_failures(run: Run, scope: BranchScope) -> bool:
    joins = run.graph.joins_of(scope.key)
    return all(join.rule.on_branch_failure == "continue" for join in joins)


def _fail_branch(run: Run, scope: BranchScope, token: Token, error: dict[str, Any]) -> None:
    """Fail one branch; the others continue."""
    run.perform("fail branch", _failing_branch(run, scope, token, error))


def _failing_branch(run: Run, scope: BranchScope, token: Token, error: dict[str, Any]) -> Steps:
    place = token.stack[scope.depth]
    outside = run.counted(scope.stack)
    branch = run.branch(place)
    yield from branches.empty_branch(run, branch)
    branch.error = {**error, "node": token.node}
    branch.failed_at = token.node
    is_child = token.state is TokenState.WAITING_FOR_SUBWORKFLOW
    branch.failed_child = token.number if is_child else None
    run.set_branch(scope, branch, BranchState.FAILED)
    runtime_joins.evaluate(run, scope)
    runtime_joins.close_branches(run, outside)


def _end_late_branch(run: Run, place: Place) -> None:
    """End a failed branch whose join has fired without it; the failure has no effect."""
    run.perform("end late branch", _ending_late_branch(run, place))


def _ending_late_branch(run: Run, place: Place) -> Steps:
    yield from branches.empty_branch(run, run.branch(place))
    runtime_joins.close_branches(run, (place,))


def take_up(run: Run, error: RunError) -> None:
    """Fail the run with the place and the reason; a late branch just ends."""
    token = None if error.token is None else run.tokens.get(error.token)
    stack = error.stack if token is None else token.stack
    late = run.late_depth(stack)
    if late is not None:
        if token is not None:
            run.end_token(token.number, TokenState.FAILED, error.error)
        _end_late_branch(run, stack[late])
    else:
        fail_run(run, error.error, culprit=error.token)


def fail_run(
    run: Run,
    error: dict[str, Any],
    state: RunState = RunState.FAILED,
    *,
    culprit: int | None = None,
    culprit_state: TokenState = TokenState.FAILED,
) -> None:
    """Cancel what is under way, then compensate, then end the run as failed."""
    failure = Failure(error, state)
    if run.rules > 1 and isinstance(inner := error.get("not_undone"), list):
        node = error.get("node")  # whose sub-workflow has failed
        failure.error = {name: value for name, value in error.items() if name != "not_undone"}
        failure.not_undone = [{**one, "node": f"{node}.{one['node']}"} for one in inner]
    _stop(run, failure, culprit, culprit_state)


def cancel(run: Run, reason: str, mode: CancelMode, more: Mapping[str, Any] | None = None) -> None:
    """Cancel a run: what is under way ends, and its work is undone, listed, or left to the parent.

    A run that is being compensated already keeps its error, which then says that it was cancelled,
    too. Compensation goes on; only `force` stops it.
    """
    if run.state is RunState.PAUSED and mode == "undo" and _has_to_undo(run):
        run.resume()
    if run.failure is None:
        error = {"type": "cancelled", "message": reason or "cancelled", **(more or {})}
        _stop(run, Failure(error, RunState.CANCELLED, mode))
        return
    note_cancellation(run, reason)
    if mode == "force" and run.failure.mode != "force":
        _stop_undoing(run, run.failure)


def note_cancellation(run: Run, reason: str) -> None:
    """Note in the error of a run that has failed that a caller has cancelled it, too."""
    failure = run.failure
    if failure is None or failure.state is RunState.CANCELLED or failure.cancelled is not None:
        return
    failure.cancelled = reason or "cancelled"


def _has_to_undo(run: Run) -> bool:
    waits = TokenState.WAITING_FOR_SUBWORKFLOW
    return bool(run.undo or run.failure or any(one.state is waits for one in run.tokens.values()))


def _stop(
    run: Run,
    failure: Failure,
    culprit: int | None = None,
    culprit_state: TokenState = TokenState.FAILED,
) -> None:
    """Cancel what is under way, and compensate as soon as the sub-workflows have ended."""
    assert run.failure is None
    run.failure = failure
    for event in run.deferred:
        if isinstance(event, RunCancelRequested):
            note_cancellation(run, event.reason)
    run.perform("stop", _stopping(run, failure, culprit, culprit_state))


def _stopping(run: Run, failure: Failure, culprit: int | None, culprit_state: TokenState) -> Steps:
    run.interrupted = []
    for number in list(run.tokens):
        token = run.tokens[number]
        starts_later = (
            token.is_trigger and token.state is TokenState.PENDING
        )  # its node waits again
        if run.late_depth(token.stack) is None and not starts_later:
            run.interrupted.append(token)
        if not len(run.interrupted) % TOKENS_PER_STEP:
            yield 1
    if culprit is not None and culprit in run.tokens:
        run.end_token(culprit, culprit_state, failure.error)
    if run.rules > 1:
        yield from _stop_children(run, failure)
    yield from branches.cancel_everything(run, but=failure.awaited)
    for scope in list(run.scopes.values()):
        if scope.is_closed:
            for branch in scope.branches:
                yield from branches.cancel_branch(run, scope, branch)
            run.forget_scope(scope)
    undo_next(run)


def _stop_children(run: Run, failure: Failure) -> Steps:
    """Cancel the sub-workflows; each tells the run what it could not undo when it has ended."""
    for number, token in list(run.tokens.items()):
        if token.state is TokenState.WAITING_FOR_SUBWORKFLOW:
            if number not in run.ended_meanwhile:
                run.decisions.append(CancelChild(number, failure.mode))
            run.detach_token(number)
            failure.awaited[number] = None
            yield STEPS_OF_A_CHILD


def child_stopped(run: Run, token: Token, event: ChildEnded) -> None:
    """Take up the end of a sub-workflow that the run has cancelled."""
    failure = run.failure
    assert failure is not None
    del failure.awaited[token.number]
    run.end_token(token.number, TokenState.COMPLETED if event.ok else TokenState.CANCELLED)
    if event.ok and run.graph.definition.nodes[token.node].compensate is not None:
        run.undo.append(Undo(token.number, token.node, event.result))
    else:
        keep_child_work(run, token.node, event)
    for one in (event.error or {}).get("not_undone", ()):
        failure.not_undone.append({**one, "node": f"{token.node}.{one['node']}"})
    undo_next(run)


def keep_child_work(run: Run, node: str, event: ChildEnded) -> None:
    """Note the work of a sub-workflow that has ended, so that a failure of the run undoes it."""
    run.undo += [Undo(event.token, node, inner.result, inner) for inner in event.undo]


def left_child_ended(run: Run, node: str, event: ChildEnded) -> None:
    """Take up the end of a sub-workflow whose branch was cancelled before."""
    keep_child_work(run, node, event)
    failure = run.failure
    if run.rules > 2 and failure is not None and failure.undoing is None:
        undo_next(run)


def undo_next(run: Run) -> None:
    """Compensate the next completed node; when none is left, the run has failed."""
    failure = run.failure
    assert failure is not None
    if failure.awaited or (run.rules > 2 and run.left):
        return
    if failure.mode == "force":
        _give_up(run, failure)
    elif run.undo and failure.mode == "undo":
        failure.undoing = undo = run.undo.pop()
        run.has_undone = True
        run.create_token(undo.node, parent=undo.token, stack=(), compensates=undo.token)
        return
    run.failure = None
    error = dict(failure.error)
    if failure.not_undone:
        error["not_undone"] = failure.not_undone
    if failure.cancelled is not None:
        error["cancelled"] = failure.cancelled
    run.set_state(failure.state, error=error)


def undone(run: Run, token: Token, error: dict[str, Any] | None) -> None:
    """Take up the end of a compensating task; the next one follows, whether it worked or not."""
    assert run.failure is not None
    assert run.failure.undoing is not None
    run.end_token(token.number, TokenState.COMPLETED if error is None else TokenState.FAILED, error)
    if error is not None:
        run.failure.not_undone.append({"node": run.failure.undoing.path, "error": error})
    run.failure.undoing = None
    undo_next(run)


def _stop_undoing(run: Run, failure: Failure) -> None:
    """Undo nothing more: cancel the compensating task, and those of sub-workflows."""
    failure.mode = "force"
    run.todo.clear()
    run.perform("stop undoing", _stopping_to_undo(run, failure))


def _stopping_to_undo(run: Run, failure: Failure) -> Steps:
    for number in list(run.tokens):
        if number not in failure.awaited:
            branches.cancel_token(run, number)
        elif number not in run.ended_meanwhile:
            run.decisions.append(CancelChild(number, "force"))
        yield STEPS_OF_A_CHILD
    undo_next(run)


def _give_up(run: Run, failure: Failure) -> None:
    """List what has not been undone."""
    undoing, failure.undoing = failure.undoing, None
    error = {"type": "cancelled", "message": "the run was cancelled by force before it was undone"}
    for undo in [*([] if undoing is None else [undoing]), *reversed(run.undo)]:
        failure.not_undone.append({"node": undo.path, "error": error})
    run.undo.clear()
