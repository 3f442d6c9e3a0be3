"""What is wrong with a definition? Everything at once, each problem with its place.

A definition that passes cannot hang: joins are of scopes that can be open where they stand, every
cycle has a limit, and every name an expression uses is there when it is evaluated.
"""

from collections.abc import Iterator
from typing import Any

from rota.core.workflow import flow, names, schemas
from rota.core.workflow.definition import Definition, Graph
from rota.core.workflow.problems import Problem, problem

TARGETS = ("state.", "output.")
_KINDS = ("task", "workflow", "wait_for", "approval", "sleep_ms", "end")


def problems_of(definition: Definition) -> list[Problem]:
    """All problems; none when the definition may be run."""
    graph = Graph(definition)
    unknown = list(_references(definition))
    inside = flow.scopes_by_node(graph)
    found = [
        *unknown,
        *_kinds(definition),
        *_schemas(definition),
        *_identifiers(definition),
        *_merges(definition),
        *flow.quorums(graph),
        *flow.cycles(definition),
        *flow.own_insides(graph, inside),
    ]
    if not unknown:  # where a name is wrong, what can be reached is not known
        found += flow.unreachable(definition)
        found += flow.joins(graph, inside)
    found += names.expressions(definition, None if unknown else inside)
    return found


def _references(definition: Definition) -> Iterator[Problem]:
    nodes = definition.nodes
    if definition.initial_node not in nodes:
        yield problem("initial_node", "unknown_node", f"no node {definition.initial_node!r}")
    for number, transition in enumerate(definition.transitions):
        for field, name in (("from", transition.from_), ("to", transition.to)):
            if name not in nodes:
                yield problem(f"transitions[{number}].{field}", "unknown_node", f"no node {name!r}")
    for node_id, node in nodes.items():
        for place, route in enumerate(node.on_error):
            if route.to not in nodes:
                path = f"nodes.{node_id}.on_error[{place}].to"
                yield problem(path, "unknown_node", f"no node {route.to!r}")


def _kinds(definition: Definition) -> Iterator[Problem]:
    for node_id, node in definition.nodes.items():
        path = f"nodes.{node_id}"
        values = {name: getattr(node, name) for name in _KINDS}
        kinds = [name for name, value in values.items() if value is not None and value is not False]
        if len(kinds) > 1:
            yield problem(path, "several_kinds", f"a node is one of {', '.join(kinds)}")
        if node.kind == "end" and any(one.from_ == node_id for one in definition.transitions):
            yield problem(path, "leaves_the_end", "nothing can follow an end")
        yield from _targets(f"{path}.output", node.output)


def _targets(
    path: str, mapping: dict[str, Any] | None, *, field: str | None = None
) -> Iterator[Problem]:
    for target in mapping or {}:
        if not target.startswith(TARGETS) or "" in target.split("."):
            message = f"{target!r} is neither in state nor in output"
            yield problem(f"{path}{field or f'.{target}'}", "bad_target", message)


def _schemas(definition: Definition) -> Iterator[Problem]:
    places: list[tuple[str, Any]] = [
        ("input", definition.input),
        ("state", definition.state),
        ("output_schema", definition.output_schema),
    ]
    places += [
        (f"nodes.{node_id}.output_schema", node.output_schema)
        for node_id, node in definition.nodes.items()
    ]
    for path, schema in places:
        reason = None if schema is None else schemas.schema_problem(schema)
        if reason is not None:
            yield problem(path, "bad_schema", reason)


def _identifiers(definition: Definition) -> Iterator[Problem]:
    seen: dict[str, int] = {}
    groups: dict[str, str] = {}
    identifiers = {one.id for one in definition.transitions} - {None}
    for number, transition in enumerate(definition.transitions):
        path = f"transitions[{number}]"
        if transition.id is not None:
            if transition.id in seen:
                first = seen[transition.id]
                message = f"{transition.id!r} is the id of transitions[{first}] already"
                yield problem(f"{path}.id", "duplicate_id", message)
            seen.setdefault(transition.id, number)
        if transition.sibling_group is not None:
            owner = groups.setdefault(transition.sibling_group, transition.from_)
            if owner != transition.from_:
                message = f"group {transition.sibling_group!r} is of node {owner!r} already"
                yield problem(f"{path}.sibling_group", "split_group", message)
        if transition.sibling_group in identifiers:
            message = f"{transition.sibling_group!r} is the id of a transition"
            yield problem(f"{path}.sibling_group", "duplicate_id", message)
        if transition.foreach is not None and transition.spawn_count is not None:
            yield problem(path, "two_fan_outs", "foreach and spawn_count exclude each other")
        fans_out = transition.foreach is not None or transition.spawn_count is not None
        if transition.synchronization is not None and (fans_out or transition.sibling_group):
            yield problem(path, "join_and_fan_out", "a transition either joins or fans out")


def _merges(definition: Definition) -> Iterator[Problem]:
    for number, transition in enumerate(definition.transitions):
        rule = transition.synchronization
        for place, merge in enumerate(rule.merges if rule is not None else ()):
            path = names.merge_path(number, transition, place)
            yield from _targets(path, {merge.target: None}, field=".target")
            if merge.key is not None and merge.strategy != "keyed":
                yield problem(f"{path}.key", "needless_key", "only a keyed merge has a key")
