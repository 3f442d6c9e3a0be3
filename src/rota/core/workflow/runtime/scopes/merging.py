"""Merging of branch outputs, ordered by branch index.

A merge is over the branches that arrived at its join. One whose source names `branch.error` is
over those that failed; one that names `branch.output` too is over both.
"""

from collections.abc import Generator, Sequence
from typing import Any, assert_never

from rota.core.workflow.definition.expressions import ExpressionError, compiled
from rota.core.workflow.definition.model import Join, Merge
from rota.core.workflow.runtime.context import branch_names, evaluate, path_of
from rota.core.workflow.runtime.run import Run
from rota.core.workflow.runtime.tokens import Branch, BranchScope
from rota.core.workflow.states import BranchState

_OUTPUT, _ERROR = ("branch", "output"), ("branch", "error")


Write = tuple[tuple[str, ...], Any]  # a path, and a value


def merged(run: Run, scope: BranchScope, joins: list[Join]) -> Generator[int, None, list[Write]]:
    """The paths and values that joins write; a `last_wins` without branches writes nothing."""
    writes = []
    for join in joins:
        for merge in join.rule.merges:
            found = yield from _found(run, scope, join, merge)
            if found or merge.strategy != "last_wins":
                writes.append((path_of(merge.target), _combined(merge, found)))
    return writes


def _found(
    run: Run, scope: BranchScope, join: Join, merge: Merge
) -> Generator[int, None, list[tuple[str, Any]]]:
    """The values of the branches that are merged; of a keyed merge with their keys."""
    places = compiled(merge.source).places
    failed = _ERROR in places
    arrived = not failed or _OUTPUT in places
    place = f"{join.name}.synchronization.merge"
    found = []
    for branch in scope.branches:
        if (arrived and branch.state is BranchState.ARRIVED and join.node in branch.arrivals) or (
            failed and branch.state is BranchState.FAILED
        ):
            value = _value(run, scope, join, branch, (merge.source, place))
            is_keyed = merge.strategy == "keyed"
            found.append((_key(run, scope, join, merge, branch) if is_keyed else "", value))
        yield 1
    return found


def _value(run: Run, scope: BranchScope, join: Join, branch: Branch, what: tuple[str, str]) -> Any:
    names = branch_names(scope, branch.index)
    if branch.state is BranchState.FAILED:
        names["error"] = branch.error
    else:
        names["output"] = branch.arrivals[join.node]
    stack = (*scope.stack, (scope.number, branch.index))
    source, place = what
    return evaluate(source, run.values(stack, branch=names), place)


def _combined(merge: Merge, found: Sequence[tuple[str, Any]]) -> Any:
    values = [value for _, value in found]
    match merge.strategy:
        case "append":
            if values and all(isinstance(value, list) for value in values):
                return [one for value in values for one in value]
            return values
        case "collect":
            return values
        case "merge":
            return _merged_objects(values, merge)
        case "keyed":
            return dict(found)
        case "last_wins":
            return values[-1]
        case _:
            assert_never(merge.strategy)


def _merged_objects(values: Sequence[Any], merge: Merge) -> dict[str, Any]:
    answer: dict[str, Any] = {}
    for value in values:
        if not isinstance(value, dict):
            kind = type(value).__name__
            raise ExpressionError(f"merge into {merge.target}: {kind} is not an object")
        answer |= value
    return answer


def _key(run: Run, scope: BranchScope, join: Join, merge: Merge, branch: Branch) -> str:
    key: Any = branch.index
    if merge.key is not None:
        place = f"{join.name}.synchronization.merge.key"
        key = _value(run, scope, join, branch, (merge.key, place))
    if isinstance(key, str):
        return key
    if isinstance(key, bool) or not isinstance(key, int):
        raise ExpressionError(f"a key must be a text or a whole number, not {key!r}")
    return str(key)
