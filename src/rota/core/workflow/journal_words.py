"""The journal in words: events and decisions by the names of nodes, branches and operations.

A journal holds the numbers of tokens and scopes. People know nodes and branches: token 172 is
`extract[171]`, the branch with that index at the node `extract`, and `rows[3][0]` is in a branch of
a branch. An operation of a function has the name of its path, and an item of a map has its index.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, assert_never

from msgspec import UNSET

from rota.core.workflow.decisions import CreateToken, OpenScope, RunDecision
from rota.core.workflow.events import (
    BranchesAdded,
    ChildEnded,
    FunctionStopped,
    OperationsReported,
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
)
from rota.core.workflow.functions.model import FUNCTION_TOKEN, FunctionReport, Operation
from rota.core.workflow.functions.run import ITEM_SPAN
from rota.core.workflow.runtime.tokens import Place
from rota.core.workflow.states import BranchState

MOST_NAMED = 4  # operations of one entry
Progress = tuple[int, int]  # how many of a node's branches, or of a map's items, are done, of all


def token_name(node: str, stack: Sequence[Place] = (), *, is_undoing: bool = False) -> str:
    """The name of a token: its node, and the index of each branch that it is in."""
    name = node + "".join(f"[{index}]" for _, index in stack)
    return f"the undoing of {name}" if is_undoing else name


class JournalNames:
    """The names of a run's tokens and scopes, by number."""

    def __init__(self) -> None:
        self.tokens: dict[int, str] = {}
        self.scopes: dict[int, str] = {}

    def learn(self, decisions: Iterable[RunDecision]) -> None:
        """Take the names of the tokens and scopes that an entry makes."""
        for decision in decisions:
            match decision:
                case CreateToken():
                    self.tokens[decision.number] = token_name(
                        decision.node,
                        decision.stack,
                        is_undoing=decision.compensates is not None,
                    )
                case OpenScope():
                    self.scopes[decision.number] = token_name(decision.key, decision.stack)
                case _:
                    pass

    def token(self, number: int) -> str:
        if number == FUNCTION_TOKEN:
            return "the function"
        if number >= ITEM_SPAN:
            return f"{self.token(number % ITEM_SPAN)}[{number // ITEM_SPAN - 1}]"
        return self.tokens.get(number) or f"token {number}"

    def scope(self, number: int) -> str:
        return self.scopes.get(number) or f"scope {number}"


# --- events -------------------------------------------------------------------------------------


def event_words(  # noqa: C901, PLR0911, PLR0912 - a table
    event: RunEvent, names: JournalNames, progress: Progress | None = None
) -> str:
    """An event in words; `progress` is that of the node or map whose task or run has ended."""
    match event:
        case RunStarted():
            return f"the run started at {event.from_node}" if event.from_node else "the run started"
        case TaskEnded():
            return _ended(names.token(event.token), event, progress)
        case ChildEnded():
            return f"the child run of {_ended(names.token(event.token), event, progress)}"
        case Signalled():
            sender = f" from run {event.sender}" if event.sender else ""
            return f"signal {event.name} arrived{sender}"
        case SignalSent(error=None):
            return f"the signal of {names.token(event.token)} was delivered"
        case SignalSent():
            return f"the signal of {names.token(event.token)} was refused: {_reason(event.error)}"
        case TimerFired():
            return _timer(event, names)
        case RunCancelRequested():
            return _with_reason("the run was cancelled", event.reason)
        case RunPaused():
            return "the run was paused"
        case RunResumed():
            return "the run was resumed" + (" with its new code" if event.accept else "")
        case RunRetried():
            return "the run was retried"
        case ScopeEndRequested():
            done = "completed" if event.action == "complete" else "cancelled"
            return _with_reason(f"{names.scope(event.scope)} was {done}", event.reason)
        case BranchesAdded():
            count = f"{len(event.items)} branch{'' if len(event.items) == 1 else 'es'}"
            added = f"{count} added to {names.scope(event.scope)}"
            by = "" if event.token is None else f" by {names.token(event.token)}"
            return added + by + (", the last ones" if event.is_last else "")
        case OperationsReported():
            return f"the function did {_operations(event.operations)}"
        case FunctionStopped():
            return _stopped(event.report)
        case _:
            assert_never(event)


def _ended(name: str, event: TaskEnded | ChildEnded, progress: Progress | None) -> str:
    if isinstance(event, TaskEnded) and event.cancelled:
        return f"{name} cancelled"
    if not event.ok:
        return f"{name} failed: {_reason(event.error)}"
    return f"{name} done" + ("" if progress is None else f", {progress[0]} of {progress[1]}")


def _timer(event: TimerFired, names: JournalNames) -> str:
    match event.kind:
        case "run":
            return "the time limit of the run has passed"
        case "slice":
            return "the run continued with its next steps"
        case "join":
            return f"the time limit of the join of {names.scope(event.number)} has passed"
        case "sleep":
            return f"{names.token(event.number)} has slept"
        case "wait":
            return f"the time limit of {names.token(event.number)} has passed"
        case _:
            assert_never(event.kind)


def _stopped(report: FunctionReport) -> str:
    did = f" after {_operations(report.operations)}" if report.operations else ""
    if report.divergence is not None:
        return f"the function diverged from its log: {report.divergence.message}"
    if report.waits:
        paths = [path for group in report.waits for path in group]
        return f"the function waits for {_listed(paths)}{did}"
    if report.error is not None:
        return f"the function failed: {_reason(report.error)}{did}"
    return f"the function {'returned' if report.restart is UNSET else 'restarted'}{did}"


