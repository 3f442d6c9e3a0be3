"""What does a token see? The run's context, as its own branch has changed it.

A branch begins with what was to be seen when its scope opened, and what it writes stays in it
until a join merges it: neither its siblings nor the outside see it, and it sees nothing that they
write meanwhile. Documents are never changed in place, so a branch costs nothing until it writes.
"""

from collections.abc import Mapping
from typing import Any

from rota.core.workflow.expressions import ExpressionError, compiled
from rota.core.workflow.tokens import Place, Scope

ROOTS = ("state", "output")


def written(document: Any, path: tuple[str, ...], value: Any) -> Any:
    """The document with a value at a place; objects on the way are made where there are none."""
    if not path:
        return value
    before = document if isinstance(document, Mapping) else {}
    return {**before, path[0]: written(before.get(path[0]), path[1:], value)}


class Context:
    """The run's documents, and a view of them for each place."""

    def __init__(self, run_input: Any, state: Any, output: Any, nodes: Any) -> None:
        self.input = run_input
        self.documents: dict[str, Any] = {"state": state, "output": output, "nodes": nodes}

    def documents_at(self, stack: tuple[Place, ...], scopes: Mapping[int, Scope]) -> dict[str, Any]:
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
        scopes: Mapping[int, Scope],
    ) -> None:
        documents = written(self.documents_at(stack, scopes), path, value)
        if stack:
            number, index = stack[-1]
            scopes[number].branches[index].documents = documents
        else:
            self.documents = documents

    def values(
        self, stack: tuple[Place, ...], scopes: Mapping[int, Scope], **more: Any
    ) -> dict[str, Any]:
        """The names an expression may use at this place."""
        values = {"input": self.input, **self.documents_at(stack, scopes), **more}
        if stack and "branch" not in more:
            number, index = stack[-1]
            values["branch"] = branch_names(scopes[number], index)
        return values


def branch_names(scope: Scope, index: int) -> dict[str, Any]:
    names: dict[str, Any] = {"index": index, "total": scope.total}
    if scope.items is not None:
        names["item"] = scope.items[index]
    if scope.outside is not None:
        names["parent"] = scope.outside
    return names


def evaluated(mapping: Mapping[str, Any] | None, values: Mapping[str, Any], place: str) -> Any:
    """A mapping's values: texts are expressions, everything else stands for itself."""
    if mapping is None:
        return None
    return {name: evaluate(source, values, f"{place}.{name}") for name, source in mapping.items()}


def evaluate(source: Any, values: Mapping[str, Any], place: str) -> Any:
    """What an expression gives; the error of one that fails says where it stands."""
    if not isinstance(source, str):
        return source
    try:
        return compiled(source).evaluate(values)
    except ExpressionError as error:
        raise ExpressionError(f"{source!r}: {error}", place) from None


def path_of(target: str) -> tuple[str, ...]:
    return tuple(target.split("."))
