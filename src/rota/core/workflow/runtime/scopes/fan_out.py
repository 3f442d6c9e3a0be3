"""Fan-out: one token, or a scope of branches by count, by item, or by sibling group."""

from typing import Any

from rota.core.workflow.definition.expressions import ExpressionError
from rota.core.workflow.definition.model import MAX_SPAWN
from rota.core.workflow.runtime.context import evaluate
from rota.core.workflow.runtime.errors import failing_as
from rota.core.workflow.runtime.run import Run
from rota.core.workflow.runtime.scopes import joins
from rota.core.workflow.runtime.tokens import BranchScope, FanOut, Token


def fan_outs(run: Run, token: Token, numbers: list[int]) -> list[FanOut]:
    """The scopes that these transitions open. Changes nothing, so that an error leaves no half."""
    groups: dict[str, list[int]] = {}
    for number in numbers:
        key = run.graph.scope_key(number)
        if key is not None:
            groups.setdefault(key, []).append(number)
    planned = []
    for key, members in groups.items():
        with failing_as("fan_out_failed", key, token=token.number):
            targets, items = _branches(run, token, members)
        limits = [run.graph.transition(one).max_parallel for one in members]
        parallel = min((limit for limit in limits if limit is not None), default=None)
        quorums = _quorums(run, token, key)
        is_open = run.graph.transition(members[0]).open
        planned.append(FanOut(key, targets, items, parallel, quorums, is_open))
    return planned


def _quorums(run: Run, token: Token, key: str) -> dict[str, int]:
    """The numbers of branches that the joins of a scope wait for, where they are expressions."""
    found = {}
    for join in run.graph.joins_of(key):
        source = join.rule.needed
        if not isinstance(source, str):
            continue
        place = f"{join.name}.synchronization.wait_for.m_of_n"
        with failing_as("quorum_failed", place, token=token.number):
            needed = evaluate(source, run.values(token.stack), place)
            if isinstance(needed, bool) or not isinstance(needed, int) or not _in_range(needed):
                message = f"{source!r} gave {needed!r}, not a count from 1 to {MAX_SPAWN}"
                raise ExpressionError(message, place)
        found[join.node] = needed
    return found


def _in_range(needed: int) -> bool:
    return 1 <= needed <= MAX_SPAWN


def open_scope(run: Run, token: Token, fan_out: FanOut) -> BranchScope:
    """Open a scope. Its evaluation starts its branches, or fires its empty join."""
    scope = run.open_scope(token, fan_out)
    joins.arm_timeout(run, scope)
    return scope


def follow(run: Run, token: Token, number: int) -> None:
    """Create the next token, in the same branch."""
    target = run.graph.transition(number).to
    run.create_token(target, parent=token.number, stack=token.stack, via=run.graph.name_of(number))


def _branches(run: Run, token: Token, members: list[int]) -> tuple[list[str], list[Any] | None]:
    """The first node of each branch, and the items where there are any."""
    targets: list[str] = []
    items: list[Any] = []
    has_items = False
    values = run.values(token.stack)
    for number in members:
        transition = run.graph.transition(number)
        if transition.foreach is not None:
            has_items = True
            found = _items(run, number, values)
        else:
            found = [None] * _count(run, number, values)
        items += found
        targets += [transition.to] * len(found)
    if len(targets) > MAX_SPAWN:
        raise ExpressionError(f"{len(targets)} branches are more than {MAX_SPAWN}")
    return targets, items if has_items else None


def _items(run: Run, number: int, values: dict[str, Any]) -> list[Any]:
    place = f"{run.graph.name_of(number)}.foreach"
    source = run.graph.transition(number).foreach
    found = evaluate(source, values, place)
    if not isinstance(found, list):
        raise ExpressionError(f"{source!r} gave {_kind(found)}, not a list", place)
    return found


def _count(run: Run, number: int, values: dict[str, Any]) -> int:
    source = run.graph.transition(number).spawn_count
    if source is None:
        return 1
    place = f"{run.graph.name_of(number)}.spawn_count"
    count = evaluate(source, values, place)
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MAX_SPAWN:
        message = f"{source!r} gave {count!r}, not a count from 0 to {MAX_SPAWN}"
        raise ExpressionError(message, place)
    return count


def _kind(value: Any) -> str:
    return "null" if value is None else type(value).__name__
