"""Figures of a run's graph at one moment: tokens by node, and what came by each transition."""

from collections import Counter
from dataclasses import dataclass

from rota.core.workflow.definition.model import Definition, Graph, Join
from rota.engine.runs.counter_history import (
    ARRIVED,
    BRANCHES,
    CAME,
    CANCELLED,
    FAILED,
    FIRST,
    JOINED,
    LAST,
    NEEDED,
    NOT_TAKEN,
    OPEN,
    SCOPES,
    TOKENS,
    CounterSnapshot,
)


@dataclass
class JoinFigures:
    """The progress of a join, summed over all scopes that it has to join so far."""

    arrived: int = 0
    needed: int = 0
    scopes: int = 0
    fired: int = 0
    cancelled: int = 0  # branches
    failed: int = 0


@dataclass
class TransitionFigures:
    id: str
    source: str
    target: str
    taken: int
    not_taken: int
    tokens: Counter[str]
    join: JoinFigures | None


def tokens_by_node(definition: Definition, moment: CounterSnapshot) -> dict[str, Counter[str]]:
    """Return the tokens of each node by state; a node that the run has not reached has none."""
    return {node: moment.counts(TOKENS, node) for node in definition.nodes}


def span_of(node: str, moment: CounterSnapshot) -> tuple[int | None, int | None]:
    """Return when a node's first token came, and its last one ended; None: not yet."""
    first_ms = moment.get(FIRST, node)
    if not first_ms:
        return None, None
    return first_ms, None if moment.get(OPEN, node) else moment.get(LAST, node)


def transitions(definition: Definition, moment: CounterSnapshot) -> list[TransitionFigures]:
    graph = Graph(definition)
    came = _came_by(graph, moment)
    found = []
    for number, transition in enumerate(definition.transitions):
        rule, name = transition.synchronization, graph.name_of(number)
        tokens = came.get(number, Counter())
        join = None
        if rule is not None:
            joins = graph.joins_of(rule.joins_transition)
            join = _join(next(one for one in joins if one.node == transition.to), moment)
        found.append(
            TransitionFigures(
                id=name,
                source=transition.from_,
                target=transition.to,
                taken=tokens.total() if join is None else moment.get(ARRIVED, transition.from_),
                not_taken=moment.get(NOT_TAKEN, name),
                tokens=tokens,
                join=join,
            )
        )
    return found


def _came_by(graph: Graph, moment: CounterSnapshot) -> dict[int, Counter[str]]:
    """Return the tokens that came by each transition, by state.

    A branch of a shared group is counted under the group's name. Its source and target identify the
    transition.
    """
    by_name: dict[str, int] = {}
    by_group: dict[tuple[str, str, str], int] = {}
    for number, transition in enumerate(graph.definition.transitions):
        by_name.setdefault(graph.name_of(number), number)
        key = graph.scope_key(number)
        if key is not None:
            by_group.setdefault((key, transition.from_, transition.to), number)
    came: dict[int, Counter[str]] = {}
    for (via, source, node, state), count in moment.under(CAME):
        found = by_group.get((via, source, node), by_name.get(via))
        if found is not None:
            came.setdefault(found, Counter())[state] += count
    return came


def _needed(join: Join, moment: CounterSnapshot) -> int:
    """Return how many branches a join needs of all its scopes together."""
    key = join.rule.joins_transition
    match join.rule.needed:
        case None:
            return moment.get(BRANCHES, key)
        case int() as needed:
            return moment.get(SCOPES, key) * needed
        case _:
            return moment.get(NEEDED, key, join.node)


def _join(join: Join, moment: CounterSnapshot) -> JoinFigures:
    key = join.rule.joins_transition
    scopes = moment.get(SCOPES, key)
    return JoinFigures(
        arrived=moment.get(JOINED, key, join.node),
        needed=_needed(join, moment),
        scopes=scopes,
        fired=sum(
            count
            for (via, _, node, _), count in moment.under(CAME)
            if via == join.name and node == join.node
        ),
        cancelled=moment.get(CANCELLED, key),
        failed=moment.get(FAILED, key),
    )
