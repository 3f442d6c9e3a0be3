"""Workflows and runs on the wire."""

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from rota.core import limits
from rota.core.tasks.headers import Headers
from rota.core.tasks.model import Name
from rota.core.workflow.commands import MAX_VERSION
from rota.core.workflow.decisions import RunDecision
from rota.core.workflow.definition.model import Definition
from rota.core.workflow.events import RunEvent
from rota.core.workflow.functions.model import CodeDefinition, Operation
from rota.core.workflow.states import RunState, TokenState
from rota.messages.base import Answer, Fence, Request, Value


class WorkflowView(Answer, frozen=True, kw_only=True):
    """One version of a workflow."""

    name: str
    version: int  # from 1; changed content is a new version
    hash: str  # of the content
    created_at_ms: int
    is_current: bool = True  # runs that are started by the workflow's name have this version


class WorkflowDetail(WorkflowView, frozen=True, kw_only=True):
    definition: Definition | None = None  # of a workflow that is a graph
    code: CodeDefinition | None = None  # of a workflow that is a function
    versions: list[WorkflowView] = []  # all there are, newest first; without a version only


class WorkflowPage(Answer, frozen=True, kw_only=True):
    items: list[WorkflowView]  # the current version of each
    next_cursor: str | None = None


class WorkflowProblem(Answer, frozen=True, kw_only=True):
    path: str  # such as transitions[2].condition
    code: str
    message: str
    line: int | None = None  # of the text that was sent
    column: int | None = None  # from 1, in that line


class WorkflowCheck(Answer, frozen=True, kw_only=True):
    ok: bool
    problems: list[WorkflowProblem] = []
    warnings: list[WorkflowProblem] = []  # of expressions that probably fail; they refuse nothing


class RunRequest(Request, frozen=True, kw_only=True):
    # A name, or name@version.
    workflow: Annotated[str, Meta(min_length=1, max_length=limits.MAX_NAME_LENGTH + 11)]
    version: Annotated[int, Meta(ge=1, le=MAX_VERSION)] | None = None  # absent: the current one
    input: Value = None  # absent: an empty object
    # Idempotency key: the same key gives the existing run.
    key: Annotated[str, Meta(min_length=1, max_length=limits.MAX_KEY_LENGTH)] | None = None
    # Instead of the definition's.
    timeout_ms: Annotated[int, Meta(ge=1, le=limits.MAX_TIMEOUT_MS)] | None = None
    # Of every task of the run, for middleware; absent: those of the request's `traceparent`.
    headers: Headers | None = None


class RunResumption(Request, frozen=True, kw_only=True):
    # After a divergence: go on with the new code, and drop what it did not ask for again.
    accept: bool = False


class RunCancellation(Request, frozen=True, kw_only=True):
    reason: Annotated[str, Meta(max_length=1_000)] = ""  # part of the run's error
    # Undo nothing, and stop a compensation that is under way; the error lists it as `not_undone`.
    force: bool = False


class SignalRequest(Request, frozen=True, kw_only=True):
    name: Name
    payload: Value = None
    # Idempotency key: a signal with a known key changes nothing. A run remembers the newest 1,000.
    key: Annotated[str, Meta(min_length=1, max_length=limits.MAX_KEY_LENGTH)] | None = None
    # The token that it is for; absent: the one that has waited longest. An approval that names its
    # token never answers another question.
    token_id: Annotated[str, Meta(min_length=1, max_length=100)] | None = None


class ScopeEnding(Request, frozen=True, kw_only=True):
    reason: Annotated[str, Meta(max_length=1_000)] = ""  # part of the journal


class BranchesRequest(Request, frozen=True, kw_only=True):
    # A branch for each; it sees its own as `branch.item`.
    items: Annotated[list[Any], Meta(max_length=limits.MAX_BRANCHES_ADDED)]
    # Idempotency key: branches with a known key are not added again. A scope remembers all.
    key: Annotated[str, Meta(min_length=1, max_length=limits.MAX_KEY_LENGTH)] | None = None
    last: bool = False  # the scope takes no further branches, and is joined when all are through


class SiblingsRequest(BranchesRequest, frozen=True, kw_only=True):
    fence: Fence  # of the lease that the worker holds
    # The id of the fan-out; absent: the innermost scope around the task that takes branches.
    fan_out: Name | None = None


class BranchesView(Answer, frozen=True, kw_only=True):
    """Branches that were added to a scope."""

    run_id: str
    scope: int
    first_index: int
    count: int
    branch_total: int
    duplicate: bool = False  # the key was known: they were added before


