"""Every command about workflows and runs. The engine turns them into events of runs."""

from typing import Any, Literal

from msgspec import Struct

from rota.core.access import Caller
from rota.core.ids import TaskId
from rota.core.replies import CommandBase, Done, OutcomeName
from rota.core.workflow.definition.model import Definition
from rota.core.workflow.functions.model import CodeDefinition, Operation
from rota.core.workflow.records import Artifact, RunRecord, Version
from rota.core.workflow.states import RunAction, ScopeAction

MAX_VERSION = 10**9  # of a workflow


def named_version(reference: str) -> tuple[str, int | None]:
    """Parse `name` or `name@version`; the version None stands for the newest."""
    name, _, version = reference.rpartition("@")
    if name and version.isascii() and version.isdigit() and 1 <= int(version[:10]) <= MAX_VERSION:
        return name, int(version)
    return reference, None


class WorkflowKept(Struct, frozen=True):
    version: Version
    is_new: bool


class RunShown(Struct, frozen=True):
    """A run and its context, as of the commit."""

    record: RunRecord
    context: dict[str, Any]
    is_duplicate: bool = False


class ArtifactStaged(Struct, frozen=True):
    artifact: Artifact


class ScopeExtended(Struct, frozen=True):
    """The branches that a command has added to a scope."""

    run_id: int
    scope: int
    first_index: int
    count: int
    total: int  # branches of the scope
    is_duplicate: bool = False  # the key was known: they were added before


class OperationsNoted(Struct, frozen=True):
    """The outcome of each item of a report, in order."""

    outcomes: list[OutcomeName]
    cancelled: dict[int, str] = {}  # place of an item -> why its function is to stop


class OperationsShown(Struct, frozen=True, kw_only=True):
    """Entries of the log of a function."""

    entries: list[bytes]  # JSON
    next_after: int | None = None  # None: there are no more
    reported: int
    restarts: int


class StreamShown(Struct, frozen=True, kw_only=True):
    """Values of a stream of a function."""

    values: list[bytes]  # JSON
    next_after: int
    is_ended: bool  # the run has ended: no further values come


class ReplyShown(Struct, frozen=True, kw_only=True):
    """The reply of a function to a signal."""

    value: bytes | None = None  # JSON; None: there is none yet
    is_ended: bool  # the run has ended: none will come


RunReply = (
    WorkflowKept
    | RunShown
    | ArtifactStaged
    | ScopeExtended
    | OperationsNoted
    | OperationsShown
    | StreamShown
    | ReplyShown
    | Done
)


# Whether a version becomes the current one: each time it is put, when it is new, or not at all.
Publishing = Literal["always", "new", "never"]


class PutWorkflow(CommandBase[WorkflowKept], frozen=True, tag="PutWorkflow"):
    """Store a definition that has been validated."""

    definition: Definition
    publish: Publishing = "always"


class PutCode(CommandBase[WorkflowKept], frozen=True, kw_only=True, tag="PutCode"):
    """Store a definition whose workflow is a function."""

    definition: CodeDefinition
    by: Caller | None = None  # None: the coordinator itself


class StartRun(CommandBase[RunShown], frozen=True, kw_only=True, tag="StartRun"):
    workflow: str
    version: int | None = None  # None: the newest
    input: Any = None
    key: str | None = None
    timeout_ms: int | None = None
    headers: dict[str, str] | None = None  # of every task of the run


class ForkRun(CommandBase[RunShown], frozen=True, kw_only=True, tag="ForkRun"):
    """Start a new run from a node of another run, with the input of that run."""

    run_id: int
    from_node: str  # or the path of an operation of a function
    state: Any = None  # None: the state of the other run


class SteerRun(CommandBase[RunShown], frozen=True, kw_only=True, tag="SteerRun"):
    run_id: int
    action: RunAction
    reason: str = ""
    force: bool = False  # of a cancellation: undo nothing, and end at once
    accept: bool = False  # of a resume after a divergence: drop what the new code does not do


class SteerScope(CommandBase[RunShown], frozen=True, kw_only=True, tag="SteerScope"):
    """Complete or cancel a scope of a run whose join has not fired."""

    run_id: int
    scope: int
    action: ScopeAction
    reason: str = ""


