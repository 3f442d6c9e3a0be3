"""Functions that are scripts: small programs whose worker, tasks and signals a test plays.

A script is a list of statements. A worker runs it as the SDK runs a function: it replays the log,
reports what it does, and stops when it has to wait. It may crash at any moment, and its reports may
come twice.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from rota.core.workflow.decisions import AskChild, AskTasks, ResumeFunction, RunDecision
from rota.core.workflow.events import (
    ChildEnded,
    FunctionStopped,
    OperationsReported,
    RunEvent,
    RunStarted,
    Signalled,
    TaskEnded,
    TimerFired,
)
from rota.core.workflow.functions import operations as rules
from rota.core.workflow.functions.model import (
    FUNCTION_TOKEN,
    CallRequest,
    ChildRequest,
    CodeDefinition,
    EventRequest,
    FunctionReport,
    MapRequest,
    Operation,
    Request,
    SleepRequest,
)
from rota.core.workflow.functions.reducer import new_run, reduce
from rota.core.workflow.functions.run import CodeRun, Function, decode_entry, item_token

Kind = Literal["step", "call", "map", "run", "sleep", "event"]
Statement = tuple[Kind, ...]  # what it does side by side, then it waits for all of it

FUNCTION = Function(CodeDefinition(name="f", fingerprint="f" * 16, source="def f(ctx): ..."), 1)
SPAN_MS = 1_000


def paths_of(script: tuple[Statement, ...]) -> Iterator[list[tuple[str, Kind]]]:
    for number, statement in enumerate(script):
        yield [(f"all#{number}.{place}/{kind}#1", kind) for place, kind in enumerate(statement)]


def request_of(path: str, kind: Kind) -> Request:
    match kind:
        case "call":
            return CallRequest(task="t", payload=path)
        case "map":
            return MapRequest(
                call=CallRequest(task="t"), payloads=[path, path, path], max_parallel=2
            )
        case "run":
            return ChildRequest(workflow="w", input=path)
        case "sleep":
            return SleepRequest(due_at_ms=SPAN_MS)
        case _:
            return EventRequest(name=path)


def value_of(path: str, kind: Kind) -> Any:
    """The result of an operation, which does not depend on when it ends."""
    match kind:
        case "sleep":
            return None
        case "map":
            return [f"{path}!"] * 3
        case _:
            return f"{path}!"


def outcome_of(script: tuple[Statement, ...]) -> Any:
    return [[value_of(path, kind) for path, kind in group] for group in paths_of(script)]


class ScriptWorker:
    """One attempt of the task of a function: it replays the log, and goes on from there."""

    def __init__(self, script: tuple[Statement, ...], log: list[Operation], reported: int) -> None:
        self._groups = [*paths_of(script)]
        self._reported = reported
        self._results: dict[str, Any] = {}
        self._ended: dict[str, Any] = {}  # and not delivered
        self._asked: set[str] = set()
        remote: set[str] = set()
        for one in log:
            match one.state:
                case "pending":
                    self._asked.add(one.path)
                    remote.add(one.path)
                case "done" if one.path in remote:
                    self._ended[one.path] = one.result
                case "done":
                    self._results[one.path] = one.result
                case "delivered":
                    self._results[one.path] = self._ended.pop(one.path)
                case _:
                    raise AssertionError(one)

    def reports(self) -> Iterator[tuple[int, list[Operation], FunctionReport | None]]:
        """What it reports, one after the other; the last one is how it stops."""
        held: list[Operation] = []
        for group in self._groups:
            for path, kind in group:
                if path in self._results or path in self._asked:
                    continue
                if kind == "step":
                    result = value_of(path, kind)
                    self._results[path] = result
                    held.append(Operation(path=path, kind="step", state="done", result=result))
                    yield self._reported, held, None
                    self._reported += len(held)
                    held = []
                else:
                    request = request_of(path, kind)
                    held.append(Operation(path=path, kind=kind, state="pending", request=request))
                    self._asked.add(path)
            for path, kind in group:
                if path in self._ended:
                    self._results[path] = self._ended.pop(path)
                    held.append(Operation(path=path, kind=kind, state="delivered"))
            missing = [path for path, _ in group if path not in self._results]
            if missing:
                stop = FunctionReport(after=self._reported, operations=held, waits=[missing])
                yield self._reported, held, stop
                return
        output = [[self._results[path] for path, _ in group] for group in self._groups]
        stop = FunctionReport(after=self._reported, operations=held, output=output)
        yield self._reported, held, stop


@dataclass
class World:
    """A run of a script, and everything around it that may happen next."""

    script: tuple[Statement, ...]
    run: CodeRun = field(default_factory=lambda: new_run(FUNCTION, None))
    journal: list[tuple[RunEvent, bytes]] = field(default_factory=list)
    tasks: list[int] = field(default_factory=list)  # tokens of tasks under way
    children: list[int] = field(default_factory=list)
    attempt: Iterator[tuple[int, list[Operation], FunctionReport | None]] | None = None
    resumes: int = 0
    now_ms: int = 0
    last: tuple[int, list[Operation]] | None = None  # reported last
    signalled: set[str] = field(default_factory=set)
    crashes: int = 0

    def start(self) -> None:
        self.feed(RunStarted(0, None))

    def feed(self, event: RunEvent) -> None:
        before = [*self.run.log]
        decisions = reduce(self.run, event)
        assert self.run.log[: len(before)] == before, "the log was not only appended to"
        self.journal.append((event, msgspec.json.encode(decisions)))
        for one in decisions:
            self._carry_out(one)

    def _carry_out(self, decision: RunDecision) -> None:
        match decision:
            case ResumeFunction():
                assert self.attempt is None, "the function was resumed while it ran"
                self.resumes += 1
                self._begin()
            case AskTasks(number=number):
                request = self.run.pending[self.run.tokens[number]].request
                if isinstance(request, MapRequest):
                    items = range(decision.first, decision.first + decision.count)
                    self.tasks += [item_token(number, index) for index in items]
                else:
                    self.tasks.append(number)
            case AskChild(number=number):
                self.children.append(number)
            case _:
                pass

    def _begin(self) -> None:
        log = [decode_entry(entry) for entry in self.run.log]
        self.attempt = ScriptWorker(self.script, log, self.run.reported).reports()

    # --- what may happen ----------------------------------------------------------------------

    def choices(self) -> list[str]:
        found = ["work"] if self.attempt is not None else []
        if self.attempt is not None and self.crashes < 5:
            found.append("crash")
        if self.last is not None and self.attempt is not None:
            found.append("repeat")
        found += ["task"] * bool(self.tasks) + ["child"] * bool(self.children)
        found += ["clock"] * (self.now_ms < SPAN_MS)
        found += ["signal"] * bool(self._unsignalled())
        return found

    def _unsignalled(self) -> list[str]:
        return [
            path
            for group in paths_of(self.script)
            for path, kind in group
            if kind == "event" and path not in self.signalled
        ]

    def happen(self, choice: str, pick: int) -> None:
        match choice:
            case "work":
                self._work()
            case "crash":
                self._crash()
            case "repeat":
                assert self.last is not None
                self._report(*self.last)
            case "task":
                self._end_task(self.tasks.pop(pick % len(self.tasks)))
            case "child":
                token = self.children.pop(pick % len(self.children))
                path = self.run.tokens[token]
                self.feed(ChildEnded(self.now_ms, token, ok=True, result=f"{path}!"))
            case "clock":
                self.now_ms = SPAN_MS
                for kind, number in [*self.run.timers]:
                    self.feed(TimerFired(self.now_ms, kind, number))
            case _:
                paths = self._unsignalled()
                path = paths[pick % len(paths)]
                self.signalled.add(path)
                self.feed(Signalled(self.now_ms, path, f"{path}!"))

    def _work(self) -> None:
        assert self.attempt is not None
        after, operations, stop = next(self.attempt)
        if stop is None:
            self.last = (after, operations)
            self._report(after, operations)
        else:
            self.attempt, self.last = None, None
            self.feed(FunctionStopped(self.now_ms, stop))

    def _report(self, after: int, operations: list[Operation]) -> None:
        """As the engine does: what is known already is left out."""
        new = rules.unknown_part(self.run, after, operations)
        assert new is not None
        if new:
            self.feed(OperationsReported(self.now_ms, new))

    def _crash(self) -> None:
        """The attempt is lost; the task has further attempts, which read the log."""
        self.crashes += 1
        self.last = None
        self._begin()

    def _end_task(self, token: int) -> None:
        assert token != FUNCTION_TOKEN
        path = self.run.tokens[token % 2**32]
        self.feed(TaskEnded(self.now_ms, token, ok=True, result=f"{path}!"))


def replayed(journal: list[tuple[RunEvent, bytes]]) -> CodeRun:
    """The run that the events lead to; their decisions must be those that were stored."""
    run = new_run(FUNCTION, None)
    for event, decisions in journal:
        stored = msgspec.json.decode(msgspec.json.encode(event), type=RunEvent)
        assert msgspec.json.encode(reduce(run, stored)) == decisions
    return run
