"""The decisions of a run, with their reasons. Stored in its journal."""

from typing import Any

from msgspec import Struct

from rota.core.flows.model import Concurrencies, Rates
from rota.core.tasks.model import Backoff
from rota.core.workflow.definition.model import OpenRule
from rota.core.workflow.events import CancelMode, TimerKind
from rota.core.workflow.functions.model import OperationState
from rota.core.workflow.runtime.tokens import Place
from rota.core.workflow.states import BranchState, RunState, TokenState


class CreateToken(Struct, frozen=True, tag="CreateToken", omit_defaults=True):
    number: int
    node: str
    parent: int | None = None
    stack: tuple[Place, ...] = ()
    via: str | None = None  # the transition it came by
    compensates: int | None = None


class SetTokenState(Struct, frozen=True, tag="SetTokenState", omit_defaults=True):
    number: int
    state: TokenState
    error: dict[str, Any] | None = None


class DispatchTask(Struct, frozen=True, tag="DispatchTask", omit_defaults=True):
    number: int  # of the token
    task: str
    payload: Any = None
    queue: str = "default"
    priority: int = 0
    requires: tuple[str, ...] = ()
    timeout_ms: int | None = None
    max_attempts: int = 3
    backoff: Backoff | None = None
    concurrency: Concurrencies | None = None
    rate: Rates | None = None
    fair_key: str | None = None
    links: tuple[str, ...] = ()  # the spans of the tasks that were joined before it


class CancelTask(Struct, frozen=True, tag="CancelTask"):
    number: int


class StartChild(Struct, frozen=True, tag="StartChild", omit_defaults=True):
    number: int  # of the token
    workflow: str
    input: Any = None
    timeout_ms: int | None = None
    resumes: int | None = None  # the token whose run goes on for this one, if it still can


class CancelChild(Struct, frozen=True, tag="CancelChild", omit_defaults=True):
    number: int
    mode: CancelMode = "leave"


class PauseChild(Struct, frozen=True, tag="PauseChild"):
    number: int


class ResumeChild(Struct, frozen=True, tag="ResumeChild"):
    number: int


class OpenScope(Struct, frozen=True, tag="OpenScope", omit_defaults=True):
    number: int
    key: str
    node: str
    parent: int
    total: int
    stack: tuple[Place, ...] = ()
    max_parallel: int | None = None
    # Of each join whose quorum is an expression, by the node it leads to: the value.
    needed: dict[str, int] | None = None
    open: OpenRule | None = None


class ExtendScope(Struct, frozen=True, tag="ExtendScope", omit_defaults=True):
    """Add branches to an open scope."""

    number: int
    count: int
    is_last: bool = False  # it takes no further branches


class SetBranchState(Struct, frozen=True, tag="SetBranchState", omit_defaults=True):
    scope: int
    index: int
    state: BranchState
    join: str | None = None


class CloseScope(Struct, frozen=True, tag="CloseScope"):
    """Close a scope whose join has fired, or whose branches have ended."""

    number: int
    because: str


class WriteContext(Struct, frozen=True, tag="WriteContext", omit_defaults=True):
    """Write a value at a path of the branch named, or of the run."""

    path: tuple[str, ...]
    value: Any = None
    branch: Place | None = None


class SetTimer(Struct, frozen=True, tag="SetTimer"):
    kind: TimerKind
    number: int
    due_at_ms: int


class DropTimer(Struct, frozen=True, tag="DropTimer"):
    kind: TimerKind
    number: int


class KeepSignal(Struct, frozen=True, tag="KeepSignal", omit_defaults=True):
    name: str
    payload: Any = None


class TakeSignal(Struct, frozen=True, tag="TakeSignal"):
    name: str


class SendSignal(Struct, frozen=True, tag="SendSignal", omit_defaults=True):
    number: int  # of the token
    name: str
    run: str | None = None  # the run that it is for; None: the run itself
    payload: Any = None


class CountIteration(Struct, frozen=True, tag="CountIteration"):
    transition: str
    stack: tuple[Place, ...]
    count: int


class SetRunState(Struct, frozen=True, tag="SetRunState", omit_defaults=True):
    state: RunState
    output: Any = None
    error: dict[str, Any] | None = None


class Considered(Struct, frozen=True, tag="Considered", omit_defaults=True):
    """Record why a transition was taken or not. Changes nothing."""

    transition: str
    taken: bool
    because: str


# --- of runs whose workflow is a function; values are in the events, and not repeated here -------


class ResumeFunction(Struct, frozen=True, tag="ResumeFunction", omit_defaults=True):
    """Dispatch a task that runs the function, with everything that happened so far."""

    reported: int  # entries of its log that functions have reported
    links: tuple[str, ...] = ()  # the spans of the tasks that have ended since the last one


class AskTasks(Struct, frozen=True, tag="AskTasks", omit_defaults=True):
    """Dispatch the task of a call, or tasks for some items of a map."""

    number: int  # of the operation
    first: int = 0  # item
    count: int = 1


class AskChild(Struct, frozen=True, tag="AskChild", omit_defaults=True):
    """Start the child run of an operation."""

    number: int
    resumes: int | None = None  # the operation whose run goes on for this one, if it still can


class EndOperation(Struct, frozen=True, tag="EndOperation"):
    """Note the end of an operation that the coordinator was asked for."""

    number: int
    state: OperationState


class DropOperations(Struct, frozen=True, tag="DropOperations"):
    """Take operations out of the log: the function is to do them again."""

    paths: tuple[str, ...]
    because: str


class RestartFunction(Struct, frozen=True, tag="RestartFunction"):
    """Begin a new log, with a new input."""

    restarts: int


class WarnOperations(Struct, frozen=True, tag="WarnOperations"):
    """Warn that the log of a run comes near its limit."""

    count: int


RunDecision = (
    CreateToken
    | SetTokenState
    | DispatchTask
    | CancelTask
    | StartChild
    | CancelChild
    | PauseChild
    | ResumeChild
    | OpenScope
    | ExtendScope
    | SetBranchState
    | CloseScope
    | WriteContext
    | SetTimer
    | DropTimer
    | KeepSignal
    | TakeSignal
    | SendSignal
    | CountIteration
    | SetRunState
    | Considered
    | ResumeFunction
    | AskTasks
    | AskChild
    | EndOperation
    | DropOperations
    | RestartFunction
    | WarnOperations
)
