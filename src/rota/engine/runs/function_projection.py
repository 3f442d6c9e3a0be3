"""The projection of a run whose workflow is a function: a token for each operation.

The events of a function have everything that it did, so the projection applies them again by the
rules of the run, and notes each new entry of the log. A node is the name of an operation, and an
edge leads from one operation to the next in its scope, into the scopes that it opens, and out of
them again.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from msgspec.structs import replace

from rota.core.workflow.decisions import (
    AskChild,
    AskTasks,
    CreateToken,
    DropOperations,
    ResumeFunction,
    RunDecision,
    SetRunState,
    SetTokenState,
)
from rota.core.workflow.events import RunRetried, RunStarted, TaskEnded
from rota.core.workflow.functions.model import (
    FUNCTION_TOKEN,
    ApprovalRequest,
    CallRequest,
    ChildRequest,
    EventRequest,
    MapRequest,
    Operation,
    OperationKind,
    name_of,
    scope_of,
)
from rota.core.workflow.functions.reducer import new_run, reduce
from rota.core.workflow.functions.run import ITEM_SPAN, CodeRun, Function
from rota.core.workflow.program import program_of
from rota.core.workflow.records import JournalEntry
from rota.core.workflow.states import RUN_ENDED, TOKEN_ENDED, TokenState
from rota.engine.runs.projections import RunProjection, TokenProjection
from rota.store.database import Transaction
from rota.store.workflow.definitions import WorkflowStore
from rota.store.workflow.runs import RunStore

EDGES = "edges"  # from, to: operations of the second name that followed one of the first
MOST_SHOWN = 100  # scopes of a name, and operations that a function waits for
WAITING: dict[OperationKind, TokenState] = {
    "call": TokenState.DISPATCHED,
    "map": TokenState.DISPATCHED,
    "run": TokenState.WAITING_FOR_SUBWORKFLOW,
    "sleep": TokenState.EXECUTING,
    "event": TokenState.WAITING_FOR_EVENT,
    "receive": TokenState.WAITING_FOR_EVENT,
    "approval": TokenState.WAITING_FOR_EVENT,
}


FAILURES: dict[object, TokenState] = {  # by the type of the error
    "timeout": TokenState.TIMED_OUT,
    "withdrawn": TokenState.CANCELLED,
}


def empty_projection(tx: Transaction, run_id: int) -> RunProjection:
    """Return the projection of a run before its first entry, of the kind of its workflow."""
    record = RunStore(tx).by_ids([run_id]).get(run_id)
    if record is not None:
        definition = WorkflowStore(tx).definition(record.workflow, record.version)
        program = None if definition is None else program_of(definition, record.version)
        if isinstance(program, Function):
            return FunctionProjection(program)
    return RunProjection()


def signal_of(operation: Operation) -> str | None:
    """Return the name of the signal that an operation waits for, if it does."""
    match operation.request:
        case EventRequest(name=name):
            return name
        case ApprovalRequest():
            return name_of(operation.path)
        case _:
            return None


@dataclass
class StepProjection:
    """All operations of one name."""

    kind: OperationKind
    task: str | None = None
    workflow: str | None = None
    signal: str | None = None
    line: int | None = None
    scopes: dict[str, None] = field(default_factory=dict)  # the first ones


@dataclass
class FunctionPlace:
    """Where a function is."""

    state: Literal["dispatched", "executing", "waiting", "ended"]
    task: int | None
    waits_for: list[str]
    lines: list[int]
    operations: int
    restarts: int
    cancelled: str | None


@dataclass
class ItemCounts:
    """The items of maps, by how far they are."""

    total: int = 0
    ended: int = 0
    running: int = 0
    queued: int = 0
    held_back: int = 0
    cancelled: int = 0

    def add(self, token: TokenProjection, *, executing: int) -> None:
        """Count the items of one map, `executing` of which have a worker."""
        total = token.items or 0
        self.total += total
        self.ended += token.items_ended
        if token.state in TOKEN_ENDED:
            self.cancelled += total - token.items_ended
            return
        self.running += executing
        self.queued += max(0, token.items_started - token.items_ended - executing)
        self.held_back += total - token.items_started


class FunctionProjection(RunProjection):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self._function = function
        self._run: CodeRun | None = None
        self._task: int | None = None  # of the function
        self._is_held = False
        self._by_path: dict[str, int] = {}  # token of each operation since the last restart
        self._tails: dict[str, str] = {}  # scope -> name of its last operation
        self._inner: dict[str, dict[str, None]] = {}  # scope -> scopes inside it with a tail
        self.steps: dict[str, StepProjection] = {}
        self._maps: dict[str, list[int]] = {}  # name -> tokens of its maps
        self._items_executing: Counter[int] = Counter()  # by the token of the map

    def read(self, entry: JournalEntry) -> None:
        event = entry.event
        run = self._run
        if run is None:
            assert isinstance(event, RunStarted)
            run = self._run = new_run(self._function, event.input)
        restarts = run.restarts
        run.trace = []
        decisions = reduce(run, event)
        if isinstance(event, TaskEnded) and event.token >= ITEM_SPAN:
            self._item_ended(event, entry.number)
        for number, operation in run.trace:
            self._note(number, operation, entry.at_ms)
        run.trace = []
        for decision in decisions:
            self._take_function(run, decision, entry)
        if run.restarts > restarts:
            self._end_open(entry.at_ms)
            self._by_path.clear()
            self._tails.clear()
            self._inner.clear()
        self.number = entry.number
        self.counters.cut(entry.number, entry.at_ms)

    def note_executing(self, tasks: dict[int, int]) -> None:  # type: ignore[override]  # a dict in fact
        self._is_held = FUNCTION_TOKEN in tasks
        self.executing = frozenset(number % ITEM_SPAN for number in tasks) - {FUNCTION_TOKEN}
        self._items_executing = Counter(
            number % ITEM_SPAN for number in tasks if number >= ITEM_SPAN
        )

    def items_of(self, name: str) -> ItemCounts | None:
        """Count the items of the maps of this name; None: it is no map."""
        if self.steps[name].kind != "map":
            return None
        counts = ItemCounts()
        for number in self._maps.get(name, ()):
            token = self.tokens[number]
            counts.add(token, executing=self._items_executing[number])
        return counts

    def own_number(self, number: int) -> int:
        """Return the token of an operation; an item of a map belongs to that of the map."""
        return number % ITEM_SPAN

    def name(self, token: TokenProjection) -> str:
        """Return the path of an operation."""
        return token.operation.path if token.operation is not None else token.node

    def _siblings(self, number: int) -> int:
        return self.tokens[number % ITEM_SPAN].items or 0

    def path_id(self, token: TokenProjection) -> str:
        """Return the scope of an operation; `root` is the outermost one."""
        return scope_of(token.operation.path) or "root" if token.operation else "root"

    def place(self) -> FunctionPlace:
        run = self._run
        if run is None or run.is_ended:
            state: Literal["dispatched", "executing", "waiting", "ended"] = "ended"
        elif not run.is_held:
            state = "waiting"
        else:
            state = "executing" if self._is_held else "dispatched"
        waits = [*(run.pending if run is not None else ())][:MOST_SHOWN]
        operations = [self.tokens[self._by_path[path]].operation for path in waits]
        return FunctionPlace(
            state=state,
            task=self._task,
            waits_for=waits,
            lines=sorted({one.line for one in operations if one and one.line is not None}),
            operations=0 if run is None else run.count,
            restarts=0 if run is None else run.restarts,
            cancelled=None if run is None else run.cancelled,
        )

    # --- entries of the log -------------------------------------------------------------------

    def _note(self, number: int, operation: Operation, at_ms: int) -> None:
        token = self._by_path.get(operation.path)
        if token is None:
            token = self._begin_operation(number, operation, operation.started_at_ms or at_ms)
        match operation.state:
            case "pending":
                self._to(token, WAITING[operation.kind], at_ms)
            case "started":
                self._to(token, TokenState.EXECUTING, at_ms)
            case "done":
                self._to(token, TokenState.COMPLETED, operation.ended_at_ms or at_ms)
            case "failed":
                kind = (operation.error or {}).get("type")
                state = FAILURES.get(kind, TokenState.FAILED)
                self._to(token, state, operation.ended_at_ms or at_ms, operation.error)
            case "delivered":
                pass

    def _begin_operation(self, number: int, operation: Operation, at_ms: int) -> int:
        name, scope = name_of(operation.path), scope_of(operation.path)
        self._by_path[operation.path] = number
        self._create(CreateToken(number, name), at_ms)
        token = self.tokens[number]
        token.operation = replace(operation, result=None, error=None)
        request = operation.request
        step = self.steps.setdefault(name, StepProjection(operation.kind))
        step.kind, step.line = operation.kind, operation.line or step.line
        step.signal = signal_of(operation) or step.signal
        if isinstance(request, CallRequest):
            step.task = request.task
        elif isinstance(request, MapRequest):
            step.task = request.call.task
        elif isinstance(request, ChildRequest):
            step.workflow = request.workflow
        if len(step.scopes) < MOST_SHOWN:
            step.scopes[scope or "root"] = None
        for source in self._sources(scope):
            self.counters.add(1, EDGES, source, name)
        self._tails[scope] = name
        inner = scope
        while inner:
            outer = inner.rpartition("/")[0]
            self._inner.setdefault(outer, {})[inner] = None
            inner = outer
        return number

    def _sources(self, scope: str) -> list[str]:
        """Return the names of the operations that come before the next one of a scope."""
        found: dict[str, None] = {}
        left = [*self._inner.pop(scope, {})]
        while left:
            inner = left.pop()
            tail, deeper = self._tails.pop(inner, None), self._inner.pop(inner, None)
            if deeper:
                left += deeper  # which came after it
            elif tail is not None:
                found[tail] = None
        if found:
            return [*found]
        while scope not in self._tails and scope:
            scope = scope.rpartition("/")[0]
        tail = self._tails.get(scope)
        return [] if tail is None else [tail]

    def _to(
        self, number: int, state: TokenState, at_ms: int, error: dict[str, object] | None = None
    ) -> None:
        self._set_state(SetTokenState(number, state, error), at_ms)

    # --- decisions ----------------------------------------------------------------------------

    def _take_function(self, run: CodeRun, decision: RunDecision, entry: JournalEntry) -> None:
        match decision:
            case ResumeFunction():
                self._task = entry.links.get(str(FUNCTION_TOKEN), self._task)
            case AskTasks():
                token = self.tokens[decision.number]
                token.task = entry.links.get(str(decision.number))
                self._note_items(run, decision, token)
            case AskChild():
                made = entry.links.get(str(decision.number))
                self.tokens[decision.number].child = made or None  # 0: it could not start
            case DropOperations():
                for path in decision.paths:
                    number = self._by_path.pop(path, None)
                    if number is not None:
                        self._drop(self.tokens[number], entry)
            case SetRunState():
                self._take(decision, entry)
                if decision.state in RUN_ENDED:
                    self._end_open(entry.at_ms)
            case _:
                pass  # the entries of the log say it, or it changes no token

    def _drop(self, token: TokenProjection, entry: JournalEntry) -> None:
        """End an operation that has left the log; a retry does it again."""
        if token.state not in TOKEN_ENDED:
            self._to(token.number, TokenState.CANCELLED, entry.at_ms)
        if isinstance(entry.event, RunRetried) and token.number in self._unsuccessful:
            self._replace(token)

    def _note_items(self, run: CodeRun, decision: AskTasks, token: TokenProjection) -> None:
        """Note the items of a map, and how many of them have got a task."""
        pending = run.pending.get(run.tokens.get(decision.number, ""))
        if pending is not None and isinstance(pending.request, MapRequest):
            if token.items is None:
                self._maps.setdefault(token.node, []).append(decision.number)
            token.items = len(pending.request.payloads)
            token.items_started = decision.first + decision.count

    def _item_ended(self, event: TaskEnded, number: int) -> None:
        token = self.tokens.get(event.token % ITEM_SPAN)
        if token is not None:
            token.items_ended += 1
            if event.ok:
                self.done_at[number] = token.items_ended

    def _end_open(self, at_ms: int) -> None:
        """Cancel the operations that had not ended."""
        for number in self._by_path.values():
            if self.tokens[number].state not in TOKEN_ENDED:
                self._to(number, TokenState.CANCELLED, at_ms)
