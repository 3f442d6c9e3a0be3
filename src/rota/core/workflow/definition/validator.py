"""The validator: every problem of a definition at once, each with its place.

A valid definition cannot hang: each join is of a scope that can be open there, every cycle has a
limit, and every name that an expression uses exists when it is evaluated.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from rota.core.flows.model import check_limits
from rota.core.workflow.definition import name_resolution, reachability, schemas, state_types
from rota.core.workflow.definition.model import (
    Definition,
    DefinitionProblem,
    Graph,
    NodeDefinition,
    WaitFor,
    problem,
)
from rota.errors import Invalid, did_you_mean, nearest

TARGETS = ("state.", "output.")


def problems_of(definition: Definition) -> list[DefinitionProblem]:
    """All problems; none when the definition may be run."""
    graph = Graph(definition)
    unknown = list(_references(definition))
    inside = reachability.scopes_by_node(graph)
    found = [
        *unknown,
        *_kinds(definition),
        *_schemas(definition),
        *_identifiers(definition),
        *_merges(definition),
        *reachability.quorums(graph),
        *reachability.cycles(definition),
        *reachability.own_insides(graph, inside),
    ]
    if not unknown:  # with an unknown name, reachability is not known
        found += reachability.unreachable(definition)
    known = None if unknown else inside
    found += reachability.joins(graph, known)
    found += name_resolution.expressions(definition, known)
    found += state_types.problems(definition)
    return found


def _references(definition: Definition) -> Iterator[DefinitionProblem]:
    nodes = definition.nodes
    if definition.initial_node not in nodes:
        yield problem("initial_node", "unknown_node", _no_node(definition.initial_node, nodes))
    for number, transition in enumerate(definition.transitions):
        for field, name in (("from", transition.from_), ("to", transition.to)):
            if name not in nodes:
                path = f"transitions[{number}].{field}"
                yield problem(path, "unknown_node", _no_node(name, nodes))
    for node_id, node in nodes.items():
        for place, route in enumerate(node.on_error):
            if route.to not in nodes:
                path = f"nodes.{node_id}.on_error[{place}].to"
                yield problem(path, "unknown_node", _no_node(route.to, nodes))


def _no_node(name: str, nodes: Iterable[str]) -> str:
    return f"no node {name!r}{did_you_mean(name, nodes)}"


def _kinds(definition: Definition) -> Iterator[DefinitionProblem]:
    for node_id, node in definition.nodes.items():
        path = f"nodes.{node_id}"
        kinds = list(node.kinds)
        if len(kinds) > 1:
            *others, last = [f"`{kind}`" for kind in kinds]
            both = "both " if len(kinds) == 2 else ""
            message = f"node {node_id!r} has {both}{', '.join(others)} and {last}; keep one"
            yield problem(path, "several_kinds", message)
        if node.kind == "end" and any(one.from_ == node_id for one in definition.transitions):
            yield problem(
                path, "leaves_the_end", "a node with `end` cannot have outgoing transitions"
            )
        if node.wait_for is not None:
            yield from _waits(f"{path}.wait_for", node.wait_for)
        if node.signal is not None and node.signal.name[0] in "\"'":
            message = "a signal's name is written without quotes; it is not a CEL expression"
            yield problem(f"{path}.signal.name", "quoted_name", message)
        yield from _targets(f"{path}.output", node.output)
        yield from _limits(path, node)


def _waits(path: str, wait: WaitFor) -> Iterator[DefinitionProblem]:
    if wait.until is None:
        return
    if wait.repeat is False:
        message = "`until` needs `repeat`"
        yield problem(f"{path}.until", "bad_wait", message)
    if wait.until.event == wait.event:
        message = f"{wait.event!r} cannot both be received and end the wait"
        yield problem(f"{path}.until.event", "bad_wait", message)


def _limits(path: str, node: NodeDefinition) -> Iterator[DefinitionProblem]:
    """Limits that no task can have, or that a node without a task has."""
    for name in ("concurrency", "rate", "fair_key"):
        if getattr(node, name) is not None and node.kind != "task":
            yield problem(f"{path}.{name}", "limit_without_task", "only a task can be limited")
    try:
        check_limits(node.concurrency, node.rate)
    except Invalid as error:
        yield problem(path, "bad_limit", error.detail)


def _targets(
    path: str, mapping: dict[str, Any] | None, *, field: str | None = None
) -> Iterator[DefinitionProblem]:
    for target in mapping or {}:
        if not target.startswith(TARGETS) or "" in target.split("."):
            place, _, rest = target.partition(".")
            meant = nearest(place, ("state", "output")) if rest else None
            hint = f"did you mean '{meant}.{rest}'?" if meant else "write `state.…` or `output.…`"
            message = f"{target!r} is neither in state nor in output; {hint}"
            yield problem(f"{path}{field or f'.{target}'}", "bad_target", message)


def _schemas(definition: Definition) -> Iterator[DefinitionProblem]:
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
        found = None if schema is None else schemas.schema_problem(schema)
        if found is not None:
            yield problem(path, found.code, found.message)


def _identifiers(definition: Definition) -> Iterator[DefinitionProblem]:
    seen: dict[str, int] = {}
    groups: dict[str, str] = {}
    identifiers = {one.id for one in definition.transitions} - {None}
    for number, transition in enumerate(definition.transitions):
        path = f"transitions[{number}]"
        if transition.id is not None:
            if transition.id in seen:
                first = seen[transition.id]
                message = f"{transition.id!r} is already the id of transitions[{first}]"
                yield problem(f"{path}.id", "duplicate_id", message)
            seen.setdefault(transition.id, number)
        if transition.sibling_group is not None:
            owner = groups.setdefault(transition.sibling_group, transition.from_)
            if owner != transition.from_:
                message = f"group {transition.sibling_group!r} already belongs to node {owner!r}"
                yield problem(f"{path}.sibling_group", "split_group", message)
        if transition.sibling_group in identifiers:
            message = f"{transition.sibling_group!r} is the id of a transition"
            yield problem(f"{path}.sibling_group", "duplicate_id", message)
        if transition.foreach is not None and transition.spawn_count is not None:
            yield problem(path, "two_fan_outs", "foreach and spawn_count cannot be combined")
        fans_out = transition.foreach is not None or transition.spawn_count is not None
        if transition.open is not None and (transition.foreach is None or transition.sibling_group):
            message = "only a foreach without a sibling_group takes further branches"
            yield problem(f"{path}.open", "open_without_foreach", message)
        if transition.synchronization is not None and (fans_out or transition.sibling_group):
            yield problem(path, "join_and_fan_out", "a transition either joins or fans out")


def _merges(definition: Definition) -> Iterator[DefinitionProblem]:
    for number, transition in enumerate(definition.transitions):
        rule = transition.synchronization
        for place, merge in enumerate(rule.merges if rule is not None else ()):
            path = name_resolution.merge_path(number, transition, place)
            yield from _targets(path, {merge.target: None}, field=".target")
            if merge.key is not None and merge.strategy != "keyed":
                yield problem(f"{path}.key", "needless_key", "only a keyed merge has a key")
