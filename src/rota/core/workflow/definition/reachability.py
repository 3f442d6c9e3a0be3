"""Reachability analysis: which nodes a token can reach, with which scopes open.

Every join must be of a scope that can be open there, every cycle must have a limit, and no fan-out
may be reached again from inside its own branches: each round would nest deeper, and the limits of
loops, which count in each branch by itself, would never be met.
"""

from collections.abc import Iterator

from rota.core.workflow.definition.model import (
    Definition,
    DefinitionProblem,
    Graph,
    Synchronization,
    Transition,
    problem,
)
from rota.errors import did_you_mean

Stack = tuple[str, ...]  # the keys of the scopes that are open, from the outside in
MOST_STACKS = 64  # distinct stacks that are analysed for one node


def _edges(definition: Definition) -> dict[str, list[tuple[str, int | None]]]:
    """The successors of each node, with the number of the transition; None: an error route."""
    edges: dict[str, list[tuple[str, int | None]]] = {}
    for number, transition in enumerate(definition.transitions):
        edges.setdefault(transition.from_, []).append((transition.to, number))
    for node_id, node in definition.nodes.items():
        for route in node.on_error:
            edges.setdefault(node_id, []).append((route.to, None))
    return edges


def unreachable(definition: Definition) -> Iterator[DefinitionProblem]:
    edges = _edges(definition)
    reached, front = {definition.initial_node}, [definition.initial_node]
    while front:
        for node, _ in edges.get(front.pop(), ()):
            if node not in reached:
                reached.add(node)
                front.append(node)
    for node in definition.nodes:
        if node not in reached:
            message = f"no path leads from {definition.initial_node!r} to {node!r}"
            yield problem(f"nodes.{node}", "unreachable_node", message)


def scopes_by_node(graph: Graph) -> dict[str, set[Stack]]:
    """For each node, the stacks of open scopes with which a token may reach it."""
    definition = graph.definition
    edges = _edges(definition)
    inside: dict[str, set[Stack]] = {definition.initial_node: {()}}
    front: list[tuple[str, Stack]] = [(definition.initial_node, ())]
    while front:
        node, stack = front.pop()
        for end, number in edges.get(node, ()):
            after = stack if number is None else _after(graph, number, stack)
            known = inside.setdefault(end, set())
            if after is not None and after not in known and len(known) < MOST_STACKS:
                known.add(after)
                front.append((end, after))
    return inside


def _after(graph: Graph, number: int, stack: Stack) -> Stack | None:
    rule = graph.transition(number).synchronization
    if rule is not None:
        if rule.joins_transition not in stack:
            return None
        return stack[: stack.index(rule.joins_transition)]
    opened = graph.scope_key(number)
    if opened is None:
        return stack
    return None if opened in stack else (*stack, opened)


def own_insides(graph: Graph, inside: dict[str, set[Stack]]) -> Iterator[DefinitionProblem]:
    for number, transition in enumerate(graph.definition.transitions):
        key = graph.scope_key(number)
        if key is not None and any(key in stack for stack in inside.get(transition.from_, ())):
            message = f"a branch of {key!r} can reach this fan-out again before it is joined"
            yield problem(f"transitions[{number}]", "fan_out_in_itself", message)


def joins(graph: Graph, inside: dict[str, set[Stack]] | None) -> Iterator[DefinitionProblem]:
    """Joins of no fan-out, or out of its reach, and joins that differ; None: reach is not known."""
    definition = graph.definition
    keys = {graph.scope_key(number) for number in range(len(definition.transitions))}
    rules: dict[tuple[str, str], Synchronization] = {}
    for number, transition in enumerate(definition.transitions):
        rule = transition.synchronization
        if rule is None:
            continue
        path, key = f"transitions[{number}].synchronization", rule.joins_transition
        if key not in keys:
            known = sorted(one for one in keys if one is not None)
            message = f"no transition or sibling group {key!r} fans out{did_you_mean(key, known)}"
            yield problem(f"{path}.joins_transition", "unknown_fan_out", message)
            continue
        stacks = set() if inside is None else inside.get(transition.from_, set())
        if stacks and not any(key in stack for stack in stacks):
            message = f"no branch of {key!r} can reach {transition.from_!r}"
            yield problem(f"{path}.joins_transition", "join_out_of_reach", message)
        if rules.setdefault((key, transition.to), rule) != rule:
            message = f"another transition joins {key!r} before {transition.to!r} differently"
            yield problem(path, "different_joins", message)


def quorums(graph: Graph) -> Iterator[DefinitionProblem]:
    """Quorums that no number of arrivals can meet."""
    counts: dict[str, list[int | None]] = {}
    for number, transition in enumerate(graph.definition.transitions):
        key = graph.scope_key(number)
        if key is not None:
            counts.setdefault(key, []).append(_static_count(transition))
    for number, transition in enumerate(graph.definition.transitions):
        rule = transition.synchronization
        known = [] if rule is None else counts.get(rule.joins_transition, [])
        total = sum(count for count in known if count is not None)
        if rule is None or not isinstance(rule.needed, int) or None in known or not total:
            continue
        if rule.needed > total:
            path = f"transitions[{number}].synchronization.wait_for"
            key = rule.joins_transition
            message = f"{rule.needed} branches are needed, and {key!r} has at most {total}"
            yield problem(path, "quorum_too_high", message)


def _static_count(transition: Transition) -> int | None:
    if transition.foreach is not None or isinstance(transition.spawn_count, str):
        return None
    return 1 if transition.spawn_count is None else transition.spawn_count


def cycles(definition: Definition) -> Iterator[DefinitionProblem]:
    """Cycles without a limit, found by leaving out limited transitions."""
    following: dict[str, list[str]] = {}
    for start, ends in _edges(definition).items():
        for end, number in ends:
            if number is None or definition.transitions[number].max_iterations is None:
                following.setdefault(start, []).append(end)
    done: set[str] = set()
    for node in definition.nodes:
        way = _find_cycle(node, following, done)
        if way is not None:
            done.update(way)
            message = f"{' -> '.join(way)}: give one of its transitions max_iterations"
            yield problem(f"nodes.{way[0]}", "endless_cycle", message)


def _find_cycle(start: str, following: dict[str, list[str]], done: set[str]) -> list[str] | None:
    """The first cycle that can be reached; nodes that reach none are added to `done`."""
    if start in done:
        return None
    way = {start: iter(following.get(start, ()))}
    while way:
        node = next(reversed(way))
        for end in way[node]:
            if end in way:
                names = list(way)
                return [*names[names.index(end) :], end]
            if end not in done:
                way[end] = iter(following.get(end, ()))
                break
        else:
            del way[node]
            done.add(node)
    return None
