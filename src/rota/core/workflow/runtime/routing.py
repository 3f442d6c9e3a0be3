"""Routing of a token: transition tiers, conditions, loop limits, joins."""

from typing import Any, assert_never

from rota.core.workflow.runtime.context import evaluate
from rota.core.workflow.runtime.errors import RunError, failing_as
from rota.core.workflow.runtime.run import Run
from rota.core.workflow.runtime.scopes import fan_out as runtime_fan_out
from rota.core.workflow.runtime.scopes import joins
from rota.core.workflow.runtime.tokens import Token
from rota.core.workflow.states import TokenState


def follow_transitions(run: Run, token: Token, result: Any) -> None:
    """Take every matching transition of the first tier that has one.

    Everything that can fail is computed first; then new tokens are created before the old one ends,
    so that no branch looks empty while one of its tokens moves on.
    """
    chosen = _first_tier(run, token)
    if not chosen and run.graph.leaving[token.node]:
        _no_route(run, token)
    arrivals, onward = _arrivals(run, token, chosen)
    fan_outs = runtime_fan_out.fan_outs(run, token, onward)
    for number in chosen:
        if run.graph.transition(number).max_iterations is not None:
            run.count_iteration(run.graph.name_of(number), token.stack)
    for number in onward:
        if run.graph.scope_key(number) is None:
            runtime_fan_out.follow(run, token, number)
    opened = [runtime_fan_out.open_scope(run, token, fan_out) for fan_out in fan_outs]
    left = run.counted(token.stack)
    _leave(run, token, arrivals, result)
    for scope in opened:
        joins.evaluate(run, scope)
    joins.close_branches(run, left)


def end_here(run: Run, token: Token) -> None:
    """End a token in good order; none of its transitions is followed."""
    left = run.counted(token.stack)
    run.end_token(token.number, TokenState.COMPLETED)
    joins.close_branches(run, left)


def _no_route(run: Run, token: Token) -> None:
    match run.graph.definition.on_no_route:
        case "fail":
            message = f"no transition out of {token.node!r} matches"
            raise RunError("no_route", message, f"nodes.{token.node}", token=token.number)
        case "end":
            pass
        case _:
            assert_never(run.graph.definition.on_no_route)


def _arrivals(
    run: Run, token: Token, chosen: list[int]
) -> tuple[dict[tuple[int, str], int], list[int]]:
    """The chosen transitions that arrive at a join (by depth and node), and those that lead on.

    Where the scope that a transition joins is not open, such as in a run that was forked in the
    middle of a branch, there are no siblings to wait for: it leads on. In a late branch, whose join
    has fired without it, it leads nowhere.
    """
    late = run.late_depth(token.stack)
    arrivals: dict[tuple[int, str], int] = {}
    onward = []
    for number in chosen:
        transition = run.graph.transition(number)
        rule = transition.synchronization
        if rule is None:
            onward.append(number)
            continue
        depth = joins.depth_of(run, token.stack, rule.joins_transition)
        if depth is None:
            onward.append(number)
        elif late is None or depth > late:
            arrivals[depth, transition.to] = number
    return arrivals, onward


def _leave(run: Run, token: Token, arrivals: dict[tuple[int, str], int], result: Any) -> None:
    """End the token, or hold it at its join; at a second join a new token waits."""
    number: int | None = token.number
    for (depth, node), transition in arrivals.items():
        stack = token.stack[: depth + 1]
        run.branch(stack[-1]).arrivals[node] = result
        if number is None:
            via = run.graph.name_of(transition)
            number = run.create_token(
                token.node, parent=token.number, stack=token.stack, via=via
            ).number
        run.hold_token(number, stack)
        number = None
    if number is not None:
        run.end_token(number, TokenState.COMPLETED)


def _first_tier(run: Run, token: Token) -> list[int]:
    values: dict[str, Any] | None = None
    for priority, numbers in run.graph.leaving[token.node]:
        matching = []
        for number in numbers:
            transition = run.graph.transition(number)
            name = run.graph.name_of(number)
            limit = transition.max_iterations
            if limit is not None and run.iterations_at(token.stack).get(name, 0) >= limit:
                run.consider(name, f"taken {limit} times already", taken=False)
                continue
            if transition.condition is None:
                matching.append(number)
                continue
            values = values or run.values(token.stack)
            place = f"{name}.condition"
            if holds(transition.condition, values, place, token.number):
                run.consider(name, f"{transition.condition} is true", taken=True)
                matching.append(number)
            else:
                run.consider(name, f"{transition.condition} is false", taken=False)
        if matching:
            return matching
        run.consider(f"priority {priority}", "no transition of this tier matches", taken=False)
    return []


def holds(condition: str, values: dict[str, Any], place: str, token: int) -> bool:
    with failing_as("condition_failed", place, token=token):
        answer = evaluate(condition, values, place)
    if not isinstance(answer, bool):
        message = f"{condition!r} gave {answer!r}, not true or false"
        raise RunError("condition_failed", message, place, token=token)
    return answer
