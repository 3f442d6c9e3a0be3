"""What does a journal tell? Where a run's tokens are and were, and how its graph was gone through.

Pure functions over journal entries: everything that was decided is in them.
"""

from collections import Counter
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import Any

from rota.core.workflow.decisions import (
    CloseScope,
    Considered,
    CreateToken,
    DispatchTask,
    OpenScope,
    SetBranchState,
    SetRunState,
    SetTokenState,
    StartChild,
)
from rota.core.workflow.definition import Definition, Graph, Join
from rota.core.workflow.records import JournalEntry
from rota.core.workflow.tokens import BranchState, Place, TokenState

ENDED = frozenset(
    {TokenState.COMPLETED, TokenState.FAILED, TokenState.TIMED_OUT, TokenState.CANCELLED}
)


@dataclass
class TokenTrace:
    """A token, from its making to its end."""

    number: int
    node: str
    parent: int | None
    stack: tuple[Place, ...]
    via: str | None
    compensates: int | None
    created_at_ms: int
    state: TokenState = TokenState.PENDING
    finished_at_ms: int | None = None
    error: dict[str, Any] | None = None
    task: int | None = None
    child: int | None = None
    has_arrived: bool = False  # it has waited at a join


@dataclass
class ScopeTrace:
    """A scope: which fan-out opened it, and how many of its branches arrived where."""

    number: int
    key: str
    node: str
    total: int
    arrived: Counter[str] = field(default_factory=Counter)  # by the node their join leads to
    cancelled: int = 0  # branches
    failed: int = 0
    is_closed: bool = False

    def count(self, decision: SetBranchState) -> None:
        if decision.state is BranchState.ARRIVED and decision.join is not None:
            self.arrived[decision.join] += 1
        elif decision.state is BranchState.CANCELLED:
            self.cancelled += 1
        elif decision.state is BranchState.FAILED:
            self.failed += 1


class Trace:
    """A journal, read from its beginning."""

    def __init__(self, entries: Iterable[JournalEntry] = ()) -> None:
        self.tokens: dict[int, TokenTrace] = {}
        self.scopes: dict[int, ScopeTrace] = {}
        self.not_taken: Counter[str] = Counter()  # by transition
        self.run_state = "running"
        self.number = 0  # of the entry that was read last
        self.at_ms: int | None = None
        self.executing: Container[int] = ()  # dispatched tokens that have a worker
        for entry in entries:
            self.read(entry)

    def read(self, entry: JournalEntry) -> None:
        for decision in entry.decisions:
            self._take(decision, entry)
        self.number, self.at_ms = entry.number, entry.at_ms

    def state(self, token: TokenTrace) -> TokenState:
        if token.state is TokenState.DISPATCHED and token.number in self.executing:
            return TokenState.EXECUTING
        return token.state

    def _take(self, decision: Any, entry: JournalEntry) -> None:
        match decision:
            case CreateToken():
                self.tokens[decision.number] = TokenTrace(
                    number=decision.number,
                    node=decision.node,
                    parent=decision.parent,
                    stack=decision.stack,
                    via=decision.via,
                    compensates=decision.compensates,
                    created_at_ms=entry.at_ms,
                )
            case SetTokenState():
                self._set_state(decision, entry.at_ms)
            case DispatchTask():
                self.tokens[decision.number].task = entry.links.get(str(decision.number))
            case StartChild():
                made = entry.links.get(str(decision.number))
                self.tokens[decision.number].child = made or None  # 0: it could not begin
            case OpenScope():
                self.scopes[decision.number] = ScopeTrace(
                    decision.number, decision.key, decision.node, decision.total
                )
            case SetBranchState():
                self.scopes[decision.scope].count(decision)
            case CloseScope():
                self.scopes[decision.number].is_closed = True
            case Considered(taken=False):
                self.not_taken[decision.transition] += 1
            case SetRunState():
                self.run_state = decision.state
            case _:
                pass  # says nothing about where the run is

    def _set_state(self, decision: SetTokenState, at_ms: int) -> None:
        token = self.tokens[decision.number]
        token.state, token.error = decision.state, decision.error
        if decision.state in ENDED:
            token.finished_at_ms = at_ms
        elif decision.state is TokenState.WAITING_FOR_SIBLINGS:
            token.has_arrived = True

    def path_id(self, token: TokenTrace) -> str:
        """`root`, then `.node.index` for each open scope."""
        places = [f".{self.scopes[scope].node}.{index}" for scope, index in token.stack]
        return "root" + "".join(places)