def _operations(operations: Sequence[Operation]) -> str:
    return _listed([f"{one.path} {one.state}" for one in operations])


def _listed(words: Sequence[str]) -> str:
    more = f" and {len(words) - MOST_NAMED} more" if len(words) > MOST_NAMED else ""
    return (", ".join(words[:MOST_NAMED]) or "nothing") + more


def _reason(error: Mapping[str, Any] | None) -> str:
    found = (error or {}).get("message") or (error or {}).get("type")
    return str(found or "no reason given")


def _with_reason(text: str, reason: str) -> str:
    return f"{text}: {reason}" if reason else text


# --- decisions ----------------------------------------------------------------------------------

# Each kind of decision in words. `describe` fills in its fields, and the names of its numbers.
WORDS: dict[str, str] = {
    "CreateToken": "{token} begins",
    "SetTokenState": "{token} is {state}",
    "DispatchTask": "task {task} is queued for {token}",
    "CancelTask": "the task of {token} is cancelled",
    "StartChild": "a run of {workflow} starts for {token}",
    "CancelChild": "the child run of {token} is cancelled",
    "PauseChild": "the child run of {token} is paused",
    "ResumeChild": "the child run of {token} is resumed",
    "OpenScope": "{scope} fans out into {total} branches",
    "ExtendScope": "{scope} gets {count} more branches",
    "SetBranchState": "branch {index} of {scope} {state}",
    "CloseScope": "{scope} closes: {because}",
    "WriteContext": "{path} is written",
    "SetTimer": "a {kind} timer is set for {timed}",
    "DropTimer": "the {kind} timer of {timed} is dropped",
    "KeepSignal": "signal {name} is kept",
    "TakeSignal": "signal {name} is taken",
    "SendSignal": "signal {name} of {token} is sent",
    "CountIteration": "round {count} of {transition}",
    "SetRunState": "the run is {state}",
    "ResumeFunction": "the function is resumed after {reported} entries",
    "AskTasks": "{count} tasks are queued for {token}",
    "AskChild": "a run starts for {token}",
    "EndOperation": "{token} is {state}",
    "DropOperations": "operations are dropped: {because}",
    "RestartFunction": "the function restarts, restart {restarts}",
    "WarnOperations": "the function has {count} operations",
    "Considered": "{transition} {taken}: {because}",
}
# What has become of a branch.
BRANCH_WORDS: dict[BranchState, str] = {
    BranchState.WAITING: "waits for its turn",
    BranchState.LIVE: "begins",
    BranchState.ARRIVED: "has arrived",
    BranchState.ENDED: "has ended",
    BranchState.FAILED: "has failed",
    BranchState.CANCELLED: "is cancelled",
}
_OF_SCOPES = frozenset({"OpenScope", "ExtendScope", "CloseScope"})


class _Fields(dict[str, Any]):
    """A decision's fields; one that was left out is shown as a dash."""

    def __missing__(self, name: str) -> str:
        return "-"


def describe(decision: Mapping[str, Any], names: JournalNames) -> str:
    """A decision, as a journal holds it, in words."""
    fields = _Fields(decision)
    kind, number = str(fields["type"]), decision.get("number")
    if isinstance(number, int):
        fields["token"] = names.token(number)
        fields["scope"] = names.scope(number)
        fields["timed"] = _timed(str(decision.get("kind")), number, names)
    match kind:
        case "SetBranchState":
            fields["scope"] = names.scope(decision["scope"])
            fields["state"] = BRANCH_WORDS[BranchState(fields["state"])]
        case "SetTokenState":
            fields["state"] = str(fields["state"]).replace("_", " ")
        case "WriteContext":
            fields["path"] = ".".join(decision.get("path", ()))
        case "AskTasks":
            count = decision.get("count", 1)
            if count == 1:
                return f"a task is queued for {fields['token']}"
            fields["count"] = count
        case "Considered":
            fields["taken"] = "was taken" if decision.get("taken") else "was not taken"
        case _:
            pass
    return WORDS.get(kind, kind).format_map(fields)


def _timed(kind: str, number: int, names: JournalNames) -> str:
    if kind == "join":
        return f"the join of {names.scope(number)}"
    return names.token(number) if kind in {"sleep", "wait"} else "the run"


def numbers_in(event: RunEvent, decisions: Iterable[RunDecision]) -> tuple[set[int], set[int]]:
    """The numbers of the tokens and of the scopes that an entry mentions."""
    tokens, scopes = _mentioned(event)
    for decision in decisions:
        number = getattr(decision, "number", None)
        kind = type(decision).__name__
        is_join = getattr(decision, "kind", None) == "join"
        if number is not None:
            (scopes if kind in _OF_SCOPES or is_join else tokens).add(number)
        if kind == "SetBranchState":
            scopes.add(decision.scope)  # type: ignore[union-attr]  # of this kind alone
    return tokens, scopes


def _mentioned(event: RunEvent) -> tuple[set[int], set[int]]:
    match event:
        case TimerFired(kind="join"):
            return set(), {event.number}
        case TimerFired():
            return {event.number}, set()
        case ScopeEndRequested():
            return set(), {event.scope}
        case BranchesAdded():
            return set() if event.token is None else {event.token}, {event.scope}
        case TaskEnded() | ChildEnded() | SignalSent():
            return {event.token}, set()
        case _:
            return set(), set()
