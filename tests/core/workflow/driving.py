"""Runs in memory: tasks answered by plain functions, time turned by hand, no store, no clock.

After every event the run's counters are counted again by hand, and every token must have moved as
the table of its states allows.
"""

import random
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from rota.core.workflow.decisions import (
    CancelChild,
    CancelTask,
    CreateToken,
    DispatchTask,
    PauseChild,
    ResumeChild,
    RunDecision,
    SendSignal,
    SetBranchState,
    SetRunState,
    SetTokenState,
    StartChild,
)
from rota.core.workflow.definition.model import Definition, Graph
from rota.core.workflow.definition.parser import read
from rota.core.workflow.events import (
    RULES,
    BranchesAdded,
    CancelMode,
    ChildEnded,
    RunCancelRequested,
    RunEvent,
    RunPaused,
    RunResumed,
    RunRetried,
    RunStarted,
    ScopeEndRequested,
    Signalled,
    SignalSent,
    TaskEnded,
    TimerFired,
    TimerKind,
)
from rota.core.workflow.runtime.reducer import new_run, reduce
from rota.core.workflow.runtime.run import Run
from rota.core.workflow.runtime.tokens import Place
from rota.core.workflow.states import (
    BRANCH_TRANSITIONS,
    RUN_ENDED,
    RUN_TRANSITIONS,
    TOKEN_TRANSITIONS,
    BranchState,
    RunState,
    ScopeAction,
    TokenState,
)
from tests.core.workflow.checking import check, standing

Handler = Callable[[Any], Any]
Entry = tuple[RunEvent, list[RunDecision]]
_encode = msgspec.json.Encoder().encode


class Performed(NamedTuple):
    """A task that succeeded."""

    lineage: tuple[int, ...]  # of the run
    task: str
    payload: Any
    result: Any


class Failed(Exception):  # noqa: N818 - what a handler raises to fail its task
    def __init__(self, message: str = "broken", kind: str = "Broken") -> None:
        super().__init__(message)
        self.error = {"type": kind, "message": message}


def defined(text: str) -> Definition:
    """A definition from YAML, which must have no problems."""
    definition, problems = read(text)
    assert not problems, problems
    assert definition is not None
    return definition


