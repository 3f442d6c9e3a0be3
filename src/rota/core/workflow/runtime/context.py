"""The context that a token sees: the run's, as changed by its own branch.

A branch begins with the context at the opening of its scope, and its writes stay in it until a join
merges them: neither its siblings nor the outside see them, and it does not see theirs. Documents
are never changed in place, so a branch costs nothing until it writes.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from rota.core import limits
from rota.core.workflow.definition.expressions import BUDGET, ExpressionError, Spending, compiled
from rota.core.workflow.runtime.tokens import BranchScope, Place


def written(document: Any, path: tuple[str, ...], value: Any) -> Any:
    """The document with a value at a path; missing objects on the way are made."""
    if not path:
        return value
    before = document if isinstance(document, Mapping) else {}
    return {**before, path[0]: written(before.get(path[0]), path[1:], value)}


class Values(dict[str, Any]):
    """The names that an expression may use, and the steps left for it and others of its event."""

    __slots__ = ("spending",)

    def __init__(self, spending: Spending, names: Mapping[str, Any]) -> None:
        super().__init__(names)
        self.spending = spending


class RunDocuments:
    """The run's documents, and a view of them for each place."""

    def __init__(self, run_input: Any, state: Any, output: Any, nodes: Any) -> None:
        self.input = run_input
        self.run: dict[str, Any] = {"id": None, "parent_id": None}
        self.spending = Spending()  # of the current event
        self.documents: dict[str, Any] = {"state": state, "output": output, "nodes": nodes}

    def documents_at(
        self, stack: tuple[Place, ...], scopes: Mapping[int, BranchScope]
    ) -> dict[str, Any]:
        if not stack:
            return self.documents
        number, index = stack[-1]
        scope = scopes[number]
        own = scope.branches[index].documents
        return scope.documents if own is None else own

    def write(
        self,
        path: tuple[str, ...],
        value: Any,
        stack: tuple[Place, ...],
        scopes: Mapping[int, BranchScope],
    ) -> None:
        documents = written(self.documents_at(stack, scopes), path, value)
        if stack:
            number, index = stack[-1]
            scopes[number].branches[index].documents = documents
        else:
            self.documents = documents

    def values(
        self, stack: tuple[Place, ...], scopes: Mapping[int, BranchScope], **more: Any
    ) -> dict[str, Any]:
        """The names an expression may use at this place."""
        names = {"input": self.input, "run": self.run, **self.documents_at(stack, scopes), **more}
        values = Values(self.spending, names)
        if stack and "branch" not in more:
            number, index = stack[-1]
            values["branch"] = branch_names(scopes[number], index)
        return values


def branch_names(scope: BranchScope, index: int) -> dict[str, Any]:
    names: dict[str, Any] = {"index": index, "total": scope.total}
    if scope.items is not None:
        names["item"] = scope.items[index]
    if scope.outside is not None:
        names["parent"] = scope.outside
    return names


def evaluated(mapping: Mapping[str, Any] | None, values: Mapping[str, Any], place: str) -> Any:
    """The values of a mapping: texts are expressions, everything else is a literal."""
    if mapping is None:
        return None
    found, total = {}, 0
    for name, source in mapping.items():
        found[name], size = _measured(source, values, f"{place}.{name}")
        total += size
        _refuse_size(total, place)
    return found


def evaluate(source: Any, values: Mapping[str, Any], place: str) -> Any:
    """The value of an expression; the error of one that fails names its place."""
    value, size = _measured(source, values, place)
    _refuse_size(size, place)
    return value


def _measured(source: Any, values: Mapping[str, Any], place: str) -> tuple[Any, int]:
    """The value of an expression, and its size."""
    if not isinstance(source, str):
        return source, 0
    try:
        spending = values.spending if isinstance(values, Values) else None
        value = compiled(source).evaluate(values, spending)
        return value, _size(value)
    except ExpressionError as error:
        raise ExpressionError(f"{source!r}: {error}", place, code=error.code) from None


def _size(value: Any) -> int:
    """The bytes of a list or object as JSON; 0 for other values, which are never copied.

    A document that is written into itself shares its parts in memory, but as JSON it doubles.
    """
    if not isinstance(value, list | dict):
        return 0
    try:
        return len(msgspec.json.encode(value))
    except (RecursionError, UnicodeError, OverflowError) as error:
        raise ExpressionError(f"the value cannot be kept: {error}") from None


def _refuse_size(size: int, place: str) -> None:
    if size > limits.MAX_VALUE_BYTES:
        message = f"gives more than {limits.MAX_VALUE_BYTES} bytes"
        raise ExpressionError(message, place, code=BUDGET)


def path_of(target: str) -> tuple[str, ...]:
    return tuple(target.split("."))