class ForkRequest(Request, frozen=True, kw_only=True):
    # Where the new run begins: a node, or the path of an operation of a function.
    from_node: Annotated[str, Meta(min_length=1, max_length=1_000)]
    state: Value = None  # an object; absent: that of the forked run


class RunContext(Answer, frozen=True, kw_only=True):
    input: Any
    state: Any
    output: Any


class RunView(Answer, frozen=True, kw_only=True):
    """A run as clients see it."""

    id: str
    workflow: str
    version: int
    state: RunState
    context: RunContext | None = None  # null in lists
    output: Any = None  # of a completed run
    error: dict[str, Any] | None = None  # type, message, and the place in the definition
    created_at_ms: int
    started_at_ms: int
    finished_at_ms: int | None = None
    parent_run_id: str | None = None  # of a sub-workflow, as `parent_token_id`
    parent_token_id: str | None = None
    parent_workflow: str | None = None  # of the run with `parent_run_id`, in lists and on reads
    key: str | None = None
    forked_from: str | None = None
    timeout_ms: int | None = None
    duplicate: bool = (
        False  # the key was known: this is the earlier run, or the signal was sent before
    )


class RunPage(Answer, frozen=True, kw_only=True):
    items: list[RunView]
    next_cursor: str | None = None


class TokenAttempt(Answer, frozen=True, kw_only=True):
    """An attempt of a token's task that did not finish it."""

    started_at_ms: int | None = None
    ended_at_ms: int
    ending: str  # failed, timed_out, lost, released, snoozed


class RunTokenView(Answer, frozen=True, kw_only=True):
    """A token: a place where a run is, or was."""

    id: str
    node_id: str
    state: TokenState
    parent_token_id: str | None = None
    path_id: str  # root, then .node.index for each open scope
    fan_out_transition_id: str | None = None  # of the innermost scope, as the two below
    branch_index: int | None = None
    branch_total: int | None = None
    scope: int | None = None  # the number of the innermost scope
    task_id: str | None = None  # of its task
    child_run_id: str | None = None  # of a sub-workflow
    compensates_token_id: str | None = None  # whose effects it undoes
    created_at_ms: int
    started_at_ms: int | None = None  # when a worker took its task, the last time
    finished_at_ms: int | None = None
    worker_id: str | None = None
    attempts: list[TokenAttempt] = []  # of its task, before the one that runs or ended it
    error: dict[str, Any] | None = None
    # Of an operation of a function; `path_id` is its scope, `node_id` its name.
    path: str | None = None
    kind: str | None = None  # step, call, map, run, sleep, event, approval, …
    line: int | None = None  # of the function's source that called it
    signal: str | None = None  # that it waits for
    title: str | None = None  # of an approval
    form: dict[str, Any] | None = None  # of an approval: JSON Schema of the answer
    due_at_ms: int | None = None  # when a sleep ends, or the wait for a signal times out
    items: int | None = None  # of a map
    items_ended: int | None = None


class RunTokenPage(Answer, frozen=True, kw_only=True):
    items: list[RunTokenView]
    next_cursor: str | None = None


class ScopeJoin(Answer, frozen=True, kw_only=True):
    """A join of a scope, and how far it is."""

    node_id: str  # that it leads to
    arrived: int  # branches
    needed: int | None = None  # branches; null: all that still can
    complete_on: str | None = None  # the signal that fires it with what has arrived


class ScopeView(Answer, frozen=True, kw_only=True):
    """A scope: the branches of one fan-out, until they are joined."""

    number: int  # in its run, from 1
    fan_out_transition_id: str  # its id or its group
    node_id: str  # that fanned out
    parent_token_id: str  # that fanned out
    is_open: bool
    takes_branches: bool = False  # more can be added while it is open
    branch_total: int
    branches: dict[str, int]  # by state: waiting, live, arrived, ended, failed, cancelled
    joins: list[ScopeJoin] = []
    opened_at_ms: int
    closed_at_ms: int | None = None
    because: str | None = None  # why it was closed


class ScopePage(Answer, frozen=True, kw_only=True):
    items: list[ScopeView]
    next_cursor: str | None = None


