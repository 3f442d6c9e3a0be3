"""Joins: when the branches of a scope become one token again.

All transitions that join one scope before one node are one join. It is evaluated whenever a branch
of its scope arrives, ends, fails or is cancelled, and it fires at most once: firing closes the
scope, and the joins of a closed scope are never evaluated again. Branches of one scope may arrive
at different joins; when none is left to come, each join that a branch arrived at fires.
"""

from collections.abc import Sequence
from typing import assert_never

from rota.core.workflow.definition.model import Join
from rota.core.workflow.runtime.errors import RunError, failing_as
from rota.core.workflow.runtime.run import Run, Steps
from rota.core.workflow.runtime.scopes import branches, merging
from rota.core.workflow.runtime.tokens import BranchScope, Place
from rota.core.workflow.states import BranchState


def arm_timeout(run: Run, scope: BranchScope) -> None:
    """Set the timer of the join with the shortest timeout, from the opening of its scope."""
    timed = _first_to_time_out(run, scope)
    if timed is not None and timed.rule.timeout_ms is not None:
        run.set_timer("join", scope.number, run.now_ms + timed.rule.timeout_ms)


def _first_to_time_out(run: Run, scope: BranchScope) -> Join | None:
    timed = [join for join in run.graph.joins_of(scope.key) if join.rule.timeout_ms is not None]
    return min(timed, key=lambda join: join.rule.timeout_ms or 0, default=None)


def depth_of(run: Run, stack: tuple[Place, ...], key: str) -> int | None:
    """The depth of the innermost scope with this key."""
    for depth in range(len(stack) - 1, -1, -1):
        if run.scopes[stack[depth][0]].key == key:
            return depth
    return None


def close_branches(run: Run, places: Sequence[Place]) -> None:
    """Close the branches that have no token under way any more, from the inside out."""
    for number, index in reversed(places):
        scope = run.scopes.get(number)
        if scope is None:
            continue
        branch = scope.branches[index]
        if branch.state is not BranchState.LIVE or branch.live:
            continue
        if scope.is_closed:
            run.set_branch(scope, branch, BranchState.ENDED)
            run.forget_scope(scope)
            continue
        arrived = bool(branch.arrivals)
        run.set_branch(scope, branch, BranchState.ARRIVED if arrived else BranchState.ENDED)
        evaluate(run, scope)


def evaluate(run: Run, scope: BranchScope) -> None:
    """Fire the joins of a changed scope that are due, or else start other branches."""
    if scope.is_over:
        return
    joins = run.graph.joins_of(scope.key)
    due = _due(scope, joins)
    if due:
        fire(run, scope, due, _reason(scope, due[0]))
        return
    if not scope.still_to_come and not scope.is_held_open:
        assert not joins
        run.close_scope(scope, "all its branches have ended")
        return
    branches.start_branches(run, scope)


def _due(scope: BranchScope, joins: tuple[Join, ...]) -> list[Join]:
    """The joins that fire now; a quorum that cannot be met any more is an error."""
    for join in joins:
        needed = scope.needed[join.node]
        if needed is not None and scope.arrived.get(join.node, 0) >= needed:
            return [join]
    missed = out_of_reach(scope, joins)
    if missed is not None:
        most = scope.arrived.get(missed.node, 0) + scope.still_to_come
        message = (
            f"{scope.needed[missed.node]} branches of {scope.key!r} were needed,"
            f" and at most {most} can arrive"
        )
        raise RunError("quorum_unreachable", message, missed.name, stack=scope.stack)
    if scope.still_to_come or scope.is_held_open or not joins:
        return []
    return _with_arrivals(scope, joins)


def _with_arrivals(scope: BranchScope, joins: tuple[Join, ...]) -> list[Join]:
    """The joins that branches have arrived at; if there is none, the one that waits for all."""
    arrived = [join for join in joins if scope.arrived.get(join.node)]
    return arrived or [next((one for one in joins if scope.needed[one.node] is None), joins[0])]


