"""The values that a durable function and its coordinator exchange.

A function runs inside an ordinary task. Everything it does through its context is an *operation*,
known by its path. The *log* of a run is the ordered list of what happened to its operations: what
the function has reported, and what the coordinator has ended for it. Replaying the log lets another
worker go on where the function stopped.

The task that runs a function has a `Resumption` as its payload, and a `FunctionReport` as its
result. In between, `ReportOperations` commits what the function has done so far.
"""

import hashlib
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from rota.core import limits
from rota.core.flows.model import Concurrencies, FairKey, Rates
from rota.core.tasks.model import Backoff, Name

TASK_PREFIX = "workflow:"  # of the name of the task that runs a function
MAX_FUNCTION_NAME = limits.MAX_NAME_LENGTH - 20  # the name of its task and capability are longer
MAX_APPROVALS = 100  # names of approvals that a definition lists
FUNCTION_TOKEN = 0  # stands for the function itself among the tokens of its run

OperationKind = Literal[
    "step",  # a function that the worker has run
    "once",  # a step that runs at most once: it is recorded before it begins
    "call",  # a task on any worker
    "map",  # a task for each item
    "run",  # a child run
    "sleep",
    "event",  # a signal
    "approval",
    "receive",  # a signal that the function answers
    "reply",  # the answer to a received signal; its result is {"number": …, "value": …}
    "publish",  # a value that callers can read; its result is {"key": …, "value": …}
    "stream",  # a value of a stream that callers read; its result is {"stream": …, "value": …}
    "marker",  # which branch of a code change a run takes
    "choice",  # which of several awaited operations came first
]
# The coordinator ends operations of these kinds. The function reports all others when they are
# done.
REMOTE_KINDS: frozenset[OperationKind] = frozenset(
    {"call", "map", "run", "sleep", "event", "approval", "receive"}
)

OperationState = Literal[
    "started",  # by the function: `once` is about to run
    "pending",  # by the function: the coordinator is asked for it
    "done",  # by whichever of the two ends operations of that kind
    # As `done`. A function that gives up an operation it asked for reports it as failed, with the
    # error type `withdrawn`: the coordinator cancels it.
    "failed",
    "delivered",  # by the function: it has seen the end of a pending operation
]

WITHDRAWN = "withdrawn"  # the type of the error with which a function gives up an operation
Path = Annotated[str, Meta(min_length=1, max_length=1_000)]
DueMs = Annotated[int, Meta(ge=1, le=limits.MAX_TIMEOUT_MS)]


class CallRequest(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="call"):
    """Run a task on any worker that knows it."""

    task: Name
    payload: Any = None
    queue: Name = "default"
    priority: int = 0
    requires: tuple[Name, ...] = ()
    timeout_ms: DueMs | None = None
    max_attempts: int = 3
    backoff: Backoff | None = None
    concurrency: Concurrencies | None = None
    rate: Rates | None = None
    fair_key: FairKey | None = None


class MapRequest(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="map"):
    """Run a task for each payload. The operation ends once, with the list of all results."""

    call: CallRequest  # of each item; its payload is not used
    payloads: list[Any]
    max_parallel: int | None = None
    # `fail`: the first failure cancels the rest and fails the operation. `collect`: every item runs
    # to its end, and a failed one is `{"error": {…}}` in the list instead of `{"result": …}`.
    on_failure: Literal["fail", "collect"] = "fail"


class ChildRequest(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="run"):
    """Start a child run, of a workflow in code or as data: `name` or `name@version`."""

    workflow: Name
    input: Any = None
    timeout_ms: DueMs | None = None


class SleepRequest(Struct, frozen=True, kw_only=True, tag="sleep"):
    due_at_ms: int


class EventRequest(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="event"):
    """Wait for a signal, which is the result; past its time the operation fails (`timeout`)."""

    name: Name
    timeout_ms: DueMs | None = None
    # True: the result is `{"number": n, "payload": …}`, and a `reply` with that number answers it.
    is_answered: bool = False


class ApprovalRequest(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="approval"):
    """Wait for a person. The result is the payload of the answer, as for approval nodes.

    The signal that answers it has the name of the operation: `ship` for the path `x/ship#1`.
    """

    title: str = ""
    form: dict[str, Any] | None = None  # JSON Schema of the answer
    timeout_ms: DueMs | None = None


Request = CallRequest | MapRequest | ChildRequest | SleepRequest | EventRequest | ApprovalRequest


