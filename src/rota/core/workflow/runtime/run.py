"""The state of one run. Only the methods of `Run` change it.

Every method that changes something also records the decision, so the stored and the known state
cannot differ. A run is a working value: filled by replaying its journal, and free of I/O.
"""

import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import Struct, UnsetType

from rota.core import limits
from rota.core.workflow.decisions import (
    CloseScope,
    Considered,
    CountIteration,
    CreateToken,
    DropTimer,
    ExtendScope,
    KeepSignal,
    OpenScope,
    RunDecision,
    SetBranchState,
    SetRunState,
    SetTimer,
    SetTokenState,
    TakeSignal,
    WriteContext,
)
from rota.core.workflow.definition.model import Graph, Join
from rota.core.workflow.events import (
    ChildEnded,
    Compensation,
    RunEvent,
    RunStarted,
    TaskEnded,
    TimerKind,
)
from rota.core.workflow.runtime.context import RunDocuments
from rota.core.workflow.runtime.recovery import Failure, Undo, compensation_of
from rota.core.workflow.runtime.spans import TokenSpans
from rota.core.workflow.runtime.tokens import Branch, BranchScope, FanOut, Place, Token
from rota.core.workflow.states import RUN_ENDED, BranchState, RunState, TokenState

SLICED_PROCEDURES = 3  # the rules from which on procedures are taken in slices
# Of the steps that expressions may take after one event; with fewer left, a slice ends.
LEAST_EXPRESSION_STEPS = limits.MAX_DECISION_STEPS - limits.EXPRESSION_STEPS_PER_SLICE


# A part of a run's work that may be cut anywhere; it yields the steps that it has just taken.
Steps = Iterator[int]


@dataclass
class Procedure:
    """Work that a run has to finish before anything else happens to it, over several slices."""

    name: str
    body: Steps = field(compare=False, repr=False)
    taken: int = 0  # steps


def _needed(join: Join, quorums: dict[str, int]) -> int | None:
    needed = join.rule.needed
    return quorums[join.node] if isinstance(needed, str) else needed


