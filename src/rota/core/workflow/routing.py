"""Where does a token go? Tiers of transitions, conditions, loop limits, joins."""

from typing import Any

from rota.core.workflow import spawning, synchronization
from rota.core.workflow.context import evaluate
from rota.core.workflow.run import Run
from rota.core.workflow.tokens import Token, TokenState
from rota.core.workflow.troubles import Trouble, troubling


def go_on(run: Run, token: Token, result: Any) -> None:
    """Take every matching transition of the first tier that has one.

    Everything that can fail is worked out first; then new tokens are made before the old one goes,
    so that no branch looks empty while one of its tokens moves on.
    """
    chosen = _first_tier(run, token)
    if not chosen and run.graph.leaving[token.node]:
        _no_route(run, token)
    arrivals, onward = _arrivals(run, token, chosen)
    fan_outs = spawning.fan_outs(run, token, onward)
    for number in chosen:
        if run.graph.transition(number).max_iterations is not None:
            run.count_iteration(run.graph.name_of(number), token.stack)
    for number in onward:
        if run.graph.scope_key(number) is None:
            spawning.follow(run, token, number)
    opened = [spawning.open_scope(run, token, fan_out) for fan_out in fan_outs]
    left = run.counted(token.stack)
    _leave(run, token, arrivals, result)
    for scope in opened:
        synchronization.look(run, scope)
    synchronization.settle(run, left)


def _no_route(run: Run, token: Token) -> None:
    if run.graph.definition.on_no_route == "fail":
        message = f"no transition out of {token.node!r} matches"
        raise Trouble("no_route", message, f"nodes.{token.node}", token=token.number)


def _arrivals(
    run: Run, token: Token, chosen: list[int]
) -> tuple[dict[tuple[int, str], int], list[int]]:
    """Which of the chosen transitions arrive at a join (depth and node), and which lead on.

    Where the scope that a transition joins is not open, such as in a run that was forked in the
    middle of a branch, there is nobody to wait for: it leads on. In a branch that is late, whose
    join has fired without it, it leads nowhere.
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
        depth = synchronization.depth_of(run, token.stack, rule.joins_transition)
        if depth is None:
            onward.append(number)
        elif late is None or depth > late:
            arrivals[depth, transition.to] = number
    return arrivals, onward


def _leave(run: Run, token: Token, arrivals: dict[tuple[int, str], int], result: Any) -> None:
    """The token ends, or waits at the join it arrived at; at a second one, another waits for it."""
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
    with troubling("condition_failed", place, token=token):
        answer = evaluate(condition, values, place)
    if not isinstance(answer, bool):
        message = f"{condition!r} gave {answer!r}, not true or false"
        raise Trouble("condition_failed", message, place, token=token)
    return answer