class Drive:
    """One run, and the world around it."""

    def __init__(
        self,
        workflow: str | Definition,
        run_input: Any = None,
        handlers: Mapping[str, Handler] | None = None,
        *,
        workflows: Mapping[str, str | Definition] | None = None,
        seed: int = 0,
        begin: bool = True,
        parent: "Drive | None" = None,
        **started: Any,
    ) -> None:
        definition = defined(workflow) if isinstance(workflow, str) else workflow
        self.graph = Graph(definition)
        self.input = run_input
        self.handlers: Mapping[str, Handler] = {} if handlers is None else handlers
        self.workflows = dict(workflows or {})
        self.run: Run = new_run(self.graph, run_input)
        self.random = random.Random(seed)
        self.slice_steps: int | None = started.get("slice_steps")
        # The tasks performed by this run, its parents and its children, in order.
        self.performed: list[Performed] = [] if parent is None else parent.performed
        self.lineage: tuple[int, ...] = ()  # the tokens of its parents
        self.now_ms = 1_000
        self.journal: list[Entry] = []
        self.tasks: dict[int, DispatchTask] = {}
        self.children: dict[int, Drive] = {}
        self.past: dict[int, Drive] = {}  # children that have ended, by token
        self.cancelled: list[int] = []
        self.sent: list[SendSignal] = []  # to other runs
        self._sending: deque[SendSignal] = deque()
        self._stopped: list[int] = []  # tokens whose children were cancelled
        self.run_state = RunState.RUNNING
        self.states: dict[int, TokenState] = {}
        self.branch_states: dict[Place, BranchState] = {}
        self.token_nodes: dict[int, str] = {}
        if begin:
            self.feed(RunStarted(self.now_ms, run_input, **{"rules": RULES, **started}))

    # --- events ---------------------------------------------------------------------------------

    def feed(self, event: RunEvent) -> list[RunDecision]:
        decisions = reduce(self.run, event)
        self.journal.append((event, decisions))
        for decision in decisions:
            self._carry_out(decision)
        stopped, self._stopped = self._stopped, []
        for number in stopped:
            if self.children[number].is_ended:
                self.child_step(number)
        check(self.run, self.states, set(self.tasks))
        while self._sending:
            self._deliver(self._sending.popleft())
        return decisions

    def _deliver(self, signal: SendSignal) -> None:
        """Deliver a signal of the run, to itself or to another run; sometimes steps wait."""
        later = self.random.random() < 0.5
        error = None
        if signal.run is not None:
            self.sent.append(signal)
        elif self.is_ended:
            error = {"type": "signal_refused", "message": "ended"}
        else:
            name, payload = signal.name, signal.payload
            self.feed(Signalled(self.now_ms, name, payload, sender="self", later=later))
        self.feed(SignalSent(self.now_ms, signal.number, error, later=not later))

    def _carry_out(self, decision: RunDecision) -> None:  # noqa: C901 - a table
        match decision:
            case CreateToken():
                assert decision.number not in self.states
                self.states[decision.number] = TokenState.PENDING
                self.token_nodes[decision.number] = decision.node
            case SetTokenState():
                assert decision.state in TOKEN_TRANSITIONS[self.states[decision.number]]
                self.states[decision.number] = decision.state
            case SetRunState():
                assert decision.state in RUN_TRANSITIONS[self.run_state]
                self.run_state = decision.state
            case SetBranchState():
                place = (decision.scope, decision.index)
                before = self.branch_states.get(place, BranchState.WAITING)
                assert decision.state in BRANCH_TRANSITIONS[before]
                self.branch_states[place] = decision.state
            case DispatchTask():
                self.tasks[decision.number] = decision
            case CancelTask():
                del self.tasks[decision.number]
                self.cancelled.append(decision.number)
            case StartChild():
                self._start_child(decision)
            case CancelChild():
                self.children[decision.number].cancel(mode=decision.mode)
                self._stopped.append(decision.number)
                self.cancelled.append(decision.number)
            case PauseChild():
                self.children[decision.number].pause()
            case ResumeChild():
                self.children[decision.number].resume()
            case SendSignal():
                self._sending.append(decision)
            case _:
                pass

    def _start_child(self, decision: StartChild) -> None:
        before = None if decision.resumes is None else self.past.get(decision.resumes)
        if before is not None and before.run.can_go_on:
            self.children[decision.number] = before
            if before.state != "completed":
                before.feed(RunRetried(before._tick(), children=True, with_parent=True))
            return
        child = self.workflows[decision.workflow]
        seed = self.random.randrange(1_000)
        self.children[decision.number] = Drive(
            child,
            decision.input,
            self.handlers,
            workflows=self.workflows,
            seed=seed,
            parent=self,
            slice_steps=self.slice_steps,
            parent_id="parent",
        )
        self.children[decision.number].lineage = (*self.lineage, decision.number)

    def finish(
        self, number: int, result: Any = None, *, traceparent: str | UnsetType = UNSET
    ) -> list[RunDecision]:
        del self.tasks[number]
        ended = TaskEnded(self._tick(), number, ok=True, result=result, traceparent=traceparent)
        return self.feed(ended)

    def fail(self, number: int, error: dict[str, Any] | None = None) -> list[RunDecision]:
        del self.tasks[number]
        told = error or Failed().error
        return self.feed(TaskEnded(self._tick(), number, ok=False, error=told))

    def signal(self, name: str, payload: Any = None, token: int | None = None) -> list[RunDecision]:
        return self.feed(Signalled(self._tick(), name, payload, token=token))

    def steer_scope(self, scope: int, action: ScopeAction, reason: str = "") -> list[RunDecision]:
        return self.feed(ScopeEndRequested(self._tick(), scope, action, reason))

    def add_branches(
        self, scope: int, items: list[Any], key: str | None = None, *, is_last: bool = False
    ) -> list[RunDecision]:
        return self.feed(BranchesAdded(self._tick(), scope, items, key, is_last))

    def pause(self) -> list[RunDecision]:
        return self.feed(RunPaused(self._tick(), children=True))

    def resume(self) -> list[RunDecision]:
        return self.feed(RunResumed(self._tick(), children=True))

    def cancel(self, reason: str = "", mode: CancelMode | None = "undo") -> list[RunDecision]:
        return self.feed(RunCancelRequested(self._tick(), reason, mode))

    def retry(self) -> list[RunDecision]:
        return self.feed(RunRetried(self._tick(), children=True))

    def turn_clock(self, to_ms: int | None = None) -> None:
        """Fire the next timer, or all that are due at a time."""
        if to_ms is None:
            self._fire(min(self.timers, key=lambda key: (self.run.timers[key], key)))
            return
        self.now_ms = max(self.now_ms, to_ms)
        while due := [key for key in self.timers if self.run.timers[key] <= self.now_ms]:
            self._fire(min(due, key=lambda key: (self.run.timers[key], key)))

    @property
    def timers(self) -> list[tuple[TimerKind, int]]:
        """The timers that have not fired; a run may have deferred the event of one that has."""
        deferred = [one for one in self.run.deferred if isinstance(one, TimerFired)]
        fired = {(one.kind, one.number) for one in deferred}
        return [key for key in self.run.timers if key not in fired]

    def _fire(self, key: tuple[Any, int]) -> None:
        self.now_ms = max(self.now_ms, self.run.timers[key])
        self.feed(TimerFired(self.now_ms, *key))

    def _tick(self) -> int:
        self.now_ms += 1
        return self.now_ms

    # --- letting it run -------------------------------------------------------------------------

    def step(self) -> None:
        """Let one thing happen, whichever the dice say; time passes when nothing else can."""
        choices: list[Callable[[], Any]] = [
            lambda number=number: self.answer(number)  # type: ignore[misc]  # bound by default
            for number in self.tasks
        ]
        choices += [
            lambda number=number: self.child_step(number)  # type: ignore[misc]  # as above
            for number in self.children
        ]
        if choices:
            self.random.choice(choices)()
        elif self.run.timers:
            self.turn_clock()
        else:
            raise AssertionError(f"stuck: {self.run.tokens} {self.run.scopes}")

    def answer(self, number: int) -> None:
        """Perform a token's task."""
        task = self.tasks[number]
        try:
            result = self.handlers[task.task](task.payload)
        except Failed as failure:
            self.fail(number, failure.error)
        else:
            self.performed.append(Performed(self.lineage, task.task, task.payload, result))
            self.finish(number, result)

    def child_step(self, number: int) -> None:
        child = self.children[number]
        is_held = child.state == "paused" and not child.tasks and not child.run.is_busy
        if not child.is_ended and not is_held:
            child.step()
        if child.is_ended:
            self.past[number] = self.children.pop(number)
            is_ok = child.state == "completed"
            error = None if is_ok else child.run.error
            undo = child.run.undoable()
            self.feed(ChildEnded(self._tick(), number, is_ok, child.output, error, undo))

    def to_end(self) -> "Drive":
        for _ in range(100_000):
            if self.is_ended:
                return self
            self.step()
        raise AssertionError("does not end")

    # --- looking --------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        return self.run.state

    @property
    def is_ended(self) -> bool:
        return self.run.is_ended

    @property
    def output(self) -> Any:
        return self.run.output

    @property
    def error(self) -> dict[str, Any]:
        assert self.run.error is not None
        return self.run.error

    @property
    def decisions(self) -> list[RunDecision]:
        return [decision for _, decisions in self.journal for decision in decisions]

    def of_kind(self, kind: type) -> list[Any]:
        return [decision for decision in self.decisions if isinstance(decision, kind)]

    def at(self, node: str) -> list[int]:
        """The tokens under way at a node, by number; not those that wait at a join after it."""
        return [
            number
            for number, token in self.run.tokens.items()
            if token.node == node and token.state is not TokenState.WAITING_FOR_SIBLINGS
        ]

    def visits(self, node: str) -> int:
        """How often a node was begun, compensation left out."""
        return sum(
            1 for one in self.of_kind(CreateToken) if one.node == node and one.compensates is None
        )

    def endings(self) -> int:
        return sum(1 for one in self.of_kind(SetRunState) if one.state in RUN_ENDED)

    def document(self, name: str = "state") -> Any:
        return self.run.context.documents[name]

    # --- rebuilding -----------------------------------------------------------------------------

    def rebuilt(self) -> Run:
        """The run as its journal gives it, events and decisions having been stored meanwhile."""
        run = new_run(self.graph, msgspec.json.decode(_encode(self.input)))
        for event, decisions in self.journal:
            stored = msgspec.json.decode(_encode(event), type=RunEvent)
            again = reduce(run, stored)
            assert _encode(again) == _encode(decisions)
        return run

    def restart(self) -> None:
        """Lose the run from memory; go on with the one the journal gives."""
        run = self.rebuilt()
        assert standing(run) == standing(self.run)
        self.run = run