@dataclass
class JoinFigures:
    """How far a join is, over all scopes that it has to join so far."""

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


def tokens_by_node(definition: Definition, trace: Trace) -> dict[str, Counter[str]]:
    """Tokens of each node by their state; of nodes the run has not been to, none."""
    found: dict[str, Counter[str]] = {node: Counter() for node in definition.nodes}
    for token in trace.tokens.values():
        found[token.node][trace.state(token).value] += 1
    return found


def spans_by_node(trace: Trace) -> dict[str, tuple[int, int | None]]:
    """When each node was first begun, and last done with; None while something is under way."""
    found: dict[str, tuple[int, int | None]] = {}
    for token in trace.tokens.values():
        first_ms, last_ms = found.get(token.node, (token.created_at_ms, 0))
        ended_ms = token.finished_at_ms
        is_open = last_ms is None or ended_ms is None
        found[token.node] = (
            min(first_ms, token.created_at_ms),
            None if is_open else max(last_ms or 0, ended_ms or 0),
        )
    return found


def transitions(definition: Definition, trace: Trace) -> list[TransitionFigures]:
    graph = Graph(definition)
    came = _came_by(graph, trace)
    arrivals = Counter(token.node for token in trace.tokens.values() if token.has_arrived)
    found = []
    for number, transition in enumerate(definition.transitions):
        rule, name = transition.synchronization, graph.name_of(number)
        tokens = came.get(number, Counter())
        join = None
        if rule is not None:
            joins = graph.joins_of(rule.joins_transition)
            join = _join(next(one for one in joins if one.node == transition.to), trace)
        taken = tokens.total() if join is None else arrivals[transition.from_]
        found.append(
            TransitionFigures(
                id=name,
                source=transition.from_,
                target=transition.to,
                taken=taken,
                not_taken=trace.not_taken[name],
                tokens=tokens,
                join=join,
            )
        )
    return found


def _came_by(graph: Graph, trace: Trace) -> dict[int, Counter[str]]:
    """The tokens that came by each transition, by state.

    A branch of a shared group is noted under the group's name; its nodes tell the transition.
    """
    by_name: dict[str, int] = {}
    by_group: dict[tuple[str, str, str], int] = {}
    for number, transition in enumerate(graph.definition.transitions):
        by_name.setdefault(graph.name_of(number), number)
        key = graph.scope_key(number)
        if key is not None:
            by_group.setdefault((key, transition.from_, transition.to), number)
    came: dict[int, Counter[str]] = {}
    for token in trace.tokens.values():
        if token.via is None:
            continue
        source = trace.scopes[token.stack[-1][0]].node if token.stack else ""
        found = by_group.get((token.via, source, token.node), by_name.get(token.via))
        if found is not None:
            came.setdefault(found, Counter())[trace.state(token).value] += 1
    return came


def _join(join: Join, trace: Trace) -> JoinFigures:
    figures = JoinFigures()
    for scope in trace.scopes.values():
        if scope.key == join.rule.joins_transition:
            figures.scopes += 1
            figures.arrived += scope.arrived[join.node]
            figures.needed += join.rule.needed or scope.total
            figures.cancelled += scope.cancelled
            figures.failed += scope.failed
    figures.fired = sum(
        1 for token in trace.tokens.values() if token.via == join.name and token.node == join.node
    )
    return figures
