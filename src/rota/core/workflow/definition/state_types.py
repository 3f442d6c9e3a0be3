"""Checks mappings against the schema of the state, as far as that can be known before a run.

A problem is reported only when it is certain: the path exists in no state that fits the schema, or
the type of a written value is known and none of those that the schema allows there. What is behind
a `$ref`, a pattern or a combination of schemas is not known. Whole and other numbers are one type.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from rota.core.workflow.definition import expression_syntax as syntax
from rota.core.workflow.definition import name_resolution, readings, schemas
from rota.core.workflow.definition.expressions import ExpressionError, compiled
from rota.core.workflow.definition.model import (
    Definition,
    DefinitionProblem,
    Transition,
    problem,
)
from rota.core.workflow.definition.readings import Path
from rota.errors import did_you_mean

JsonType = Literal["null", "boolean", "number", "string", "array", "object"]
Schemas = Mapping[str, Any]  # of the documents that an expression may name

_TRUTHS = frozenset(
    {"_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "_&&_", "_||_", "!_", "@in"}
    | {"contains", "startsWith", "endsWith", "matches"}
)
_NUMBERS = frozenset({"size", "int", "uint", "double", "_*_", "_/_", "_%_", "-_"})
_MERGED: dict[str, JsonType] = {
    "append": "array",
    "collect": "array",
    "merge": "object",
    "keyed": "object",
}


class UnknownPathError(Exception):
    """A path that no value has which fits the schema."""


def problems(definition: Definition) -> Iterator[DefinitionProblem]:
    """Mappings that break the schema of the state."""
    schema = definition.state
    if not isinstance(schema, dict) or schemas.schema_problem(schema) is not None:
        return
    for node_id, node in definition.nodes.items():
        known = {"input": definition.input, "state": schema, "result": node.output_schema}
        for target, source in (node.output or {}).items():
            yield from _written(f"nodes.{node_id}.output.{target}", target, source, known)
    for number, transition in enumerate(definition.transitions):
        for path, target, kind in _merges(number, transition):
            yield from _placed(path, schema, target, kind)
    for path, source in readings.sources(definition):
        yield from _read(path, schema, source)


def _merges(number: int, transition: Transition) -> Iterator[tuple[str, str, JsonType | None]]:
    rule = transition.synchronization
    for place, merge in enumerate(() if rule is None else rule.merges):
        path = name_resolution.merge_path(number, transition, place)
        yield f"{path}.target", merge.target, _MERGED.get(merge.strategy)


def _written(path: str, target: str, source: Any, known: Schemas) -> Iterator[DefinitionProblem]:
    schema = known["state"]
    if isinstance(source, str):
        try:
            kind = _type_of(compiled(source).tree, known)
        except ExpressionError:
            return  # reported elsewhere
        yield from _placed(path, schema, target, kind)
        return
    found = list(_placed(path, schema, target, _type_of_value(source)))
    yield from found
    if not found and target.startswith("state."):
        part = _at(schema, tuple(target.split(".")[1:]))
        if part is not None and b'"$ref"' not in msgspec.json.encode(part):
            for one in schemas.value_problems(part, source):
                yield problem(path, "state_type", f"{target} {one.removeprefix('value: ')}")


def _placed(
    path: str, schema: Any, target: str, kind: JsonType | None
) -> Iterator[DefinitionProblem]:
    """The problem of writing a value of this type at a target."""
    first, *rest = target.split(".")
    if first != "state":
        return
    for depth in range(len(rest)):
        allowed = _allowed(_known_part(schema, tuple(rest[:depth])))
        if allowed is not None and "object" not in allowed:
            inner = ".".join(["state", *rest[:depth]])
            message = f"{inner} is {_listed(allowed)} by the schema of the state, and has no fields"
            yield problem(path, "state_type", message)
            return
    try:
        allowed = _allowed(_at(schema, tuple(rest)))
    except UnknownPathError as error:
        yield problem(path, "unknown_state_path", str(error))
        return
    if kind is not None and allowed is not None and kind not in allowed:
        message = f"{target} is {_listed(allowed)} by the schema of the state, not {kind}"
        yield problem(path, "state_type", message)


def _read(path: str, schema: Any, source: Any) -> Iterator[DefinitionProblem]:
    if not isinstance(source, str):
        return
    try:
        tree = compiled(source).tree
    except ExpressionError:
        return  # reported elsewhere
    for place in sorted(set(readings.places(tree))):
        if place[0] == "state":
            try:
                _at(schema, place[1:])
            except UnknownPathError as error:
                yield problem(path, "unknown_state_path", str(error))


# --- schemas ------------------------------------------------------------------------------------


def _at(schema: Any, path: Path) -> Any:
    """The schema of the values at a path; None: not known."""
    for depth, name in enumerate(path):
        if not isinstance(schema, dict):
            return None
        inner = schema.get("properties")
        if isinstance(inner, dict) and name in inner:
            schema = inner[name]
            continue
        others = schema.get("additionalProperties")
        if others is False and "patternProperties" not in schema:
            place = ".".join(["state", *path[:depth]])
            names = ", ".join(inner) if isinstance(inner, dict) and inner else "no field"
            meant = did_you_mean(name, inner or ()) if isinstance(inner, dict) else ""
            raise UnknownPathError(
                f"{place} has no {name!r} by its schema{meant or f'; there is {names}'}"
            )
        schema = others if "patternProperties" not in schema else None
    return schema if isinstance(schema, dict) else None


def _known_part(schema: Any, path: Path) -> Any:
    try:
        return _at(schema, path)
    except UnknownPathError:
        return None


def _allowed(schema: Any) -> frozenset[str] | None:
    """The types that a schema allows; None: not known."""
    kinds = schema.get("type") if isinstance(schema, dict) else None
    if isinstance(kinds, str):
        kinds = [kinds]
    if not isinstance(kinds, list):
        return None
    return frozenset("number" if kind == "integer" else str(kind) for kind in kinds)


def _listed(kinds: frozenset[str]) -> str:
    return " or ".join(sorted(kinds))


# --- expressions --------------------------------------------------------------------------------


def _type_of_value(value: Any) -> JsonType:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return "array" if isinstance(value, list) else "object"


def _type_of(node: syntax.Node, known: Schemas) -> JsonType | None:  # noqa: PLR0911 - a table
    """The type that an expression gives; None: not known, or one of several."""
    match node:
        case syntax.Constant():
            return node.kind
        case syntax.ListNode():
            return "array"
        case syntax.MapNode():
            return "object"
        case syntax.CallNode():
            return _type_of_call(node, known)
        case syntax.Select(is_test=True):
            return "boolean"
        case syntax.Select() | syntax.Name():
            return _type_of_place(readings.place_of(node), known)
        case _:
            return None


def _type_of_call(call: syntax.CallNode, known: Schemas) -> JsonType | None:
    if call.function in _TRUTHS:
        return "boolean"
    if call.function in _NUMBERS:
        return "number"
    if call.function == "string":
        return "string"
    if call.function in {"_+_", "_-_"}:
        kinds = {_type_of(one, known) for one in call.arguments} - {None}
        return kinds.pop() if len(kinds) == 1 else None
    if call.function == "_?_:_":
        first, second = (_type_of(one, known) for one in call.arguments[1:])
        return first if first == second else None
    return None


def _type_of_place(path: Path | None, known: Schemas) -> JsonType | None:
    if path is None or path[0] not in known:
        return None
    kinds = _allowed(_known_part(known[path[0]], path[1:]))
    if kinds is None or len(kinds) != 1:
        return None
    (kind,) = kinds
    return kind  # type: ignore[return-value]  # a valid schema has no other types
