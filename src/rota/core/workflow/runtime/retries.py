"""The start of a run, and its retry from where it failed, in branches too.

Each token that the failure cut short starts its node again; a sub-workflow goes on where it failed,
instead of being started again; tokens that waited at a join wait there again; a quorum that failed
branches put out of reach gets these branches again. Timers start again from now. A run that has
been compensated starts over.
"""

from rota.core.workflow.events import RunRetried
from rota.core.workflow.runtime.context import RunDocuments
from rota.core.workflow.runtime.errors import RunError
from rota.core.workflow.runtime.run import Run, Steps
from rota.core.workflow.runtime.scopes import joins
from rota.core.workflow.runtime.tokens import BranchScope, Token
from rota.core.workflow.states import RUN_ACTIONS, BranchState, RunState, TokenState


def start(run: Run) -> None:
    """Create the first token of a run, at its initial node or where a fork starts."""
    started = run.started
    assert started is not None
    definition = run.graph.definition
    if started.state is not None:
        run.write(("state",), started.state, ())
    if started.nodes is not None:
        run.write(("nodes",), started.nodes, ())
    _arm_timeout(run)
    first = started.from_node or definition.initial_node
    if first not in definition.nodes:
        raise RunError("unknown_node", f"there is no node {first!r}", "from_node")
    run.create_token(first, parent=None, stack=())


def _arm_timeout(run: Run) -> None:
    assert run.started is not None
    timeout_ms = run.started.timeout_ms or run.graph.definition.timeout_ms
    if timeout_ms is not None:
        run.set_timer("run", 0, run.now_ms + timeout_ms)


def retry(run: Run, event: RunRetried) -> None:
    is_cancelled = run.state is RunState.CANCELLED
    if run.state not in RUN_ACTIONS["retry"] and not (is_cancelled and event.with_parent):
        return
    run.set_state(RunState.RUNNING)
    if run.has_undone:
        _start_over(run)
        return
    _arm_timeout(run)
    run.perform("retry", _retrying(run, event))


def _retrying(run: Run, event: RunRetried) -> Steps:
    interrupted, run.interrupted = run.interrupted, []
    for token in interrupted:
        _repeat(run, token, event)
        yield 1
    for number in sorted(run.scopes):
        run.hold_open(run.scopes[number])
        joins.arm_timeout(run, run.scopes[number])
    for number in sorted(run.scopes, reverse=True):  # from the inside out
        scope = run.scopes.get(number)
        if scope is not None:
            yield from _evaluate_again(run, scope, event)


def _repeat(run: Run, token: Token, event: RunRetried) -> None:
    """Start the node of a token that the failure cut short again."""
    is_held = token.state is TokenState.WAITING_FOR_SIBLINGS
    if is_held and run.rules > 1:
        run.hold_again(token)
        return
    again = run.create_token(token.node, parent=token.number, stack=token.stack, via="retry")
    if is_held:
        run.hold_token(again.number, token.stack)
    elif token.number in run.resumes:  # it was cut short before its own sub-workflow went on
        run.resumes[again.number] = run.resumes.pop(token.number)
    elif token.state is TokenState.WAITING_FOR_SUBWORKFLOW and event.children:
        run.resumes[again.number] = token.number


def _evaluate_again(run: Run, scope: BranchScope, event: RunRetried) -> Steps:
    if joins.out_of_reach(scope, run.graph.joins_of(scope.key)) is not None:
        yield from _revive(run, scope, event)
    for branch in scope.in_state(BranchState.LIVE):
        joins.close_branches(run, ((scope.number, branch.index),))
        yield 1
    joins.evaluate(run, scope)


def _revive(run: Run, scope: BranchScope, event: RunRetried) -> Steps:
    for branch in scope.in_state(BranchState.FAILED):
        assert branch.failed_at is not None
        node, branch.failed_at, branch.error = branch.failed_at, None, None
        run.set_branch(scope, branch, BranchState.LIVE)
        stack = (*scope.stack, (scope.number, branch.index))
        again = run.create_token(node, parent=scope.parent, stack=stack, via="retry")
        if branch.failed_child is not None and event.children:
            run.resumes[again.number] = branch.failed_child
        yield 1


def _start_over(run: Run) -> None:
    context = RunDocuments(run.context.input, {}, {}, {})
    context.run = run.context.run
    run.context = context
    run.scopes.clear()
    run.iterations.clear()
    run.interrupted.clear()
    run.resumes.clear()
    run.undo.clear()
    run.has_undone = False
    for document in ("state", "output", "nodes"):
        run.write((document,), {}, ())
    start(run)