class AddBranches(CommandBase[ScopeExtended], frozen=True, kw_only=True, tag="AddBranches"):
    """Add branches to an open scope of a run."""

    run_id: int
    scope: int
    items: list[Any]
    key: str | None = None  # idempotency key: a known one changes nothing
    is_last: bool = False  # the scope takes no further branches


class AddSiblings(CommandBase[ScopeExtended], frozen=True, kw_only=True, tag="AddSiblings"):
    """A leased task of a run adds branches to an open scope that it is in."""

    task_id: int
    fence: int
    fan_out: str | None = None  # that opened the scope; None: the innermost that takes branches
    items: list[Any]
    key: str | None = None
    is_last: bool = False
    by: Caller | None = None


class SignalRun(CommandBase[RunShown], frozen=True, kw_only=True, tag="SignalRun"):
    run_id: int
    name: str
    payload: Any = None
    key: str | None = None  # idempotency key: a known one changes nothing
    token: int | None = None  # that it is for; None: the one that has waited longest


class LookAtRun(CommandBase[RunShown], frozen=True, tag="LookAtRun"):
    """Read a run and its context. Changes nothing."""

    run_id: int


# Streaming workers send it as an array in this order: add new fields at the end.
class ReportedOperations(Struct, frozen=True, array_like=True):
    task_id: TaskId
    fence: int
    after: int  # entries that functions of this run had reported before these
    operations: list[Operation]


class ReportOperations(
    CommandBase[OperationsNoted], frozen=True, kw_only=True, tag="ReportOperations"
):
    """A worker reports what the functions that it runs have done so far."""

    worker_id: str
    incarnation: int
    items: list[ReportedOperations]
    by: Caller | None = None


class LookAtOperations(
    CommandBase[OperationsShown], frozen=True, kw_only=True, tag="LookAtOperations"
):
    """Read the log of a function. Changes nothing."""

    run_id: int
    after: int = 0  # entries that are known
    limit: int
    by: Caller | None = None  # a worker, which must hold the function; None: any reader


class LookAtStream(CommandBase[StreamShown], frozen=True, kw_only=True, tag="LookAtStream"):
    """Read values of a stream of a function. Changes nothing."""

    run_id: int
    name: str
    after: int = 0  # values that are known
    limit: int


class LookAtReply(CommandBase[ReplyShown], frozen=True, kw_only=True, tag="LookAtReply"):
    """Read the reply of a function to the signal with this key. Changes nothing."""

    run_id: int
    key: str


class FireRunTimers(CommandBase[Done], frozen=True, tag="FireRunTimers"):
    """Fire the timers of sleeps, waits, joins and runs that are due."""


class AdvanceRuns(CommandBase[Done], frozen=True, tag="AdvanceRuns"):
    """Let runs go on whose steps were too many for one event."""


class RecordWaits(CommandBase[Done], frozen=True, tag="RecordWaits"):
    """Record what runs wait for that started before it was recorded."""


class PruneRuns(CommandBase[Done], frozen=True, tag="PruneRuns"):
    """Delete the ended runs that are past their retention time, with all their data."""

    finished_before_ms: int


class StageArtifact(CommandBase[ArtifactStaged], frozen=True, kw_only=True, tag="StageArtifact"):
    """A leased task attaches a blob to its run: as content, or as a file already on disk."""

    run_id: int
    task_id: int
    fence: int
    name: str
    media_type: str
    size: int
    content: bytes | None = None
    file: str | None = None
    by: Caller | None = None  # the caller whose quota it counts for; None: the coordinator itself


class CheckArtifact(CommandBase[Done], frozen=True, kw_only=True, tag="CheckArtifact"):
    """Check whether a task may attach a blob of this size, before its content is received."""

    run_id: int
    task_id: int
    fence: int
    size: int
    by: Caller | None = None


RunCommand = (
    PutWorkflow
    | PutCode
    | StartRun
    | ForkRun
    | SteerRun
    | SteerScope
    | AddBranches
    | AddSiblings
    | SignalRun
    | LookAtRun
    | ReportOperations
    | LookAtOperations
    | LookAtStream
    | LookAtReply
    | FireRunTimers
    | AdvanceRuns
    | RecordWaits
    | PruneRuns
    | StageArtifact
    | CheckArtifact
)