class Operation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One entry of the log of a function."""

    path: Path  # `scope/name#n`
    kind: OperationKind
    state: OperationState
    # Of a pending operation. The coordinator's log has it without payloads and inputs.
    request: Request | None = None
    result: Any = None  # of one that is done
    error: dict[str, Any] | None = None  # of one that has failed
    arguments: str | None = None  # a hash of what it was called with
    attempts: int = 1
    started_at_ms: int | None = None
    ended_at_ms: int | None = None
    line: int | None = None  # of the function's source that called it
    can_undo: bool = False  # it is to be undone if the run fails


class Divergence(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A function that does not do what its log says. The run is paused with it as its error."""

    message: str
    path: str | None = None
    # The operations that the log has and the function did not ask for, as `kind path`: those of
    # that scope, and of the scopes inside it. Accepting the new code drops these.
    recorded: list[str] = []
    attempted: str | None = None  # the operation that the function asked for; None: it returned
    recorded_line: int | None = None
    attempted_line: int | None = None
    version: int | None = None  # of the code that diverged


class FunctionReport(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of the task that runs a function: new operations, and how it stopped.

    It stopped in one way: waiting, with an output, with an error, with a restart, or diverged.
    """

    after: int = 0  # entries that functions of this run had reported before these
    operations: list[Operation] = []
    # Paths of pending operations, in groups. The function is resumed when all operations of one
    # group have ended, or when one of them has failed.
    waits: list[list[str]] | None = None
    output: Any | UnsetType = UNSET
    error: dict[str, Any] | None = None
    restart: Any | UnsetType = UNSET  # the input with which the function begins again
    divergence: Divergence | None = None
    version: int | None = None  # of the code that ran


class Resumption(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The payload of the task that runs a function: its input, and what happened so far."""

    run_id: str
    workflow: str
    version: int  # of the run
    input: Any = None
    started_at_ms: int
    restarts: int = 0
    # Entries that functions of this run have reported since the last restart, also those that were
    # dropped meanwhile: the next report comes `after` these.
    reported: int = 0
    # The whole log since the last restart; None: it is too large for a payload and must be read.
    log: list[Operation] | None = None
    # The entries of `log` that no function has seen. A worker that has the function in memory,
    # suspended after `reported` entries, goes on with these alone. None: as for `log`.
    ended: list[Operation] | None = None
    cancelled: str | None = None  # why the run was cancelled: the function is to stop and undo


class CodeDefinition(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """A workflow whose definition is a function. Equal fingerprints are the same version."""

    name: Annotated[str, Meta(min_length=1, max_length=MAX_FUNCTION_NAME)]
    fingerprint: Annotated[str, Meta(min_length=8, max_length=128)]
    source: Annotated[str, Meta(max_length=262_144)]
    description: Annotated[str, Meta(max_length=4_096)] = ""
    language: Literal["python"] = "python"
    module: Annotated[str, Meta(max_length=1_000)] = ""
    first_line: int = 1  # of the source in its file
    label: Annotated[str, Meta(max_length=100)] | None = None  # the version that the author names
    queue: Name = "default"
    priority: Annotated[int, Meta(ge=-limits.MAX_PRIORITY, le=limits.MAX_PRIORITY)] = 0
    requires: tuple[Name, ...] = ()
    max_attempts: Annotated[int, Meta(ge=1, le=limits.MAX_ATTEMPTS)] = 3  # without progress
    timeout_ms: DueMs | None = None  # of a run
    # `replay`: workers with any version of the code go on with a run. `pinned`: only workers with
    # the version that it started with; its task requires the capability `code:NAME@VERSION`.
    upgrade: Literal["replay", "pinned"] = "replay"
    # Names of the approvals that the source asks for. A signal of such a name answers a question:
    # it is refused while the function does not ask, and never kept.
    approvals: Annotated[tuple[Name, ...], Meta(max_length=MAX_APPROVALS)] = ()


def code_hash_of(definition: CodeDefinition) -> str:
    """Return a hash of what makes a version: the code and the options, not how it is written."""
    kept = replace(definition, source="", description="", module="", first_line=1, approvals=())
    return hashlib.sha256(msgspec.json.encode(kept, order="sorted")).hexdigest()


def task_of(workflow: str) -> str:
    """Return the name of the task that runs the function of a workflow."""
    return TASK_PREFIX + workflow


def capability_of(workflow: str, version: int) -> str:
    """Return the capability that the task of a pinned run requires."""
    return f"code:{workflow}@{version}"


def name_of(path: str) -> str:
    """Return the name of an operation: `ship` for `x/ship#1` and for `x/ship[key]`."""
    last = _without_key(path).rpartition("/")[2]
    return last.rpartition("#")[0] or last


def scope_of(path: str) -> str:
    """Return the scope of an operation: `x` for `x/ship#1`; empty for the outermost one."""
    return _without_key(path).rpartition("/")[0]


def _without_key(path: str) -> str:
    """A key may have any characters in it; names have no brackets."""
    return path.partition("[")[0] if path.endswith("]") else path