def out_of_reach(scope: BranchScope, joins: tuple[Join, ...]) -> Join | None:
    """A join whose quorum cannot be met any more, although a branch depends on it."""
    if not scope.total or scope.is_held_open:
        return None  # an empty fan-out joins at once, and more branches may come
    for join in joins:
        needed, arrived = scope.needed[join.node], scope.arrived.get(join.node, 0)
        if needed is not None and arrived + scope.still_to_come < needed:
            is_only_way = all(scope.needed[other.node] is not None for other in joins)
            if arrived or len(joins) == 1 or (is_only_way and not scope.still_to_come):
                return join
    return None


def _reason(scope: BranchScope, join: Join) -> str:
    if not scope.still_to_come:
        return "all branches have arrived or ended"
    return f"{scope.needed[join.node]} of {scope.total} branches have arrived"


def fire(run: Run, scope: BranchScope, joins: list[Join], because: str) -> None:
    """Merge the arrived branches, continue as one token, and close the scope."""
    run.start_closing(scope)
    run.perform("fire", _firing(run, scope, joins, because))


def _firing(run: Run, scope: BranchScope, joins: list[Join], because: str) -> Steps:
    try:
        with failing_as("merge_failed", joins[0].name, stack=scope.stack):
            writes = yield from merging.merged(run, scope, joins)
    except RunError:
        run.stop_closing(scope)
        raise
    for path, value in writes:
        run.write(path, value, scope.stack)
    for join in joins:
        token = run.create_token(join.node, parent=scope.parent, stack=scope.stack, via=join.name)
        run.spans.follow_joined(token.number, _joined_spans(run, scope, join))
    absorb = joins[0].rule.late == "absorb"
    merged = frozenset(join.node for join in joins)
    yield from branches.release(run, scope, merged, absorb=absorb)
    run.close_scope(scope, because)


def _joined_spans(run: Run, scope: BranchScope, join: Join) -> tuple[str, ...]:
    """The spans of the last tasks of the branches that arrived at a join, by branch index."""
    if not run.spans.followed:
        return ()
    return run.spans.of_all(
        number
        for branch in scope.branches
        if branch.state is BranchState.ARRIVED and join.node in branch.arrivals
        for number in branch.tokens
    )


def time_out(run: Run, scope: BranchScope) -> None:
    """Take up the timeout of a join: the run fails, or continues with what has arrived."""
    join = _first_to_time_out(run, scope)
    assert join is not None
    timeout_ms = join.rule.timeout_ms
    match join.rule.on_timeout:
        case "fail":
            message = f"branches of {scope.key!r} did not arrive within {timeout_ms} ms"
            raise RunError("join_timeout", message, join.name, stack=scope.stack)
        case "proceed":
            _fire_with_arrivals(run, scope, [join], f"{timeout_ms} ms are over")
        case _:
            assert_never(join.rule.on_timeout)


def complete(run: Run, scope: BranchScope, because: str, signal: str | None = None) -> None:
    """Fire the joins of a scope with what has arrived; a signal fires those that it completes."""
    joins = run.graph.joins_of(scope.key)
    first = [join for join in joins if signal is not None and completing_signal(join) == signal]
    outside = run.counted(scope.stack)
    _fire_with_arrivals(run, scope, first or _with_arrivals(scope, joins), because)
    close_branches(run, outside)


def completing_signal(join: Join) -> str | None:
    """The name of the signal that completes the scope of a join."""
    return None if join.rule.complete_on is None else join.rule.complete_on.signal


def _fire_with_arrivals(run: Run, scope: BranchScope, first: list[Join], because: str) -> None:
    """Fire these joins, and the others of the scope that branches have arrived at."""
    others = [
        join
        for join in run.graph.joins_of(scope.key)
        if join not in first and scope.arrived.get(join.node)
    ]
    fire(run, scope, [*first, *others], because)


def cancel(run: Run, scope: BranchScope, because: str) -> None:
    """End the branches of a scope and close it; nothing follows them."""
    run.start_closing(scope)
    run.perform("cancel scope", _cancelling(run, scope, because))


def _cancelling(run: Run, scope: BranchScope, because: str) -> Steps:
    for branch in scope.each_branch():
        yield from branches.cancel_branch(run, scope, branch)
    outside = run.counted(scope.stack)
    run.close_scope(scope, because)
    close_branches(run, outside)
