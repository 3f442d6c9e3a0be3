"""Functions that fail, undo, race and are cancelled, as scripts whose surroundings a test plays.

A worker runs the script as the SDK runs a function: it replays the log, reports what it does, gives
up the loser of a race, and undoes its steps when it fails or is cancelled.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from rota.core.workflow.decisions import (
    AskChild,
    AskTasks,
    CancelChild,
    CancelTask,
    ResumeFunction,
    RunDecision,
)
from rota.core.workflow.events import (
    ChildEnded,
    FunctionStopped,
    OperationsReported,
    RunCancelRequested,
    RunEvent,
    RunStarted,
    Signalled,
    TaskEnded,
    TimerFired,
)
from rota.core.workflow.functions import operations as rules
from rota.core.workflow.functions.model import (
    FUNCTION_TOKEN,
    WITHDRAWN,
    CallRequest,
    ChildRequest,
    EventRequest,
    FunctionReport,
    MapRequest,
    Operation,
    OperationKind,
    Request,
    SleepRequest,
)
from rota.core.workflow.functions.reducer import new_run, reduce
from rota.core.workflow.functions.run import CodeRun, decode_entry, item_token
from rota.core.workflow.states import RunState
from tests.core.workflow.scripts import FUNCTION, replayed

Kind = Literal["step", "call", "map", "run", "sleep", "event", "race"]
REQUESTS: dict[str, Request] = {
    "call": CallRequest(task="t"),
    "map": MapRequest(call=CallRequest(task="t"), payloads=[1, 2, 3], max_parallel=2),
    "run": ChildRequest(workflow="w"),
    "sleep": SleepRequest(due_at_ms=100),
    "event": EventRequest(name="go", timeout_ms=50),
}
CANCELLED = {"type": "cancelled", "message": "enough"}
BROKEN = {"type": "E", "message": "broken"}


@dataclass(frozen=True)
class Statement:
    kind: Kind
    is_guarded: bool = False  # the function goes on when it fails
    can_undo: bool = False


Script = tuple[Statement, ...]
Report = tuple[int, list[Operation], FunctionReport | None]


class Stopped(Exception):  # noqa: N818 - leaves the script
    """The function fails or is cancelled."""


class RacingWorker:
    """One attempt of the task of a function."""

    def __init__(self, script: Script, run: CodeRun) -> None:
        self.cancelled = run.cancelled
        self._script = script
        self._reported = run.reported
        self._held: list[Operation] = []
        self._asked: dict[str, OperationKind] = {}
        self._ended: dict[str, Operation] = {}  # in the order of the log, and not seen
        self._seen: dict[str, Operation] = {}
        self._undoable: list[str] = []
        for one in [decode_entry(entry) for entry in run.log]:
            self._read(one)

    def _read(self, one: Operation) -> None:
        if one.state == "pending":
            self._asked[one.path] = one.kind
        elif one.state == "delivered":
            self._see(self._ended.pop(one.path))
        elif _is_withdrawal(one):
            self._ended.pop(one.path, None)
            self._seen[one.path] = one
        elif one.path in self._asked:
            self._ended[one.path] = one
        else:
            self._see(one)

    def _see(self, one: Operation) -> None:
        self._seen[one.path] = one
        if one.can_undo:
            self._undoable.append(one.path)

    def reports(self) -> Iterator[Report]:
        """What it reports, one after the other; the last one is how it stops."""
        output: list[Any] = []
        try:
            for number, statement in enumerate(self._script):
                waits = yield from self._perform(number, statement, output)
                if waits is not None:
                    yield self._stop(waits=waits)
                    return
        except Stopped as stopped:
            yield from self._undo()
            yield self._stop(error=stopped.args[0])
        else:
            yield self._stop(output=output)

    def _perform(
        self, number: int, statement: Statement, output: list[Any]
    ) -> "Iterator[Report] | Any":
        path = f"{number}/{statement.kind}#1"
        if statement.kind == "step":
            if path not in self._seen:
                self._check_cancelled()
                done = Operation(
                    path=path, kind="step", state="done", result=path, can_undo=statement.can_undo
                )
                self._see(done)
                yield self._report(done)
            output.append(path)
            return None
        paths = [path] if statement.kind != "race" else [f"{number}/event#1", f"{number}/sleep#1"]
        waits = self._ask(paths)
        if waits is not None:
            return waits
        if all(_is_withdrawal(self._seen.get(one)) for one in paths):
            raise Stopped(CANCELLED)  # by a worker that died while it was undoing
        for one in paths:
            end = self._seen[one]
            if _is_withdrawal(end):
                continue
            output.append([one, end.result, end.error and end.error["type"]])
            if end.state == "failed" and not statement.is_guarded:
                raise Stopped(BROKEN)
        return None

    def _ask(self, paths: list[str]) -> list[list[str]] | None:
        """Ask for operations, and take up the first that has ended; None: it goes on."""
        if any(one in self._seen for one in paths):
            return None
        for path in paths:
            if path not in self._asked:
                self._check_cancelled()
                kind: Any = path.partition("/")[2].partition("#")[0]
                self._asked[path] = kind
                self._hold(path, "pending", request=REQUESTS[kind])
        winner = next((one for one in self._ended if one in paths), None)
        if winner is None:
            self._check_cancelled()
            return [[one] for one in paths]
        self._see(self._ended.pop(winner))
        self._hold(winner, "delivered")
        for path in paths:
            if path != winner:
                self._withdraw(path)
        return None

    def _withdraw(self, path: str) -> None:
        self._ended.pop(path, None)
        self._hold(path, "failed", error={"type": WITHDRAWN, "message": "late"})
        self._seen[path] = self._held[-1]

    def _check_cancelled(self) -> None:
        if self.cancelled is not None:
            raise Stopped(CANCELLED)

    def _undo(self) -> Iterator[Report]:
        for path in [one for one in self._asked if one not in self._seen]:
            self._withdraw(path)
        for path in reversed(self._undoable):
            if f"undo/{path}" not in self._seen:
                yield self._report(Operation(path=f"undo/{path}", kind="step", state="done"))

    def _hold(self, path: str, state: Any, **more: Any) -> None:
        operation = Operation(path=path, kind=self._asked[path], state=state, **more)
        self._held.append(operation)

    def _report(self, operation: Operation) -> Report:
        operations, self._held = [*self._held, operation], []
        after, self._reported = self._reported, self._reported + len(operations)
        return after, operations, None

    def _stop(self, **how: Any) -> Report:
        operations, self._held = self._held, []
        report = FunctionReport(after=self._reported, operations=operations, **how)
        return self._reported, operations, report


@dataclass
class RacingWorld:
    """A run of a script, and everything around it that may happen next."""

    script: Script
    run: CodeRun = field(default_factory=lambda: new_run(FUNCTION, None))
    journal: list[tuple[RunEvent, bytes]] = field(default_factory=list)
    tasks: list[int] = field(default_factory=list)
    children: list[int] = field(default_factory=list)
    worker: RacingWorker | None = None
    attempt: Iterator[Report] | None = None
    last: tuple[int, list[Operation]] | None = None
    now_ms: int = 0
    signals: int = 0
    crashes: int = 0
    is_cancelled: bool = False

    def start(self) -> None:
        self.feed(RunStarted(0, None))

    def feed(self, event: RunEvent) -> None:
        before = [*self.run.log]
        was_ended = self.run.is_ended
        decisions = reduce(self.run, event)
        assert self.run.log[: len(before)] == before, "the log was not only appended to"
        assert not (was_ended and decisions), "something follows from an ended run"
        self.journal.append((event, msgspec.json.encode(decisions)))
        for one in decisions:
            self._carry_out(one)
        if self.run.is_ended:
            self.attempt = self.worker = None

    def _carry_out(self, decision: RunDecision) -> None:
        match decision:
            case ResumeFunction():
                assert self.attempt is None, "the function was resumed while it ran"
                self._begin()
            case AskTasks(number=number):
                pending = self.run.pending.get(self.run.tokens.get(number, ""))
                if pending is not None and pending.kind == "map":
                    items = range(decision.first, decision.first + decision.count)
                    self.tasks += [item_token(number, index) for index in items]
                elif pending is not None:
                    self.tasks.append(number)
            case AskChild(number=number):
                self.children.append(number)
            case CancelTask(number=number):
                self.tasks = [one for one in self.tasks if one != number]
            case CancelChild(number=number):
                self.children.remove(number)
            case _:
                pass

    def _begin(self) -> None:
        self.worker = RacingWorker(self.script, self.run)
        self.attempt = self.worker.reports()
        self.last = None

    # --- what may happen ----------------------------------------------------------------------

    def choices(self) -> list[str]:
        found = ["work"] * 2 if self.attempt is not None else []
        if self.attempt is not None and self.crashes < 4:
            found += ["crash"] + ["lose"] * (self.run.length > self.run.log_at_resume)
        found += ["repeat"] * (self.last is not None and self.attempt is not None)
        for name, is_possible in (
            ("task", bool(self.tasks)),
            ("broken task", bool(self.tasks)),
            ("child", bool(self.children)),
            ("broken child", bool(self.children)),
            ("clock", self.now_ms < 200),
            ("signal", self.signals < 5),
            ("cancel", not self.is_cancelled),
        ):
            found += [name] * is_possible
        return found

    def happen(self, choice: str, pick: int) -> None:
        match choice:
            case "work":
                self._work()
            case "crash":
                self.crashes += 1
                self._begin()
            case "lose":
                self.crashes += 1
                self.attempt = None
                self.feed(TaskEnded(self.now_ms, FUNCTION_TOKEN, ok=False, error=BROKEN))
            case "repeat":
                assert self.last is not None
                self._report(*self.last)
            case "task" | "broken task":
                token, is_ok = self.tasks.pop(pick % len(self.tasks)), choice == "task"
                error = None if is_ok else BROKEN
                self.feed(TaskEnded(self.now_ms, token, ok=is_ok, result="done", error=error))
            case "child" | "broken child":
                token, is_ok = self.children.pop(pick % len(self.children)), choice == "child"
                error = None if is_ok else BROKEN
                self.feed(ChildEnded(self.now_ms, token, ok=is_ok, result="done", error=error))
            case "clock":
                self._turn_clock()
            case "signal":
                self.signals += 1
                self.feed(Signalled(self.now_ms, "go", self.signals))
            case _:
                self.is_cancelled = True
                mode: Any = "force" if pick == 0 else "undo"
                self.feed(RunCancelRequested(self.now_ms, "enough", mode))
                assert self.run.is_ended or self.attempt is not None, "nothing cancels it"

    def _turn_clock(self) -> None:
        self.now_ms += 50
        due = [key for key, due_at_ms in self.run.timers.items() if due_at_ms <= self.now_ms]
        for kind, number in due:
            self.feed(TimerFired(self.now_ms, kind, number))

    def _work(self) -> None:
        assert self.attempt is not None
        after, operations, stop = next(self.attempt)
        if stop is None:
            self.last = (after, operations)
            self._report(after, operations)
            if self.worker is not None:
                self.worker.cancelled = self.run.cancelled  # in the answer to its report
        else:
            self.attempt = self.worker = self.last = None
            self.feed(FunctionStopped(self.now_ms, stop))

    def _report(self, after: int, operations: list[Operation]) -> None:
        new = rules.unknown_part(self.run, after, operations)
        assert new is not None
        if new:
            self.feed(OperationsReported(self.now_ms, new))


# --- what must be true of a run that has ended ----------------------------------------------------


def _is_withdrawal(one: Operation | None) -> bool:
    return one is not None and one.error is not None and one.error["type"] == WITHDRAWN


def check_nothing_left(world: RacingWorld) -> None:
    run = world.run
    assert (world.tasks, world.children) == ([], [])
    assert (run.pending, run.tokens, run.timers, run.waiting) == ({}, {}, {}, {})
    assert not run.is_held
    if run.state is RunState.CANCELLED:
        assert world.is_cancelled
        assert run.error is not None
        assert run.error["type"] == CANCELLED["type"]


def check_undone(world: RacingWorld) -> None:
    """What a failed or cancelled function did is undone in reverse, or listed."""
    entries = world.run.operations()
    done = [one.path for one in entries if one.can_undo and one.state == "done"]
    undone = [one.path.removeprefix("undo/") for one in entries if one.path.startswith("undo/")]
    if world.run.state is RunState.COMPLETED:
        assert undone == []
        return
    assert world.run.error is not None
    left = [one["path"] for one in world.run.error.get("not_undone", ())]
    assert undone == done[::-1][: len(undone)], "not in reverse"
    assert sorted(undone + left) == sorted(done)


def check_ends(world: RacingWorld) -> None:
    """An operation ends once, and is seen once or given up."""
    entries = world.run.operations()
    withdrawn = [one.path for one in entries if _is_withdrawal(one)]
    ended = [
        one.path for one in entries if one.state in {"done", "failed"} and not _is_withdrawal(one)
    ]
    seen = [one.path for one in entries if one.state == "delivered"]
    for paths in (withdrawn, ended, seen):
        assert len(set(paths)) == len(paths)
    assert not set(withdrawn) & set(seen)
    assert set(seen) <= set(ended)


def check_signals(world: RacingWorld) -> None:
    """Each signal is seen once, in order, and none is lost."""
    entries = [one for one in world.run.operations() if one.kind == "event"]
    withdrawn = {one.path for one in entries if _is_withdrawal(one)}
    results = {one.path: one.result for one in entries if one.state == "done"}
    seen = [
        results[one.path] for one in entries if one.state == "delivered" and one.path in results
    ]
    taken = [value for path, value in results.items() if path not in withdrawn]
    kept = [one.payload for signals in world.run.signals.values() for one in signals]
    assert seen == sorted(seen)
    assert sorted(taken + kept) == [*range(1, world.signals + 1)]


def check_replay(world: RacingWorld) -> None:
    """The events lead to the same decisions again."""
    again, run = replayed(world.journal), world.run
    assert (again.log, again.reported) == (run.log, run.reported)
    assert (again.state, again.error, again.output) == (run.state, run.error, run.output)


CHECKS = (check_nothing_left, check_undone, check_ends, check_signals, check_replay)
