"""The places that expressions read, and warnings about those that nothing provides.

A warning never refuses a definition: a fork may give a run a state, and the results of another
version's nodes, that its definition does not write. It is reported only where the definition gives
no hint that the value can be there: no output mapping, merge or schema names it, and the expression
does not test for it with `has`.
"""

from collections.abc import Iterator
from typing import Any

from rota.core.workflow.definition import expression_syntax as syntax
from rota.core.workflow.definition import name_resolution
from rota.core.workflow.definition.expressions import ExpressionError, compiled
from rota.core.workflow.definition.model import (
    Definition,
    DefinitionProblem,
    NodeDefinition,
    problem,
)
from rota.errors import did_you_mean, nearest

Path = tuple[str, ...]

# Parts of a schema behind which there may be fields that its `properties` do not name.
_OPEN = ("$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "patternProperties")
_OPEN_UNLESS_FALSE = ("additionalProperties", "unevaluatedProperties", "dependentSchemas")


def warnings_of(definition: Definition) -> list[DefinitionProblem]:
    """Readings that probably fail: of a state, an input field or a node that is not there."""
    written = _written(definition)
    state_names = _declared(definition.state)
    found = []
    for path, source in sources(definition):
        for place in _read_by(source):
            match place:
                case ("state", _, *_) if state_names is not None:
                    if place[1] not in state_names and not _is_written(place, written):
                        found.append(_unwritten(path, place, written, state_names))
                case ("input", name, *_):
                    found += _unknown_input(path, name, definition.input)
                case ("nodes", name, *_) if name not in definition.nodes:
                    meant = did_you_mean(name, definition.nodes)
                    message = f"`nodes.{name}` is read, but there is no node {name!r}{meant}"
                    found.append(problem(path, "unknown_result", message))
                case _:
                    pass
    return found


def _read_by(source: Any) -> list[Path]:
    """The places that an expression reads, without those that it tests for with `has`."""
    if not isinstance(source, str):
        return []
    try:
        tree = compiled(source).tree
    except ExpressionError:
        return []  # reported as a problem
    tested = set(_tested(tree))
    return sorted(
        place for place in set(places(tree)) if not any(place[: len(one)] == one for one in tested)
    )


def _written(definition: Definition) -> frozenset[Path]:
    targets = [target for node in definition.nodes.values() for target in node.output or ()]
    for transition in definition.transitions:
        rule = transition.synchronization
        targets += [merge.target for merge in (() if rule is None else rule.merges)]
    return frozenset(tuple(target.split(".")) for target in targets)


def _is_written(place: Path, written: frozenset[Path]) -> bool:
    """Whether the place, a part of it, or an object that it is in is written."""
    return any(
        all(one == other for one, other in zip(place, target, strict=False)) for target in written
    )


def _unwritten(
    path: str, place: Path, written: frozenset[Path], declared: frozenset[str]
) -> DefinitionProblem:
    read = ".".join(place)
    known = {".".join(one[: len(place)]) for one in written if one[0] == "state"}
    meant = did_you_mean(read, sorted(known | {f"state.{name}" for name in declared}))
    message = f"`{read}` is read, but no node's output and no merge writes it{meant}"
    return problem(path, "unwritten_state", message)


def _unknown_input(path: str, name: str, schema: Any) -> Iterator[DefinitionProblem]:
    declared = _declared(schema)
    if not declared or name in declared:
        return
    is_closed = isinstance(schema, dict) and schema.get("additionalProperties") is False
    if is_closed or nearest(name, sorted(declared)) is not None:
        meant = did_you_mean(name, sorted(declared))
        message = f"`input.{name}` is read, but the schema of the input has no {name!r}{meant}"
        yield problem(path, "unknown_input", message)


def _declared(schema: Any) -> frozenset[str] | None:
    """The fields that a schema names; None: there may be others that it describes."""
    if schema is None or schema is False:
        return frozenset()
    if not isinstance(schema, dict) or any(part in schema for part in _OPEN):
        return None
    if any(schema.get(part, False) is not False for part in _OPEN_UNLESS_FALSE):
        return None
    named = schema.get("properties", {})
    required = schema.get("required", [])
    if not isinstance(named, dict) or not isinstance(required, list):
        return None  # reported as a problem
    return frozenset(map(str, [*named, *required]))


# --- expressions ----------------------------------------------------------------------------------


def sources(definition: Definition) -> Iterator[tuple[str, Any]]:
    """Every expression that may read the state, with its path."""
    for node_id, node in definition.nodes.items():
        yield from ((f"nodes.{node_id}.{path}", source) for path, source in _of_node(node))
    for number, transition in enumerate(definition.transitions):
        for field in ("condition", "foreach", "spawn_count"):
            yield f"transitions[{number}].{field}", getattr(transition, field)
        rule = transition.synchronization
        for place, merge in enumerate(() if rule is None else rule.merges):
            path = name_resolution.merge_path(number, transition, place)
            yield from ((f"{path}.source", merge.source), (f"{path}.key", merge.key))
    for field, source in (definition.output or {}).items():
        yield f"output.{field}", source


def _of_node(node: NodeDefinition) -> Iterator[tuple[str, Any]]:
    for name, mapping in (("input", node.input), ("output", node.output)):
        yield from ((f"{name}.{field}", source) for field, source in (mapping or {}).items())
    if node.signal is not None:
        yield "signal.run", node.signal.run
        for inner, source in name_resolution.payload_expressions(node.signal):
            yield f"signal.payload{inner}", source
    for place, route in enumerate(node.on_error):
        yield f"on_error[{place}].match", route.match


def places(node: syntax.Node) -> Iterator[Path]:
    """The places that an expression names, apart from those in the variables of loops."""
    return _paths(node, frozenset())


def place_of(node: syntax.Node) -> Path | None:
    """The place that an expression names."""
    names: list[str] = []
    while isinstance(node, syntax.Select):
        names.append(node.field)
        node = node.operand
    return (node.name, *reversed(names)) if isinstance(node, syntax.Name) else None


def _paths(node: syntax.Node, bound: frozenset[str]) -> Iterator[Path]:
    """The places that an expression names, apart from those in the variables of loops."""
    match node:
        case syntax.Name() | syntax.Select():
            path = place_of(node)
            if path is not None and path[0] not in bound:
                yield path
            elif path is None and isinstance(node, syntax.Select):
                yield from _paths(node.operand, bound)
        case syntax.CallNode():
            for one in node.arguments:
                yield from _paths(one, bound)
        case syntax.ListNode() | syntax.MapNode():
            for one in node.items:
                yield from _paths(one, bound)
        case syntax.Loop():
            yield from _paths(node.over, bound)
            yield from _paths(node.step, bound | {node.variable, node.total})
        case _:
            pass


def _tested(node: syntax.Node) -> Iterator[Path]:
    """The places that an expression tests for with `has`."""
    match node:
        case syntax.Select():
            path = place_of(node)
            if node.is_test and path is not None:
                yield path
            yield from _tested(node.operand)
        case syntax.CallNode():
            for one in node.arguments:
                yield from _tested(one)
        case syntax.ListNode() | syntax.MapNode():
            for one in node.items:
                yield from _tested(one)
        case syntax.Loop():
            yield from _tested(node.over)
            yield from _tested(node.step)
        case _:
            pass