class JournalEntryView(Answer, frozen=True, kw_only=True):
    """An event of a run, and what was decided on it."""

    number: int  # from 1, without gaps
    at_ms: int
    event: RunEvent
    decisions: list[RunDecision]  # the first ones, if fewer were asked for
    decision_count: int  # all there are
    links: dict[str, str] = {}  # token number -> id of the task or run made for it
    text: str = ""  # the event for people, such as `extract[171] done, 165 of 180`
    # Token number -> its node and branches, as `extract[171]`; of a function: the operation's path.
    # Those in the event and in the first 100 decisions.
    token_names: dict[str, str] = {}
    scope_names: dict[str, str] = {}  # scope number -> its fan-out; as above


class JournalPage(Answer, frozen=True, kw_only=True):
    items: list[JournalEntryView]
    next_cursor: str | None = None  # give it as `after` for the next page


class MapItems(Answer, frozen=True, kw_only=True):
    """The items of all maps of one name, by how far they are."""

    total: int
    ended: int
    running: int  # a worker has their task
    queued: int  # their task waits for a worker
    held_back: int  # by `max_parallel`
    cancelled: int = 0  # they never ran: their map has ended without them


class GraphNode(Answer, frozen=True, kw_only=True):
    id: str
    # task, workflow, wait_for, approval, sleep_ms, end or pass; of a function: that of operations
    kind: str
    task: str | None = None
    workflow: str | None = None
    tokens: dict[str, int]  # by state; empty: the run has not been here
    first_at_ms: int | None = None  # when a token first reached it
    last_at_ms: int | None = None  # when it last ended; null while it is under way
    scopes: list[str] = []  # of a function: those in which it did this, the first 100
    line: int | None = None  # of a function: the line of its source that did this last
    signal: str | None = None  # of a function: that it waits for
    # Branches that begin here and have not begun: `max_parallel` holds them back, or their turn has
    # not come.
    held_back: int = 0
    items: MapItems | None = None  # of the maps of a function


class FunctionView(Answer, frozen=True, kw_only=True):
    """Where the function of a run is."""

    state: Literal["dispatched", "executing", "waiting", "ended"]
    task_id: str | None = None  # that runs it, or ran it last
    waits_for: list[str] = []  # paths of the operations that have not ended, the first 100
    lines: list[int] = []  # of its source, at which it waits
    operations: int  # since its last restart
    restarts: int
    cancelled: str | None = None  # why it is to stop


class GraphJoin(Answer, frozen=True, kw_only=True):
    """The progress of a join, over all scopes that it has to join so far."""

    arrived: int  # branches
    needed: int
    scopes: int
    fired: int
    cancelled: int = 0  # branches, as the next
    failed: int = 0
    open_scopes: list[int] = []  # the numbers of the first ones that have not been joined


class GraphTransition(Answer, frozen=True, kw_only=True):
    id: str
    from_: str = field(name="from")
    to: str
    taken: int  # tokens that took it; into a join: that arrived
    not_taken: int  # times it was considered and not taken
    tokens: dict[str, int]  # that took it, by state
    join: GraphJoin | None = None


class RunGraph(Answer, frozen=True, kw_only=True):
    run_id: str
    workflow: str
    version: int
    state: RunState
    number: int  # of the journal's entry up to which this is drawn
    at_ms: int | None = None  # of that entry
    last_number: int  # of the journal's last entry
    initial_node: str
    nodes: list[GraphNode]
    transitions: list[GraphTransition]
    function: FunctionView | None = None  # as it is, of a workflow that is a function


class OperationPage(Answer, frozen=True, kw_only=True):
    """Entries of the log of a function, in their order."""

    items: list[Operation]
    next_after: int | None = None  # give it as `after` for the next page; null: there are no more
    reported: int  # entries that functions have reported since the last restart
    restarts: int  # times that the function has restarted itself


class RunStreamPage(Answer, frozen=True, kw_only=True):
    """Values of a stream of a function, in their order."""

    items: list[Any]
    next_after: int  # give it as `after` for the next values
    ended: bool  # the run has ended: no further values come


class SignalReply(Answer, frozen=True, kw_only=True):
    """The reply of a function to a signal."""

    ready: bool  # false: there is none yet
    value: Any = None
    ended: bool  # the run has ended: none will come


class ArtifactView(Answer, frozen=True, kw_only=True):
    name: str
    size: int  # bytes
    media_type: str
    created_at_ms: int
    task_id: str  # that attached it
    committed_at_ms: int | None = None  # null: its task has not completed yet


class ArtifactPage(Answer, frozen=True, kw_only=True):
    items: list[ArtifactView]
    next_cursor: str | None = None
