"""What does a journal tell? Where a run's tokens are and were, and how its graph was gone through.

Pure functions over journal entries: everything that was decided is in them.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from rota.core.workflow.decisions import (
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
from rota.engine.films import Film, Moment

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
    """A scope: which fan-out opened it, where, and into how many branches."""

    number: int
    key: str
    node: str
    total: int


# The names of figures in the film of a run. What stands behind the first part:
TOKENS = "tokens"  # node, state: how many are there
CAME = "came"  # transition or group, from, to, state: how many came by it
ARRIVED = "arrived"  # node: tokens that waited there for their siblings
OPEN = "open"  # node: tokens that have not ended
FIRST = "first"  # node: when the first token came, in ms
LAST = "last"  # node: when the last one ended, in ms
NOT_TAKEN = "not taken"  # transition: how often it was considered in vain
SCOPES = "scopes"  # fan-out: how many scopes it opened
BRANCHES = "branches"  # fan-out: how many branches these have
JOINED = "joined"  # fan-out, node of the join: branches that arrived before it
CANCELLED = "cancelled"  # fan-out: branches
FAILED = "failed"  # fan-out: branches
RUN = "run"  # the state of the run, as a place in `Trace.run_states`


class Trace:
    """A journal, read from its beginning."""

    def __init__(self, entries: Iterable[JournalEntry] = ()) -> None:
        self.tokens: dict[int, TokenTrace] = {}
        self.scopes: dict[int, ScopeTrace] = {}
        self.film = Film()
        self.run_states = ["running"]  # all it has been in, by the number that stands in the film
        self.number = 0  # of the entry that was read last
        self.executing: Collection[int] = ()  # dispatched tokens that have a worker
        for entry in entries:
            self.read(entry)

    def read(self, entry: JournalEntry) -> None:
        for decision in entry.decisions:
            self._take(decision, entry)
        self.number = entry.number
        self.film.cut(entry.number, entry.at_ms)

    def state(self, token: TokenTrace) -> TokenState:
        if token.state is TokenState.DISPATCHED and token.number in self.executing:
            return TokenState.EXECUTING
        return token.state

    def moment(self, at: int | None = None) -> Moment:
        """The figures of the graph after entry `at`; None: as they are, with who works."""
        if at is not None and at < self.number:
            return self.film.at(at)
        now = self.film.at(self.number)
        for number in self.executing:
            token = self.tokens.get(number)
            if token is not None and token.state is TokenState.DISPATCHED:
                for by, state in ((-1, TokenState.DISPATCHED), (1, TokenState.EXECUTING)):
                    now.add(by, TOKENS, token.node, state.value)
                    now.add(by, CAME, *self._way(token), state.value)
        return now

    def run_state(self, moment: Moment) -> str:
        return self.run_states[moment.get(RUN)]

    def _take(self, decision: Any, entry: JournalEntry) -> None:
        match decision:
            case CreateToken():
                self._create(decision, entry.at_ms)
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
                self.film.add(1, SCOPES, decision.key)
                self.film.add(decision.total, BRANCHES, decision.key)
            case SetBranchState():
                self._set_branch(decision)
            case Considered(taken=False):
                self.film.add(1, NOT_TAKEN, decision.transition)
            case SetRunState():
                self.run_states.append(decision.state)
                self.film.put(len(self.run_states) - 1, RUN)
            case _:
                pass  # says nothing about where the run is

    def _create(self, decision: CreateToken, at_ms: int) -> None:
        token = self.tokens[decision.number] = TokenTrace(
            number=decision.number,
            node=decision.node,
            parent=decision.parent,
            stack=decision.stack,
            via=decision.via,
            compensates=decision.compensates,
            created_at_ms=at_ms,
        )
        self._count(token, 1)
        self.film.add(1, OPEN, token.node)
        if not self.film.get(FIRST, token.node):
            self.film.put(at_ms, FIRST, token.node)

    def _set_state(self, decision: SetTokenState, at_ms: int) -> None:
        token = self.tokens[decision.number]
        self._count(token, -1)
        token.state, token.error = decision.state, decision.error
        self._count(token, 1)
        if decision.state in ENDED:
            if token.finished_at_ms is None:
                self.film.add(-1, OPEN, token.node)
            token.finished_at_ms = at_ms
            self.film.put(max(at_ms, self.film.get(LAST, token.node)), LAST, token.node)
        elif decision.state is TokenState.WAITING_FOR_SIBLINGS and not token.has_arrived:
            token.has_arrived = True
            self.film.add(1, ARRIVED, token.node)

    def _set_branch(self, decision: SetBranchState) -> None:
        key = self.scopes[decision.scope].key
        if decision.state is BranchState.ARRIVED and decision.join is not None:
            self.film.add(1, JOINED, key, decision.join)
        elif decision.state is BranchState.CANCELLED:
            self.film.add(1, CANCELLED, key)
        elif decision.state is BranchState.FAILED:
            self.film.add(1, FAILED, key)

    def _count(self, token: TokenTrace, by: int) -> None:
        self.film.add(by, TOKENS, token.node, token.state.value)
        self.film.add(by, CAME, *self._way(token), token.state.value)

    def _way(self, token: TokenTrace) -> tuple[str, str, str]:
        """By which transition or group, from where, to where."""
        source = self.scopes[token.stack[-1][0]].node if token.stack else ""
        return token.via or "", source, token.node

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


def tokens_by_node(definition: Definition, moment: Moment) -> dict[str, Counter[str]]:
    """Tokens of each node by their state; of nodes the run has not been to, none."""
    return {node: moment.counts(TOKENS, node) for node in definition.nodes}


def span_of(node: str, moment: Moment) -> tuple[int | None, int | None]:
    """When a node was first begun, and last done with; None while something is under way."""
    first_ms = moment.get(FIRST, node)
    if not first_ms:
        return None, None
    return first_ms, None if moment.get(OPEN, node) else moment.get(LAST, node)


def transitions(definition: Definition, moment: Moment) -> list[TransitionFigures]:
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


def _came_by(graph: Graph, moment: Moment) -> dict[int, Counter[str]]:
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
    for (via, source, node, state), count in moment.under(CAME):
        found = by_group.get((via, source, node), by_name.get(via))
        if found is not None:
            came.setdefault(found, Counter())[state] += count
    return came


def _join(join: Join, moment: Moment) -> JoinFigures:
    key = join.rule.joins_transition
    scopes = moment.get(SCOPES, key)
    return JoinFigures(
        arrived=moment.get(JOINED, key, join.node),
        needed=scopes * join.rule.needed if join.rule.needed else moment.get(BRANCHES, key),
        scopes=scopes,
        fired=sum(
            count
            for (via, _, node, _), count in moment.under(CAME)
            if via == join.name and node == join.node
        ),
        cancelled=moment.get(CANCELLED, key),
        failed=moment.get(FAILED, key),
    )
