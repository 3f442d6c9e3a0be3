"""The branches of a scope: how they are opened and cancelled."""

from collections.abc import Container

from rota.core.workflow.decisions import CancelChild, CancelTask
from rota.core.workflow.runtime.recovery import Undo
from rota.core.workflow.runtime.run import Run, Steps
from rota.core.workflow.runtime.tokens import Branch, BranchScope, Token
from rota.core.workflow.states import BranchState, TokenState


def start_branches(run: Run, scope: BranchScope) -> None:
    """Start branches, up to `max_parallel` at a time, and as many as the slice has steps left."""
    limit = scope.max_parallel or scope.total
    run.stop_opening(scope)
    while scope.next_index < scope.total and scope.count(BranchState.LIVE) < limit:
        if run.steps_left <= 0:
            run.start_opening(scope)
            return
        run.steps_left -= 1
        branch = scope.begin_branch()
        run.set_branch(scope, branch, BranchState.LIVE)
        stack = (*scope.stack, (scope.number, branch.index))
        target = scope.targets[branch.index]
        token = run.create_token(target, parent=scope.parent, stack=stack, via=scope.key)
        run.spans.follow_joined(token.number, scope.joined)


def cancel_token(run: Run, number: int) -> None:
    """Cancel a token, and the task or child run that works for it.

    A token that waits at a join has done the work of its node, so it ends as completed.
    """
    token = run.tokens[number]
    ended = TokenState.CANCELLED
    if token.state is TokenState.DISPATCHED:
        _cancel_task(run, token)
    elif token.state is TokenState.WAITING_FOR_SUBWORKFLOW:
        if number not in run.ended_meanwhile:
            run.decisions.append(CancelChild(number))
        if run.rules > 1:
            run.left[number] = token.node
    elif token.state is TokenState.WAITING_FOR_SIBLINGS and run.rules > 1:
        ended = TokenState.COMPLETED
    run.end_token(number, ended)


def _cancel_task(run: Run, token: Token) -> None:
    """Cancel the task of a token, or keep what undoes it if it has succeeded meanwhile."""
    ended = run.ended_meanwhile.get(token.number)
    if ended is None:
        run.decisions.append(CancelTask(token.number))
    elif ended.ok and run.graph.definition.nodes[token.node].compensate is not None:
        run.undo.append(Undo(token.number, token.node, ended.result))


def empty_branch(run: Run, branch: Branch) -> Steps:
    """Cancel all tokens in a branch and in its inner scopes; its own state stays."""
    for number in list(branch.tokens):
        cancel_token(run, number)
        yield 1
    for number in list(branch.scopes):
        inner = run.scopes[number]
        for one in inner.each_branch():
            yield from cancel_branch(run, inner, one)
        if inner.is_closed:
            run.forget_scope(inner)
        else:
            run.close_scope(inner, "the branch it was in came to its end")


def cancel_branch(run: Run, scope: BranchScope, branch: Branch) -> Steps:
    yield from empty_branch(run, branch)
    yield 1
    if branch.state in {BranchState.WAITING, BranchState.LIVE}:
        run.set_branch(scope, branch, BranchState.CANCELLED)


def release(run: Run, scope: BranchScope, merged: frozenset[str], *, absorb: bool) -> Steps:
    """End the tokens of a scope whose joins have fired: waiting, late, and not started ones."""
    late = 0
    for branch in scope.each_branch():
        yield 1
        if branch.state is BranchState.ARRIVED:
            is_merged = not merged.isdisjoint(branch.arrivals)
            for number in list(branch.tokens):
                ended = TokenState.COMPLETED if is_merged else TokenState.CANCELLED
                run.end_token(number, ended)
        elif branch.state is BranchState.LIVE and branch.live and absorb:
            _stop_holding(run, branch)
            late += branch.live
        elif branch.state in {BranchState.LIVE, BranchState.WAITING}:
            yield from cancel_branch(run, scope, branch)
    for place in run.counted(scope.stack):
        run.branch(place).live -= late  # the branches outside do not wait for absorbed tokens


def _stop_holding(run: Run, branch: Branch) -> None:
    """End the tokens of a late branch that wait at a join, which does not fire again."""
    for number in list(branch.tokens):
        if run.tokens[number].state is TokenState.WAITING_FOR_SIBLINGS:
            run.end_token(number, TokenState.COMPLETED)


def cancel_everything(run: Run, *, but: Container[int] = ()) -> Steps:
    """Cancel all tokens and timers of a run, but some tokens."""
    run.todo.clear()
    for number in list(run.opening):
        run.stop_opening(run.scopes[number])
    for number in list(run.held):
        run.stop_holding(run.scopes[number])
    for number in list(run.tokens):
        if number not in but:
            cancel_token(run, number)
            yield 1
    for kind, number in list(run.timers):
        run.drop_timer(kind, number)
        yield 1
