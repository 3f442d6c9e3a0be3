"""Does every expression parse, and is every name it uses there where it is evaluated?"""

from collections.abc import Iterator
from typing import Any

from rota.core.workflow.definition import Definition, Node, Transition
from rota.core.workflow.expressions import NAMES, Expression, ExpressionError
from rota.core.workflow.flow import Stack
from rota.core.workflow.problems import Problem, problem

EVERYWHERE = frozenset({"input", "state", "output", "nodes"})
_BRANCH = frozenset({"branch"})


def expressions(definition: Definition, inside: dict[str, set[Stack]] | None) -> Iterator[Problem]:
    """Problems of all expressions; without `inside`, any place may be in a branch."""

    def names_at(node_id: str) -> frozenset[str]:
        is_in_branch = inside is None or any(inside.get(node_id, ()))
        return EVERYWHERE | _BRANCH if is_in_branch else EVERYWHERE

    for node_id, node in definition.nodes.items():
        yield from _of_node(f"nodes.{node_id}", node, names_at(node_id))
    for number, transition in enumerate(definition.transitions):
        yield from _of_transition(number, transition, names_at(transition.from_))
    for field, source in (definition.output or {}).items():
        yield from _check(f"output.{field}", source, EVERYWHERE)


def _of_node(path: str, node: Node, names: frozenset[str]) -> Iterator[Problem]:
    for field, source in (node.input or {}).items():
        yield from _check(f"{path}.input.{field}", source, names)
    for target, source in (node.output or {}).items():
        yield from _check(f"{path}.output.{target}", source, names | {"result"})
    for place, route in enumerate(node.on_error):
        yield from _check(f"{path}.on_error[{place}].match", route.match, names | {"error"})


def _of_transition(number: int, transition: Transition, names: frozenset[str]) -> Iterator[Problem]:
    for field in ("condition", "foreach", "spawn_count"):
        yield from _check(f"transitions[{number}].{field}", getattr(transition, field), names)
    rule = transition.synchronization
    for place, merge in enumerate(rule.merges if rule is not None else ()):
        path = merge_path(number, transition, place)
        yield from _check(f"{path}.source", merge.source, EVERYWHERE | _BRANCH)
        yield from _check(f"{path}.key", merge.key, EVERYWHERE | _BRANCH)


def merge_path(number: int, transition: Transition, place: int) -> str:
    """How a merge is written: one by itself, or in a list."""
    rule = transition.synchronization
    path = f"transitions[{number}].synchronization.merge"
    is_list = rule is not None and isinstance(rule.merge, tuple)
    return f"{path}[{place}]" if is_list else path


def _check(path: str, source: Any, names: frozenset[str]) -> Iterator[Problem]:
    if not isinstance(source, str):
        return
    try:
        expression = Expression(source)
    except ExpressionError as error:
        code = "unknown_name" if "undeclared reference" in str(error) else "bad_expression"
        yield problem(path, code, f"{source!r}: {error}")
        return
    for name in sorted(expression.names - names):
        there = ", ".join(one for one in NAMES if one in names)
        yield problem(path, "name_out_of_scope", f"{name!r} is not known here; there is {there}")
