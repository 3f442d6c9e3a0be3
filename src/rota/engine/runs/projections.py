"""Projections of a run's journal: its tokens, scopes and transitions at any entry.

They are pure functions of the journal entries, which contain every decision.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, TypeVar

from rota.core.workflow.decisions import (
    CancelTask,
    CloseScope,
    Considered,
    CreateToken,
    DispatchTask,
    ExtendScope,
    OpenScope,
    SetBranchState,
    SetRunState,
    SetTokenState,
    StartChild,
)
from rota.core.workflow.events import ChildEnded, TaskEnded
from rota.core.workflow.functions.model import Operation
from rota.core.workflow.journal_words import JournalNames, Progress, numbers_in, token_name
from rota.core.workflow.records import JournalEntry
from rota.core.workflow.runtime.tokens import Place
from rota.core.workflow.states import RUN_ENDED, TOKEN_ENDED, BranchState, RunState, TokenState
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
    RUN,
    SCOPES,
    TOKENS,
    CounterHistory,
    CounterSnapshot,
)
from rota.store.database import Transaction
from rota.store.workflow.runs import NEWEST, RunStore

T = TypeVar("T")

MOST_CACHED = 6  # projections, of the runs that were viewed last
BY_RETRY = "retry"  # what a token came by that a retry of the run has made
UNSUCCESSFUL = TOKEN_ENDED - {TokenState.COMPLETED}


@dataclass
class TokenProjection:
    """A token, from its creation to its end."""

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
    way: tuple[str, str, str] = ("", "", "")  # the transition or group it came by, from, to
    has_arrived: bool = False  # it has waited at a join
    is_replaced: bool = False  # a retry of the run has started its node again
    operation: Operation | None = None  # of a function: its first entry
    items: int | None = None  # of a map, as the next
    items_ended: int = 0
    items_started: int = 0  # a task was made for them


@dataclass
class ScopeProjection:
    """A scope: the fan-out that opened it, its node, its branches, and its end."""

    number: int
    key: str
    node: str
    parent: int  # the token that fanned out
    total: int
    needed: dict[str, int]  # by the node of each join whose quorum is an expression
    takes_branches: bool
    opened_at: int  # the number of the journal's entry, as `closed_at`
    opened_at_ms: int
    closed_at: int | None = None
    closed_at_ms: int | None = None
    because: str | None = None  # why it was closed
    started: int = 0  # branches; they start in the order of their indexes
    # Branches that are neither waiting nor under way, by state.
    settled: Counter[BranchState] = field(default_factory=Counter)
    never_started: int = 0  # branches that were cancelled before they started
    arrived: Counter[str] = field(default_factory=Counter)  # by the node of the join

    def set_branch(self, decision: SetBranchState, *, had_failed: bool) -> None:
        """Count a branch in its new state."""
        if decision.state is BranchState.LIVE:
            self.started = max(self.started, decision.index + 1)
            self.settled[BranchState.FAILED] -= had_failed  # a retry lets it begin again
            return
        self.settled[decision.state] += 1
        self.never_started += decision.index >= self.started
        if decision.join is not None:
            self.arrived[decision.join] += 1

    @property
    def branches(self) -> dict[BranchState, int]:
        """Its branches by state."""
        over = self.settled.total() - self.never_started
        found = {
            BranchState.WAITING: self.total - self.started - self.never_started,
            BranchState.LIVE: self.started - over,
            **self.settled,
        }
        return {state: count for state, count in found.items() if count}

    def is_open(self, at: int) -> bool:
        """Whether it was open after an entry of the journal."""
        return self.opened_at <= at and (self.closed_at is None or self.closed_at > at)


class RunProjection:
    """The tokens, scopes and counters of a run, folded from its journal."""

    def __init__(self, entries: Iterable[JournalEntry] = ()) -> None:
        self.tokens: dict[int, TokenProjection] = {}
        self.scopes: dict[int, ScopeProjection] = {}
        self.counters = CounterHistory()
        # All states of the run so far; the counter `RUN` is an index into this list.
        self.run_states = [RunState.RUNNING]
        self.number = 0  # of the entry that was read last
        # Of each entry at which a branch did its node, or an item of a map ended: how many had.
        self.done_at: dict[int, int] = {}
        self._done: Counter[tuple[int, str]] = Counter()  # by scope and node
        self._failed: set[Place] = set()  # branches
        self._dispatched: set[int] = set()  # tokens whose tasks the entry that is read has made
        # The token that failed at each node of a branch, as long as no other has replaced it.
        self._failed_in: dict[tuple[Place, str], int] = {}
        self._unsuccessful: dict[int, None] = {}  # tokens that count as such
        self.executing: Collection[int] = ()  # dispatched tokens that have a worker
        for entry in entries:
            self.read(entry)

    def read(self, entry: JournalEntry) -> None:
        self._count_done(entry)
        for decision in entry.decisions:
            self._take(decision, entry)
        self._dispatched.clear()
        self.number = entry.number
        self.counters.cut(entry.number, entry.at_ms)

    def note_executing(self, tasks: Mapping[int, int]) -> None:
        """Note the tokens whose tasks have a worker, each with its task."""
        self.executing = frozenset(tasks)

    def state(self, token: TokenProjection) -> TokenState:
        if token.state is TokenState.DISPATCHED and token.number in self.executing:
            return TokenState.EXECUTING
        return token.state

    def moment(self, at: int | None = None) -> CounterSnapshot:
        """Return the counters after entry `at`; None: the current ones, with executing tokens."""
        if at is not None and at < self.number:
            return self.counters.at(at)
        now = self.counters.at(self.number)
        for number in self.executing:
            token = self.tokens.get(number)
            if token is not None and token.state is TokenState.DISPATCHED:
                for by, state in ((-1, TokenState.DISPATCHED), (1, TokenState.EXECUTING)):
                    now.add(by, TOKENS, token.node, state.value)
                    now.add(by, CAME, *token.way, state.value)
        return now

    def run_state(self, moment: CounterSnapshot) -> RunState:
        return self.run_states[moment.get(RUN)]

    def _take(self, decision: Any, entry: JournalEntry) -> None:  # noqa: C901, PLR0912 - a table
        match decision:
            case CreateToken():
                if decision.parent is None:
                    self._start_over(entry)
                self._create(decision, entry.at_ms)
            case SetTokenState():
                self._set_state(decision, entry.at_ms)
            case DispatchTask():
                self.tokens[decision.number].task = entry.links.get(str(decision.number))
                self._dispatched.add(decision.number)
            case CancelTask() if decision.number in self._dispatched:
                self.tokens[decision.number].task = None  # it was withdrawn before it was added
            case StartChild():
                made = entry.links.get(str(decision.number))
                self.tokens[decision.number].child = made or None  # 0: it could not start
            case OpenScope():
                self._open_scope(decision, entry)
            case ExtendScope():
                scope = self.scopes[decision.number]
                scope.total += decision.count
                scope.takes_branches = not decision.is_last
                self.counters.add(decision.count, BRANCHES, scope.key)
            case CloseScope():
                scope = self.scopes[decision.number]
                scope.closed_at, scope.closed_at_ms = entry.number, entry.at_ms
                scope.because = decision.because
            case SetBranchState():
                self._set_branch(decision)
            case Considered(taken=False):
                self.counters.add(1, NOT_TAKEN, decision.transition)
            case SetRunState():
                self.run_states.append(decision.state)
                self.counters.put(len(self.run_states) - 1, RUN)
            case _:
                pass  # does not change a token, scope, branch, transition or run state

    def _create(self, decision: CreateToken, at_ms: int) -> None:
        token = self.tokens[decision.number] = TokenProjection(
            number=decision.number,
            node=decision.node,
            parent=decision.parent,
            stack=decision.stack,
            via=decision.via,
            compensates=decision.compensates,
            created_at_ms=at_ms,
        )
        token.way = self._way(token)
        before = self._retried_by(decision)
        if before is not None:
            token.way = before.way
            self._replace(before)
        self._count(token, 1)
        self.counters.add(1, OPEN, token.node)
        if not self.counters.get(FIRST, token.node):
            self.counters.put(at_ms, FIRST, token.node)

    def _set_state(self, decision: SetTokenState, at_ms: int) -> None:
        token = self.tokens[decision.number]
        self._count(token, -1)
        token.state, token.error = decision.state, decision.error
        self._count(token, 1)
        self._note_outcome(token)
        if decision.state in TOKEN_ENDED:
            if token.finished_at_ms is None:
                self.counters.add(-1, OPEN, token.node)
            token.finished_at_ms = at_ms
            self.counters.put(max(at_ms, self.counters.get(LAST, token.node)), LAST, token.node)
            return
        if token.finished_at_ms is not None:  # a retry lets it wait at its join again
            token.finished_at_ms = None
            self.counters.add(1, OPEN, token.node)
        if decision.state is TokenState.WAITING_FOR_SIBLINGS and not token.has_arrived:
            token.has_arrived = True
            self.counters.add(1, ARRIVED, token.node)

    def _note_outcome(self, token: TokenProjection) -> None:
        if token.state not in UNSUCCESSFUL:
            self._unsuccessful.pop(token.number, None)
            return
        self._unsuccessful[token.number] = None
        if token.stack and token.state is not TokenState.CANCELLED:
            self._failed_in[token.stack[-1], token.node] = token.number

    def _retried_by(self, decision: CreateToken) -> TokenProjection | None:
        """Return the token of an earlier try whose node a new token starts again, if it does.

        Its parent is the token that the failure cut short, or else it begins a failed branch again.
        """
        if decision.via != BY_RETRY or decision.parent is None:
            return None
        parent = self.tokens[decision.parent]
        if (parent.node, parent.stack) == (decision.node, decision.stack):
            return parent if parent.number in self._unsuccessful else None
        if not decision.stack:
            return None
        found = self._failed_in.get((decision.stack[-1], decision.node))
        return None if found is None else self.tokens[found]

    def _replace(self, token: TokenProjection) -> None:
        """Count a token no more: it belongs to an earlier try of the run."""
        self._count(token, -1)
        token.is_replaced = True
        self._unsuccessful.pop(token.number, None)
        if token.stack and self._failed_in.get((token.stack[-1], token.node)) == token.number:
            del self._failed_in[token.stack[-1], token.node]

    def _open_scope(self, decision: OpenScope, entry: JournalEntry) -> None:
        needed = decision.needed or {}
        self.scopes[decision.number] = ScopeProjection(
            number=decision.number,
            key=decision.key,
            node=decision.node,
            parent=decision.parent,
            total=decision.total,
            needed=needed,
            takes_branches=decision.open is not None,
            opened_at=entry.number,
            opened_at_ms=entry.at_ms,
        )
        self.counters.add(1, SCOPES, decision.key)
        self.counters.add(decision.total, BRANCHES, decision.key)
        for node, count in needed.items():
            self.counters.add(count, NEEDED, decision.key, node)

    def _start_over(self, entry: JournalEntry) -> None:
        """Leave behind what a run has done that starts at its first node again."""
        for number in [*self._unsuccessful]:
            self._replace(self.tokens[number])
        for scope in self.scopes.values():
            if scope.closed_at is None:
                scope.closed_at, scope.closed_at_ms = entry.number, entry.at_ms
                scope.because = "the run started over"

    def open_scopes(self, at: int | None = None) -> Iterator[ScopeProjection]:
        """Yield the scopes that are open, or were after an entry; those of an ended run are not."""
        moment = self.counters.at(self.number if at is None else min(at, self.number))
        if self.run_state(moment) not in RUN_ENDED:
            for scope in self.scopes.values():
                if scope.is_open(moment.number):
                    yield scope

    def _set_branch(self, decision: SetBranchState) -> None:
        scope = self.scopes[decision.scope]
        key, place = scope.key, (decision.scope, decision.index)
        scope.set_branch(decision, had_failed=place in self._failed)
        if decision.state is BranchState.ARRIVED and decision.join is not None:
            self.counters.add(1, JOINED, key, decision.join)
        elif decision.state is BranchState.CANCELLED:
            self.counters.add(1, CANCELLED, key)
        elif decision.state is BranchState.FAILED:
            self.counters.add(1, FAILED, key)
            self._failed.add(place)
        elif place in self._failed:  # a retry lets it begin again
            self.counters.add(-1, FAILED, key)
            self._failed.remove(place)

    def _count(self, token: TokenProjection, by: int) -> None:
        if token.is_replaced:
            return
        self.counters.add(by, TOKENS, token.node, token.state.value)
        self.counters.add(by, CAME, *token.way, token.state.value)

    def _way(self, token: TokenProjection) -> tuple[str, str, str]:
        """Return the transition or group that the token came by, its source and its target."""
        source = self.scopes[token.stack[-1][0]].node if token.stack else ""
        return token.via or "", source, token.node

    def _count_done(self, entry: JournalEntry) -> None:
        event = entry.event
        if isinstance(event, TaskEnded | ChildEnded) and event.ok:
            token = self.tokens.get(event.token)
            if token is not None and token.stack and token.compensates is None:
                place = (token.stack[-1][0], token.node)
                self._done[place] += 1
                self.done_at[entry.number] = self._done[place]

    def progress(self, entry: JournalEntry) -> Progress | None:
        """Return how many branches had done the node of an ended task, and how many there are.

        None where that says nothing: outside of a branch, and where a loop did a node again.
        """
        done = self.done_at.get(entry.number)
        if done is None or not isinstance(entry.event, TaskEnded | ChildEnded):
            return None
        total = self._siblings(entry.event.token)
        return (done, total) if done <= total else None

    def _siblings(self, number: int) -> int:
        return self.scopes[self.tokens[number].stack[-1][0]].total

    def names(self, entry: JournalEntry, most_decisions: int) -> JournalNames:
        """Return the names of the tokens and scopes in the first decisions of an entry."""
        found = JournalNames()
        tokens, scopes = numbers_in(entry.event, entry.decisions[:most_decisions])
        for number in tokens:
            token = self.tokens.get(self.own_number(number))
            if token is not None:
                found.tokens[token.number] = self.name(token)
        for number in scopes:
            scope = self.scopes.get(number)
            if scope is not None:
                found.scopes[number] = token_name(scope.key, self.tokens[scope.parent].stack)
        return found

    def own_number(self, number: int) -> int:
        """Return the number of the token that an event is about."""
        return number

    def name(self, token: TokenProjection) -> str:
        """Return the name of a token for people: its node and branches."""
        return token_name(token.node, token.stack, is_undoing=token.compensates is not None)

    def path_id(self, token: TokenProjection) -> str:
        """Return the path of a token: `root`, then `.node.index` for each open scope."""
        places = [f".{self.scopes[scope].node}.{index}" for scope, index in token.stack]
        return "root" + "".join(places)


class RunProjectionCache:
    """Projections of the runs that were viewed last, extended as their journals grow.

    A run of ten thousand branches has a journal of megabytes. A journal only grows, so the
    projection of its first entries stays valid.
    """

    def __init__(self, begin: Callable[[Transaction, int], RunProjection]) -> None:
        """`begin` makes the empty projection of a run, of the kind of its workflow."""
        self._begin = begin
        self._kept: OrderedDict[int, RunProjection] = OrderedDict()
        # Several threads read and extend the shared projections, one at a time.
        self._lock = Lock()

    def look(self, tx: Transaction, run_id: int, seen: Callable[[RunProjection], T]) -> T:
        """Return what `seen` returns for the current projection of a run."""
        with self._lock:
            trace = self._folded(tx, run_id)
            trace.note_executing(RunStore(tx).executing(run_id))
            return seen(trace)

    def _folded(self, tx: Transaction, run_id: int) -> RunProjection:
        trace = self._kept.pop(run_id, None) or self._begin(tx, run_id)
        for entry in RunStore(tx).journal(run_id, after=trace.number, limit=NEWEST):
            trace.read(entry)
        self._kept[run_id] = trace
        while len(self._kept) > MOST_CACHED:
            self._kept.popitem(last=False)
        return trace
