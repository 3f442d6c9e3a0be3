"""Checks that every expression parses and uses only names that exist where it runs."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from rota.core.workflow.definition.expressions import NAMES, ExpressionError, compiled
from rota.core.workflow.definition.model import (
    Definition,
    DefinitionProblem,
    Graph,
    NodeDefinition,
    OutgoingSignal,
    Transition,
    problem,
)
from rota.core.workflow.definition.reachability import Stack
from rota.errors import did_you_mean

EVERYWHERE = frozenset({"input", "state", "output", "nodes", "run"})
_BRANCH = frozenset({"branch"})
_UNDECLARED = re.compile(r"undeclared reference to '([^']*)'")
# Words with the punctuation of prose, addresses and names, and nothing that only CEL has.
_PLAIN_TEXT = re.compile(r"[^\W_][\w\s.,:;!?'/@#%&-]*")
# The same with names inside, as other template languages have them: `Dear {name}`.
_TEMPLATE = re.compile(r"(?=[^{]*\w[\s,:][^{]*\{)[^\W_][\w\s.,:;!?/@#%&${}-]*")
# What the parser would have taken: every beginning of an expression.
_EXPECTED = re.compile(r" expecting \{.*\}")


def expressions(
    definition: Definition, inside: dict[str, set[Stack]] | None
) -> Iterator[DefinitionProblem]:
    """Problems of all expressions; without `inside`, any place may be in a branch."""

    def names_at(node_id: str) -> frozenset[str]:
        is_in_branch = inside is None or any(inside.get(node_id, ()))
        return EVERYWHERE | _BRANCH if is_in_branch else EVERYWHERE

    for node_id, node in definition.nodes.items():
        yield from _of_node(f"nodes.{node_id}", node, names_at(node_id))
    openers = _openers(definition)
    for number, transition in enumerate(definition.transitions):
        yield from _of_transition(number, transition, names_at(transition.from_))
        rule = transition.synchronization
        if rule is not None and rule.joins_transition in openers:
            path = f"transitions[{number}].synchronization.wait_for.m_of_n"
            yield from _check(path, rule.needed, names_at(openers[rule.joins_transition]))
    for field, source in (definition.output or {}).items():
        yield from _check(f"output.{field}", source, EVERYWHERE)


def _openers(definition: Definition) -> dict[str, str]:
    """The node at which each scope opens, where its quorum is evaluated."""
    graph = Graph(definition)
    return {
        key: transition.from_
        for number, transition in enumerate(definition.transitions)
        if (key := graph.scope_key(number)) is not None
    }


def _of_node(path: str, node: NodeDefinition, names: frozenset[str]) -> Iterator[DefinitionProblem]:
    for field, source in (node.input or {}).items():
        yield from _check(f"{path}.input.{field}", source, names)
    for target, source in (node.output or {}).items():
        yield from _check(f"{path}.output.{target}", source, names | {"result"})
    if node.signal is not None:
        yield from _check(f"{path}.signal.run", node.signal.run, names)
        for inner, source in payload_expressions(node.signal):
            yield from _check(f"{path}.signal.payload{inner}", source, names)
    for place, route in enumerate(node.on_error):
        yield from _check(f"{path}.on_error[{place}].match", route.match, names | {"error"})


def payload_expressions(signal: OutgoingSignal) -> list[tuple[str, Any]]:
    """The expressions of a payload, each with its path: the whole, or those of its fields."""
    if isinstance(signal.payload, dict):
        return [(f".{field}", source) for field, source in signal.payload.items()]
    return [("", signal.payload)]


def _of_transition(
    number: int, transition: Transition, names: frozenset[str]
) -> Iterator[DefinitionProblem]:
    for field in ("condition", "foreach", "spawn_count"):
        yield from _check(f"transitions[{number}].{field}", getattr(transition, field), names)
    rule = transition.synchronization
    for place, merge in enumerate(rule.merges if rule is not None else ()):
        path = merge_path(number, transition, place)
        yield from _check(f"{path}.source", merge.source, EVERYWHERE | _BRANCH)
        yield from _check(f"{path}.key", merge.key, EVERYWHERE | _BRANCH)


def merge_path(number: int, transition: Transition, place: int) -> str:
    """The path of a merge, which is written by itself or in a list."""
    rule = transition.synchronization
    path = f"transitions[{number}].synchronization.merge"
    is_list = rule is not None and isinstance(rule.merge, tuple)
    return f"{path}[{place}]" if is_list else path


def _check(path: str, source: Any, names: frozenset[str]) -> Iterator[DefinitionProblem]:
    if not isinstance(source, str):
        return
    try:
        expression = compiled(source)
    except ExpressionError as error:
        yield _uncompiled(path, source, error, names)
        return
    for name in sorted(expression.names - names):
        there = ", ".join(one for one in NAMES if one in names)
        yield problem(path, "name_out_of_scope", f"{name!r} is not known here; there is {there}")


def _uncompiled(
    path: str, source: str, error: ExpressionError, names: frozenset[str]
) -> DefinitionProblem:
    """The problem of an expression that cannot be compiled, with what was probably meant."""
    unknown = _UNDECLARED.search(str(error))
    if unknown is None:
        code = error.code or "bad_expression"
        hint = _quoting(source) if code == "bad_expression" else None
        if hint is not None:
            return problem(path, code, f"`{source}` is not an expression; {hint}")
        return problem(path, code, f"{source!r}: {_in_short(error)}")
    name = unknown.group(1).partition(".")[0]
    known = [one for one in NAMES if one in names]
    meant = did_you_mean(name, known)
    hint = _quoting(source) if not meant else None
    there = f"; there is {', '.join(known)}" + (f"; {hint}" if hint else "")
    text = f"`{source}`: there is no name {name!r} here{meant or there}"
    return problem(path, error.code or "unknown_name", text)


def _in_short(error: ExpressionError) -> str:
    return _EXPECTED.sub("", str(error)).replace("mismatched input '<EOF>'", "it ends too early")


def _quoting(source: str) -> str | None:
    """How to write a text that stands where an expression belongs; None: it is hardly a text."""
    if _TEMPLATE.fullmatch(source):
        return "texts and names are put together with `+`, as in `\"'Dear ' + input.name\"`"
    if not _PLAIN_TEXT.fullmatch(source):
        return None
    literal = f"'{source}'" if "'" not in source else msgspec.json.encode(source).decode()
    return f"for the text write `{msgspec.json.encode(literal).decode()}`"
