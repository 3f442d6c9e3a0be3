"""What the store has committed of functions, held against what their workers did.

The ledger reads the journal by SQL of its own after each commit. It knows what must be true of
every function, whichever process has died: see the `check_` methods and `note_effect`.
"""

from dataclasses import dataclass, field
from typing import Any

import apsw
import msgspec

from rota.core.workflow.decisions import ResumeFunction, RunDecision, SetRunState
from rota.core.workflow.events import FunctionStopped, OperationsReported, RunEvent, TaskEnded
from rota.core.workflow.functions.model import FUNCTION_TOKEN, WITHDRAWN, Operation, name_of
from rota.core.workflow.states import RUN_ENDED
from tests.simulation.trace import Violation

_event = msgspec.json.Decoder(RunEvent).decode
_decisions = msgspec.json.Decoder(list[RunDecision]).decode
UNDO = "undo/"
LOCAL = frozenset({"step", "once"})
JOURNAL = "SELECT run, number, event, decisions FROM journal ORDER BY run, number"
FUNCTION_TASKS = """
SELECT run_task.run, count(*) FROM task JOIN run_task ON run_task.task = task.id
 WHERE run_task.token = 0 GROUP BY run_task.run
"""


def key_of(path: str) -> str:
    """The name of an operation, which is used once in a script; that of an undo says so."""
    return f"undo {name_of(path)}" if path.startswith(UNDO) else name_of(path)


@dataclass
class Play:
    """One replay of a function: what it has seen, in order, in the memory of one process."""

    run_id: int
    seen: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)  # of these, the results of its own steps
    asked: dict[str, int] = field(default_factory=dict)  # step -> results seen when it was called
    is_over: bool = False  # another one goes on in its place


@dataclass
class RunLedger:
    """What is committed of one run."""

    entries: int = 0
    reported: int = 0
    seen: list[str] = field(default_factory=list)  # ends, in the order of the log
    done: set[str] = field(default_factory=set)  # steps with an outcome
    is_held: bool = False  # a task runs the function, or waits for a worker
    outcomes: list[str] = field(default_factory=list)

    def note(self, event: RunEvent, decisions: list[RunDecision]) -> None:
        self.entries += 1
        match event:
            case OperationsReported():
                self._take(event.operations)
            case FunctionStopped():
                self.is_held = False
                report = event.report
                self._take(report.operations[self.reported - report.after :])
            case TaskEnded(token=token) if token == FUNCTION_TOKEN:
                self.is_held = False
            case _:
                pass
        for one in decisions:
            if isinstance(one, ResumeFunction):
                self.is_held = True
            elif isinstance(one, SetRunState) and one.state in RUN_ENDED:
                self.is_held = False
                self.outcomes.append(str(one.state))

    def _take(self, operations: list[Operation]) -> None:
        for one in operations:
            self.reported += 1
            is_withdrawn = one.error is not None and one.error.get("type") == WITHDRAWN
            is_own_end = one.kind in LOCAL and one.state in {"done", "failed"}
            if is_withdrawn or not (is_own_end or one.state == "delivered"):
                continue
            key = key_of(one.path)
            if is_own_end:
                if key in self.done:
                    raise Violation(f"step {key!r} has two outcomes")
                self.done.add(key)
            self.seen.append(key)


class Ledger:
    def __init__(self) -> None:
        self.runs: dict[int, RunLedger] = {}
        self.plays: list[Play] = []
        self.effects: list[str] = []

    def begin_play(self, run_id: int) -> Play:
        """Begin a replay. Of those before it, only what is committed counts from now on."""
        recorded = len(self.of(run_id).seen)
        for one in self.plays:
            if one.run_id == run_id and not one.is_over:
                one.is_over = True
                del one.seen[recorded:]
        play = Play(run_id)
        self.plays.append(play)
        return play

    def of(self, run_id: int) -> RunLedger:
        return self.runs.setdefault(run_id, RunLedger())

    def read(self, connection: apsw.Connection) -> None:
        """Take up what a commit has added to the journals, and check the whole."""
        rows: list[Any] = connection.execute(JOURNAL).fetchall()
        for run_id, number, event, decisions in rows:
            run = self.of(run_id)
            if number > run.entries:
                run.note(_event(bytes(event)), _decisions(bytes(decisions)))
        counts: list[Any] = connection.execute(FUNCTION_TASKS).fetchall()
        tasks: dict[int, int] = dict(counts)
        for run_id, run in self.runs.items():
            self._check_slot(run, tasks.get(run_id, 0))
            self._check_outcomes(run)
        for play in self.plays:
            self.check_order(play)

    @staticmethod
    def _check_slot(run: RunLedger, tasks: int) -> None:
        if tasks != run.is_held:
            raise Violation(f"a function with {run.is_held=} has {tasks} tasks")

    @staticmethod
    def _check_outcomes(run: RunLedger) -> None:
        if len(run.outcomes) > 1:
            raise Violation(f"a run has ended several times: {run.outcomes}")

    def check_order(self, play: Play) -> None:
        """A function sees ends in the order of the log, when it is recorded and replayed."""
        recorded = self.of(play.run_id).seen
        both = min(len(recorded), len(play.seen))
        if recorded[:both] != play.seen[:both]:
            raise Violation(f"the log has {recorded}, and the function has seen {play.seen}")

    def note_effect(self, play: Play, key: str) -> None:
        """The function of a step begins."""
        if play.is_over:
            raise Violation(f"step {key!r} begins in a process that has lost the function")
        done = self.of(play.run_id).done
        if key in done:
            raise Violation(f"step {key!r} runs again, and is committed")
        # A step of another branch may have ended since this one was called.
        before = play.steps[: play.asked.get(key, len(play.steps))]
        missing = [one for one in before if one not in done]
        if missing:
            raise Violation(f"step {key!r} begins before {missing} are committed")
        self.effects.append(key)

    def note_seen(self, play: Play, key: str, *, is_step: bool) -> None:
        """The function goes on with the end of an operation."""
        if play.is_over:
            return
        play.seen.append(key)
        if is_step:
            play.steps.append(key)
        self.check_order(play)
