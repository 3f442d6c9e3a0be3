"""Joins: when do the branches of a scope become one again?

All transitions that join one scope before one node are one join. It is looked at whenever a
branch of its scope arrives, ends, fails or is cancelled, and it fires at most once: firing closes
the scope, and a closed scope's joins are never looked at again. Branches of one scope may arrive
at different joins; when none is left to come, each join that something arrived at fires.
"""

from collections.abc import Sequence

from rota.core.workflow import branches, merging
from rota.core.workflow.definition import Join
from rota.core.workflow.run import Run
from rota.core.workflow.tokens import BranchState, Place, Scope
from rota.core.workflow.troubles import Trouble, troubling


def watch(run: Run, scope: Scope) -> None:
    """A join's time counts from the opening of its scope."""
    timed = _first_to_time_out(run, scope)
    if timed is not None and timed.rule.timeout_ms is not None:
        run.set_timer("join", scope.number, run.now_ms + timed.rule.timeout_ms)


def _first_to_time_out(run: Run, scope: Scope) -> Join | None:
    timed = [join for join in run.graph.joins_of(scope.key) if join.rule.timeout_ms is not None]
    return min(timed, key=lambda join: join.rule.timeout_ms or 0, default=None)


def depth_of(run: Run, stack: tuple[Place, ...], key: str) -> int | None:
    """Which of these scopes a join means: the innermost of that name."""
    for depth in range(len(stack) - 1, -1, -1):
        if run.scopes[stack[depth][0]].key == key:
            return depth
    return None


def settle(run: Run, places: Sequence[Place]) -> None:
    """Tokens have left these branches: see, from the inside out, which are through."""
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
        look(run, scope)


def look(run: Run, scope: Scope) -> None:
    """Something changed in a scope: its joins may fire, or else other branches may begin."""
    if scope.is_closed:
        return
    joins = run.graph.joins_of(scope.key)
    due = _due(scope, joins)
    if due:
        fire(run, scope, due, _reason(scope, due[0]))
        return
    if not scope.still_to_come:
        assert not joins
        run.close_scope(scope, "all its branches have ended")
        return
    branches.start_branches(run, scope)


def _due(scope: Scope, joins: tuple[Join, ...]) -> list[Join]:
    """The joins that fire now; a quorum that cannot be met any more is trouble."""
    for join in joins:
        needed = join.rule.needed
        if needed is not None and scope.arrived.get(join.node, 0) >= needed:
            return [join]
    missed = out_of_reach(scope, joins)
    if missed is not None:
        most = scope.arrived.get(missed.node, 0) + scope.still_to_come
        message = (
            f"{missed.rule.needed} branches of {scope.key!r} were needed,"
            f" and at most {most} can arrive"
        )
        raise Trouble("quorum_unreachable", message, missed.name, stack=scope.stack)
    if scope.still_to_come or not joins:
        return []
    arrived = [join for join in joins if scope.arrived.get(join.node)]
    return arrived or [next((join for join in joins if join.rule.needed is None), joins[0])]


def out_of_reach(scope: Scope, joins: tuple[Join, ...]) -> Join | None:
    """A join whose quorum cannot be met any more, where a branch counts on it."""
    if not scope.total:
        return None  # an empty fan-out is joined at once
    for join in joins:
        needed, arrived = join.rule.needed, scope.arrived.get(join.node, 0)
        if needed is not None and arrived + scope.still_to_come < needed:
            is_only_way = all(other.rule.needed is not None for other in joins)
            if arrived or len(joins) == 1 or (is_only_way and not scope.still_to_come):
                return join
    return None


def _reason(scope: Scope, join: Join) -> str:
    if not scope.still_to_come:
        return "all branches have arrived or ended"
    return f"{join.rule.needed} of {scope.total} branches have arrived"


def fire(run: Run, scope: Scope, joins: list[Join], because: str) -> None:
    """Merge what arrived, go on as one, and close the scope."""
    with troubling("merge_failed", joins[0].name, stack=scope.stack):
        writes = [write for join in joins for write in merging.merged(run, scope, join)]
    for path, value in writes:
        run.write(path, value, scope.stack)
    for join in joins:
        run.create_token(join.node, parent=scope.parent, stack=scope.stack, via=join.name)
    absorb = joins[0].rule.late == "absorb"
    branches.release(run, scope, frozenset(join.node for join in joins), absorb=absorb)
    run.close_scope(scope, because)


def time_out(run: Run, scope: Scope) -> None:
    """A join's time is over: the run fails, or goes on with what has arrived."""
    join = _first_to_time_out(run, scope)
    assert join is not None
    timeout_ms = join.rule.timeout_ms
    if join.rule.on_timeout == "fail":
        message = f"branches of {scope.key!r} did not arrive within {timeout_ms} ms"
        raise Trouble("join_timeout", message, join.name, stack=scope.stack)
    others = [
        other
        for other in run.graph.joins_of(scope.key)
        if other.node != join.node and scope.arrived.get(other.node)
    ]
    fire(run, scope, [join, *others], f"{timeout_ms} ms are over")
