"""The events of a run. Stored in its journal, and applied again by a replay."""

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from rota.core.tasks.model import Backoff
from rota.core.workflow.functions.model import FunctionReport, Operation
from rota.core.workflow.states import ScopeAction

# `slice`: the run goes on with the steps that were too many for one event.
TimerKind = Literal["sleep", "wait", "join", "run", "slice"]
# What becomes of the compensable work of a run that is cancelled. `undo`: it is undone first.
# `force`: it is not undone, and the error lists it. `leave`: it is left to the parent.
CancelMode = Literal["undo", "force", "leave"]


# The rules that decide a run are those of the version that started it, so that its journal leads to
# the same decisions later, too. 2: a token that waits at a join ends as completed, also when its
# run fails; an approval takes no signal that came before it asked; a run that fails or is cancelled
# waits until its sub-workflows have ended and undone their work, and undoes that of completed ones.
# 3: joins, failures, cancellations and retries are taken in slices, too; events that come between
# two of these slices wait until the last one. 4: a sub-workflow completes when those of its own
# cancelled branches have ended, so that its parent can undo what they did.
RULES = 4


class RunStarted(Struct, frozen=True, tag="RunStarted"):
    at_ms: int
    input: Any = None
    from_node: str | None = None  # a fork starts in the middle
    state: Any = None
    nodes: Any = None  # of a fork: the results of the nodes that the other run has finished
    timeout_ms: int | None = None
    rules: int = 1  # that decide this run; runs of earlier versions do not say
    slice_steps: int | None = None  # steps that follow from one event at once; None: all
    run_id: str | None = None  # its own, and that of the run inside which it runs
    parent_id: str | None = None
    # Of a fork of a function: what the other run had done before the operation it is forked from.
    log: list[Operation] | UnsetType = UNSET
    headers: dict[str, str] | UnsetType = UNSET  # of every task of the run; unset: none


class TaskEnded(Struct, frozen=True, tag="TaskEnded"):
    """A token's task has finished."""

    at_ms: int
    token: int
    ok: bool
    result: Any = None
    error: dict[str, Any] | None = None
    cancelled: bool = False
    traceparent: str | UnsetType = UNSET  # the span that has executed it; unset: none


class Compensation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The task that undoes a completed node of a sub-workflow, as that one would dispatch it."""

    node: str  # with the nodes of the sub-workflows inside the one that has ended: `order.pay`
    task: str
    result: Any = None  # of the node
    queue: str = "default"
    priority: int = 0
    requires: tuple[str, ...] = ()
    timeout_ms: int | None = None
    max_attempts: int = 3
    backoff: Backoff | None = None


class ChildEnded(Struct, frozen=True, tag="ChildEnded"):
    """A token's sub-workflow has ended."""

    at_ms: int
    token: int
    ok: bool
    result: Any = None
    error: dict[str, Any] | None = None
    undo: tuple[Compensation, ...] = ()  # what undoes its work, in the order in which it was done
    later: bool = False  # its steps follow in a slice of their own: the transaction has many
    traceparent: str | UnsetType = UNSET  # the span of the last task of the sub-workflow


class Signalled(Struct, frozen=True, tag="Signalled"):
    at_ms: int
    name: str
    payload: Any = None
    key: str | None = None  # makes a repeated signal count once
    token: int | None = None  # that it is for; None: the one that has waited longest
    sender: str | None = None  # the run whose node sent it; None: a caller
    later: bool = False  # as of `ChildEnded`


class SignalSent(Struct, frozen=True, tag="SignalSent"):
    """The signal of a token was delivered, or refused."""

    at_ms: int
    token: int
    error: dict[str, Any] | None = None  # why it was refused
    later: bool = False  # as of `ChildEnded`


class TimerFired(Struct, frozen=True, tag="TimerFired"):
    at_ms: int
    kind: TimerKind
    number: int  # of the token or the scope; 0 for the run


class RunCancelRequested(Struct, frozen=True, tag="RunCancelled"):
    at_ms: int
    reason: str = ""
    mode: CancelMode | None = None  # None: of an earlier version, which undid nothing


class RunPaused(Struct, frozen=True, tag="RunPaused"):
    at_ms: int
    children: bool = False  # reaches sub-workflows; earlier versions paused the run alone


class RunResumed(Struct, frozen=True, tag="RunResumed"):
    at_ms: int
    children: bool = False  # as of `RunPaused`
    accept: bool = False  # of a diverged function: what it did not ask for again is dropped


class RunRetried(Struct, frozen=True, tag="RunRetried"):
    """A caller retries a failed run from where it failed."""

    at_ms: int
    children: bool = False  # sub-workflows go on; earlier versions started new ones instead
    with_parent: bool = False  # the run inside which it runs is retried: it goes on if cancelled


class ScopeEndRequested(Struct, frozen=True, tag="ScopeEndRequested", omit_defaults=True):
    """A caller completes or cancels a scope."""

    at_ms: int
    scope: int
    action: ScopeAction
    reason: str = ""


class BranchesAdded(Struct, frozen=True, tag="BranchesAdded", omit_defaults=True):
    """A caller, or a task in one of its branches, adds branches to an open scope."""

    at_ms: int
    scope: int
    items: list[Any]
    key: str | None = None  # makes a repeated addition count once
    is_last: bool = False  # the scope takes no further branches
    token: int | None = None  # whose task added them


class OperationsReported(Struct, frozen=True, tag="OperationsReported"):
    """A function has reported what it did, and goes on."""

    at_ms: int
    operations: list[Operation]  # those that were not known


class FunctionStopped(Struct, frozen=True, tag="FunctionStopped"):
    """The task of a function has ended with its report."""

    at_ms: int
    report: FunctionReport
    traceparent: str | UnsetType = UNSET  # as of `TaskEnded`


RunEvent = (
    RunStarted
    | TaskEnded
    | ChildEnded
    | Signalled
    | SignalSent
    | TimerFired
    | RunCancelRequested
    | RunPaused
    | RunResumed
    | RunRetried
    | ScopeEndRequested
    | BranchesAdded
    | OperationsReported
    | FunctionStopped
)