class Run(Struct):
    graph: Graph
    context: RunDocuments
    state: RunState = RunState.RUNNING
    tokens: dict[int, Token] = {}  # those that have not ended
    scopes: dict[int, BranchScope] = {}  # those that still have tokens or inner scopes
    last_token: int = 0
    last_scope: int = 0
    timers: dict[tuple[TimerKind, int], int] = {}
    signals: dict[str, deque[Any]] = {}  # that no token has waited for yet
    signal_keys: dict[str, None] = {}  # of the newest signals
    waiting: dict[str, dict[int, int]] = {}  # signal -> tokens, each with the time since when
    # Waiting tokens, and outermost scopes as negative numbers, that changed since the last reading.
    changed_waits: dict[int, None] = {}
    triggers: dict[int, int] = {}  # waiting token -> signals that it has got
    iterations: dict[str, int] = {}  # of loops outside any branch
    started: RunStarted | None = None
    undo: list[Undo] = []  # completed nodes to undo, in order
    left: dict[int, str] = {}  # cancelled tokens whose sub-workflows have not ended -> their nodes
    failure: Failure | None = None  # while compensation runs
    has_undone: bool = False  # a failure has undone something
    interrupted: list[Token] = []  # by a failure
    resumes: dict[int, int] = {}  # token of a retry -> the one whose sub-workflow it takes over
    spans: TokenSpans = msgspec.field(default_factory=TokenSpans)
    output: Any = None
    error: dict[str, Any] | None = None
    rules: int = 1  # that decide the run
    now_ms: int = 0
    decisions: list[RunDecision] = []
    todo: deque[int] = msgspec.field(default_factory=deque)  # tokens to start
    opening: dict[int, None] = {}  # scopes with branches to start
    held: dict[int, None] = {}  # scopes that may get more branches, or are being closed
    procedures: deque[Procedure] = msgspec.field(default_factory=deque)
    deferred: deque[RunEvent] = msgspec.field(default_factory=deque)  # until these are through
    ended_meanwhile: dict[int, TaskEnded | ChildEnded] = {}  # the deferred ones, by token
    steps: int = 0  # since the last event from outside that found nothing to do
    steps_left: int = sys.maxsize  # in the current slice

    # --- work in slices -----------------------------------------------------------------------

    def perform(self, name: str, body: Steps) -> None:
        """Carry out a procedure, the rest of it in the next slices; before rules 3, at once.

        A procedure that begins inside another one follows it. Events that come before the last
        slice are deferred, so to them the procedure is one step.
        """
        if self.rules < SLICED_PROCEDURES:
            for _ in body:
                pass
            return
        self.procedures.append(Procedure(name, body))
        if len(self.procedures) == 1:
            while self.procedures and self.steps_left > 0:
                self.proceed()

    def proceed(self) -> None:
        """Take the next steps of the first procedure."""
        first = self.procedures[0]
        try:
            taken = next(first.body, None)
        except BaseException:
            self.procedures.popleft()
            raise
        if taken is None:
            self.procedures.popleft()
            return
        first.taken += taken
        self.steps_left -= taken
        if self.context.spending.left < LEAST_EXPRESSION_STEPS:
            self.steps_left = 0

    def defer(self, event: RunEvent) -> None:
        """Let an event wait until the procedures are through."""
        self.deferred.append(event)
        if isinstance(event, TaskEnded | ChildEnded):
            self.ended_meanwhile[event.token] = event

    def next_deferred(self) -> RunEvent:
        event = self.deferred.popleft()
        if isinstance(event, TaskEnded | ChildEnded):
            del self.ended_meanwhile[event.token]
        return event

    # --- tokens -------------------------------------------------------------------------------

    def create_token(
        self,
        node: str,
        *,
        parent: int | None,
        stack: tuple[Place, ...],
        via: str | None = None,
        compensates: int | None = None,
        is_trigger: bool = False,
    ) -> Token:
        """Create a token, which starts after everything decided before it."""
        self.last_token += 1
        token = Token(
            number=self.last_token,
            node=node,
            parent=parent,
            stack=stack,
            compensates=compensates,
            is_trigger=is_trigger,
        )
        self.tokens[token.number] = token
        self.spans.follow(token.number, parent)
        if stack:
            self.branch(stack[-1]).tokens[token.number] = None
        for place in self.counted(stack):
            self.branch(place).live += 1
        self.decisions.append(CreateToken(token.number, node, parent, stack, via, compensates))
        self.todo.append(token.number)
        return token

    def set_token(self, number: int, state: TokenState) -> None:
        token = self.tokens[number]
        self.tokens[number] = msgspec.structs.replace(token, state=token.state.to(state))
        self.decisions.append(SetTokenState(number, state))

    def hold_token(self, number: int, stack: tuple[Place, ...]) -> None:
        """Let a token wait at a join of the innermost scope of this stack; it leaves inner ones."""
        token = self.tokens[number]
        for place in self.counted(token.stack)[-(len(token.stack) - len(stack) + 1) :]:
            self.branch(place).live -= 1
        del self.branch(token.stack[-1]).tokens[number]
        self.branch(stack[-1]).tokens[number] = None
        held = token.state.to(TokenState.WAITING_FOR_SIBLINGS)
        self.tokens[number] = msgspec.structs.replace(token, state=held, stack=stack)
        self.decisions.append(SetTokenState(number, held))
        self.stop_waiting(token)

    def hold_again(self, token: Token) -> None:
        """Let a token that waited at a join when the run failed wait there again."""
        assert token.state is TokenState.WAITING_FOR_SIBLINGS
        self.tokens[token.number] = token
        self.branch(token.stack[-1]).tokens[token.number] = None
        for place in self.counted(token.stack)[:-1]:
            self.branch(place).live += 1
        held = TokenState.COMPLETED.to(token.state)
        self.decisions.append(SetTokenState(token.number, held))

    def end_token(
        self, number: int, state: TokenState, error: dict[str, Any] | None = None
    ) -> Token:
        """Remove a token. The branches that count it no longer do."""
        token = self.tokens.pop(number)
        self.spans.forget(number)
        self.decisions.append(SetTokenState(number, token.state.to(state), error))
        stack = token.stack
        if stack:
            del self.branch(stack[-1]).tokens[number]
            is_held = token.state is TokenState.WAITING_FOR_SIBLINGS
            counted = self.counted(stack)
            for place in counted[:-1] if is_held else counted:
                self.branch(place).live -= 1
        self.drop_timer("sleep", number)
        self.stop_waiting(token)
        return token

    def detach_token(self, number: int) -> None:
        """Take a token out of its branches, which then no longer count it. It stays in the run."""
        token = self.tokens[number]
        if token.stack:
            del self.branch(token.stack[-1]).tokens[number]
            for place in self.counted(token.stack):
                self.branch(place).live -= 1
            self.tokens[number] = msgspec.structs.replace(token, stack=())

    def branch(self, place: Place) -> Branch:
        number, index = place
        return self.scopes[number].branches[index]

    def late_depth(self, stack: tuple[Place, ...]) -> int | None:
        """The depth of the innermost closed scope of a stack: tokens in it are late."""
        for depth in range(len(stack) - 1, -1, -1):
            if self.scopes[stack[depth][0]].is_closed:
                return depth
        return None

    def counted(self, stack: tuple[Place, ...]) -> tuple[Place, ...]:
        """The branches that count a token of this stack: none outside a closed scope."""
        late = self.late_depth(stack)
        return stack if late is None else stack[late:]

    # --- scopes -------------------------------------------------------------------------------

    def open_scope(self, token: Token, fan_out: FanOut) -> BranchScope:
        self.last_scope += 1
        key, quorums = fan_out.key, fan_out.quorums
        values = self.values(token.stack)
        scope = BranchScope(
            number=self.last_scope,
            key=key,
            node=token.node,
            parent=token.number,
            stack=token.stack,
            targets=fan_out.targets,
            items=fan_out.items,
            opened_at_ms=self.now_ms,
            documents=self.context.documents_at(token.stack, self.scopes),
            outside=values.get("branch"),
            max_parallel=fan_out.max_parallel,
            needed={join.node: _needed(join, quorums) for join in self.graph.joins_of(key)},
            counts={BranchState.WAITING: len(fan_out.targets)},
            open=fan_out.open,
            joined=self.spans.links(token.number),
        )
        self.scopes[scope.number] = scope
        if token.stack:
            self.branch(token.stack[-1]).scopes[scope.number] = None
            self.scopes[token.stack[-1][0]].inner += 1
        self.decisions.append(
            OpenScope(
                scope.number,
                key,
                token.node,
                token.number,
                scope.total,
                token.stack,
                scope.max_parallel,
                quorums or None,
                scope.open,
            )
        )
        self.hold_open(scope)
        self._note_scope(scope)
        return scope

    def extend_scope(
        self, scope: BranchScope, items: list[Any], key: str | None, *, is_last: bool
    ) -> None:
        """Add branches to an open scope, one for each item."""
        assert scope.items is not None
        if key is not None:
            scope.additions[key] = (scope.total, len(items))
        scope.targets += [self.graph.growing[scope.key]] * len(items)
        scope.items += items
        scope.counts[BranchState.WAITING] = scope.count(BranchState.WAITING) + len(items)
        self.decisions.append(ExtendScope(scope.number, len(items), is_last))
        self._note_scope(scope)
        if is_last:
            self.stop_holding(scope)
            scope.open = None

    def _note_scope(self, scope: BranchScope) -> None:
        if not scope.stack:
            self.changed_waits[-scope.number] = None

    def hold_open(self, scope: BranchScope) -> None:
        """Hold a scope that may get more branches when it has none left."""
        if scope.is_held_open:
            self.hold(scope)

    def start_closing(self, scope: BranchScope) -> None:
        """Let nothing more arrive at a scope whose join fires, or which is cancelled."""
        scope.is_closing = True
        self.hold(scope)

    def stop_closing(self, scope: BranchScope) -> None:
        """Open a scope again whose merge has failed, for a retry."""
        scope.is_closing = False
        if not scope.is_held_open:
            self.stop_holding(scope)

    def hold(self, scope: BranchScope) -> None:
        """Note that a scope is not through. The branches outside count it like a token."""
        if scope.number not in self.held:
            self.held[scope.number] = None
            for place in self.counted(scope.stack):
                self.branch(place).live += 1

    def stop_holding(self, scope: BranchScope) -> None:
        if scope.number in self.held:
            del self.held[scope.number]
            for place in self.counted(scope.stack):
                self.branch(place).live -= 1

    def set_branch(self, scope: BranchScope, branch: Branch, state: BranchState) -> None:
        scope.set_state(branch, state)
        join = None
        if state is BranchState.ARRIVED:
            for join in branch.arrivals:
                scope.arrived[join] = scope.arrived.get(join, 0) + 1
        self.decisions.append(SetBranchState(scope.number, branch.index, state, join))

    def start_opening(self, scope: BranchScope) -> None:
        """Note that a scope has branches to start. The branches outside count it like a token."""
        if scope.number not in self.opening:
            self.opening[scope.number] = None
            for place in self.counted(scope.stack):
                self.branch(place).live += 1

    def stop_opening(self, scope: BranchScope) -> None:
        if scope.number in self.opening:
            del self.opening[scope.number]
            for place in self.counted(scope.stack):
                self.branch(place).live -= 1

    def close_scope(self, scope: BranchScope, because: str) -> None:
        self.stop_opening(scope)
        self.stop_holding(scope)
        scope.is_closed, scope.is_closing = True, False
        self.drop_timer("join", scope.number)
        self.decisions.append(CloseScope(scope.number, because))
        self._note_scope(scope)
        self.forget_scope(scope)

    def forget_scope(self, scope: BranchScope) -> None:
        """Drop a closed scope that nothing is left in."""
        is_left = scope.count(BranchState.LIVE) or scope.inner
        if scope.is_closed and not is_left and scope.number in self.scopes:
            del self.scopes[scope.number]
            if scope.stack:
                del self.branch(scope.stack[-1]).scopes[scope.number]
                outer = self.scopes[scope.stack[-1][0]]
                outer.inner -= 1
                self.forget_scope(outer)

    # --- context, timers, signals, counters ----------------------------------------------------

    def write(self, path: tuple[str, ...], value: Any, stack: tuple[Place, ...]) -> None:
        self.context.write(path, value, stack, self.scopes)
        self.decisions.append(WriteContext(path, value, stack[-1] if stack else None))

    def values(self, stack: tuple[Place, ...], **more: Any) -> dict[str, Any]:
        return self.context.values(stack, self.scopes, **more)

    def set_timer(self, kind: TimerKind, number: int, due_at_ms: int) -> None:
        self.timers[kind, number] = due_at_ms
        self.decisions.append(SetTimer(kind, number, due_at_ms))

    def drop_timer(self, kind: TimerKind, number: int) -> None:
        if self.timers.pop((kind, number), None) is not None:
            self.decisions.append(DropTimer(kind, number))

    def keep_signal(self, name: str, payload: Any) -> None:
        self.signals.setdefault(name, deque()).append(payload)
        self.decisions.append(KeepSignal(name, payload))

    def take_signal(self, name: str) -> Any:
        """Take the oldest kept signal of that name."""
        kept = self.signals[name]
        payload = kept.popleft()
        if not kept:
            del self.signals[name]
        self.decisions.append(TakeSignal(name))
        return payload

    def start_waiting(self, number: int, *names: str) -> None:
        self.set_token(number, TokenState.WAITING_FOR_EVENT)
        for name in names:
            self.waiting.setdefault(name, {})[number] = self.now_ms
        self.changed_waits[number] = None

    def wait_again(self, number: int, name: str) -> None:
        """Let a token that has got a signal wait for the next one, behind the others."""
        self.triggers[number] = self.triggers.get(number, 0) + 1
        del self.waiting[name][number]
        self.waiting[name][number] = self.now_ms
        self.changed_waits[number] = None

    def stop_waiting(self, token: Token) -> None:
        self.drop_timer("wait", token.number)
        if token.state is TokenState.WAITING_FOR_EVENT:
            self.triggers.pop(token.number, None)
            self.changed_waits[token.number] = None
            for name in self.graph.definition.nodes[token.node].awaits(token.node):
                del self.waiting[name][token.number]
                if not self.waiting[name]:
                    del self.waiting[name]

    def iterations_at(self, stack: tuple[Place, ...]) -> dict[str, int]:
        """The number of times that each limited transition was taken in this branch."""
        return self.branch(stack[-1]).iterations if stack else self.iterations

    def count_iteration(self, transition: str, stack: tuple[Place, ...]) -> None:
        iterations = self.iterations_at(stack)
        iterations[transition] = iterations.get(transition, 0) + 1
        self.decisions.append(CountIteration(transition, stack, iterations[transition]))

    def consider(self, transition: str, because: str, *, taken: bool) -> None:
        self.decisions.append(Considered(transition, taken, because))

    def set_state(
        self, state: RunState, *, output: Any = None, error: dict[str, Any] | None = None
    ) -> None:
        self.state, self.output, self.error = self.state.to(state), output, error
        self.decisions.append(SetRunState(state, output, error))
        if self.is_ended:
            self.todo.clear()
            self.deferred.clear()
            self.ended_meanwhile.clear()

    @property
    def last_span(self) -> str | UnsetType:
        """The span of the task that has ended last; unset: its worker reports none."""
        return self.spans.last

    def undoable(self) -> tuple[Compensation, ...]:
        """What undoes the work of this run, for the run inside which it has run."""
        return tuple(compensation_of(undo, self.graph) for undo in self.undo)

    def resume(self) -> None:
        """Let a paused run start its pending tokens."""
        self.set_state(RunState.RUNNING)
        queued = set(self.todo)
        for token in self.tokens.values():
            if token.state is TokenState.PENDING and token.number not in queued:
                self.todo.append(token.number)

    @property
    def input(self) -> Any:
        return self.context.input

    @property
    def documents(self) -> dict[str, Any]:
        """What callers see of a run that is under way."""
        return self.context.documents

    @property
    def is_busy(self) -> bool:
        """Whether there are steps to take without an event from outside."""
        return bool(self.todo or self.opening or self.procedures or self.deferred)

    @property
    def is_ended(self) -> bool:
        return self.state in RUN_ENDED

    @property
    def can_go_on(self) -> bool:
        """Whether a retry of its parent can let this run go on, instead of starting another one."""
        is_lost = self.state is RunState.CANCELLED and not (self.interrupted or self.has_undone)
        return not is_lost
