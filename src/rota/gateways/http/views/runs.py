"""Views of runs, tokens, journals and graphs."""

from collections import Counter
from dataclasses import asdict
from itertools import islice
from typing import Any

import msgspec

from rota.core.ids import to_text
from rota.core.tasks.model import TaskRecord
from rota.core.workflow.commands import RunShown
from rota.core.workflow.definition.model import Definition, Graph
from rota.core.workflow.functions.model import (
    ApprovalRequest,
    EventRequest,
    Operation,
    SleepRequest,
)
from rota.core.workflow.journal_words import event_words
from rota.core.workflow.records import Artifact, JournalEntry, RunRecord
from rota.core.workflow.runtime.scopes import joins
from rota.core.workflow.states import BranchState
from rota.engine.runs.counter_history import TOKENS
from rota.engine.runs.function_projection import EDGES, FunctionProjection, signal_of
from rota.engine.runs.graph_figures import span_of, tokens_by_node, transitions
from rota.engine.runs.projections import RunProjection, ScopeProjection, TokenProjection
from rota.gateways.http.views.tasks import token_id
from rota.messages import (
    ArtifactView,
    FunctionView,
    GraphJoin,
    GraphNode,
    GraphTransition,
    JournalEntryView,
    MapItems,
    RunContext,
    RunGraph,
    RunTokenView,
    RunView,
    ScopeJoin,
    ScopeView,
    TokenAttempt,
)

MOST_OPEN_SCOPES = 100  # of one join that a graph names
MOST_NAMED_DECISIONS = 100  # of one entry of a journal


def run_view(
    record: RunRecord,
    context: dict[str, Any] | None = None,
    *,
    duplicate: bool = False,
    parent_workflow: str | None = None,
) -> RunView:
    return RunView(
        id=to_text(record.id),
        workflow=record.workflow,
        version=record.version,
        state=record.state,
        context=None if context is None else _context(context),
        output=record.output,
        error=record.error,
        created_at_ms=record.created_at_ms,
        started_at_ms=record.created_at_ms,
        finished_at_ms=record.finished_at_ms,
        parent_run_id=_id(record.parent_run),
        parent_token_id=_token(record.parent_run, record.parent_token),
        parent_workflow=parent_workflow,
        key=record.key,
        forked_from=_id(record.forked_from),
        timeout_ms=record.timeout_ms,
        duplicate=duplicate,
    )


def shown_run(shown: RunShown, *, parent_workflow: str | None = None) -> RunView:
    return run_view(
        shown.record,
        shown.context,
        duplicate=shown.is_duplicate,
        parent_workflow=parent_workflow,
    )


def _context(context: dict[str, Any]) -> RunContext:
    return RunContext(
        input=context["input"], state=context.get("state"), output=context.get("output")
    )


def _id(number: int | None) -> str | None:
    return None if number is None else to_text(number)


def _token(run_id: int | None, number: int | None) -> str | None:
    return None if run_id is None or number is None else token_id(run_id, number)


def token_view(run_id: int, token: TokenProjection, trace: RunProjection) -> RunTokenView:
    """A token without the fields of its task."""
    scope, index = None, None
    if token.stack:
        number, index = token.stack[-1]
        scope = trace.scopes[number]
    return RunTokenView(
        id=token_id(run_id, token.number),
        node_id=token.node,
        state=trace.state(token),
        parent_token_id=_token(run_id, token.parent),
        path_id=trace.path_id(token),
        fan_out_transition_id=None if scope is None else scope.key,
        branch_index=index,
        branch_total=None if scope is None else scope.total,
        scope=None if scope is None else scope.number,
        task_id=_id(token.task),
        child_run_id=_id(token.child),
        compensates_token_id=_token(run_id, token.compensates),
        created_at_ms=token.created_at_ms,
        finished_at_ms=token.finished_at_ms,
        error=token.error,
        **_operation(token),
    )


def _operation(token: TokenProjection) -> dict[str, Any]:
    """The fields of a token that is an operation of a function."""
    operation = token.operation
    if operation is None:
        return {}
    request = operation.request
    asks = request if isinstance(request, ApprovalRequest) else None
    return {
        "path": operation.path,
        "kind": operation.kind,
        "line": operation.line,
        "signal": signal_of(operation),
        "title": None if asks is None else asks.title or None,
        "form": None if asks is None else asks.form,
        "due_at_ms": _due_at_ms(operation, token.created_at_ms),
        "items": token.items,
        "items_ended": None if token.items is None else token.items_ended,
    }


def _due_at_ms(operation: Operation, asked_at_ms: int) -> int | None:
    match operation.request:
        case SleepRequest(due_at_ms=due_at_ms):
            return due_at_ms
        case EventRequest(timeout_ms=int(timeout_ms)) | ApprovalRequest(timeout_ms=int(timeout_ms)):
            return asked_at_ms + timeout_ms
        case _:
            return None


def with_task(view: RunTokenView, task: TaskRecord) -> RunTokenView:
    return msgspec.structs.replace(
        view,
        started_at_ms=task.started_at_ms,
        worker_id=task.worker_id,
        attempts=[
            TokenAttempt(
                started_at_ms=one.started_at_ms, ended_at_ms=one.ended_at_ms, ending=one.ending
            )
            for one in task.log
        ],
    )


def entry_view(entry: JournalEntry, most_decisions: int, trace: RunProjection) -> JournalEntryView:
    shown = entry.decisions[:most_decisions]
    names = trace.names(entry, min(most_decisions, MOST_NAMED_DECISIONS))
    return JournalEntryView(
        number=entry.number,
        at_ms=entry.at_ms,
        event=entry.event,
        decisions=shown,
        decision_count=len(entry.decisions),
        links={
            token: to_text(made)
            for token, made in islice(entry.links.items(), most_decisions)
            if made
        },
        text=event_words(entry.event, names, trace.progress(entry)),
        token_names={str(number): name for number, name in names.tokens.items()},
        scope_names={str(number): name for number, name in names.scopes.items()},
    )


def scope_view(
    run_id: int, definition: Graph, scope: ScopeProjection, *, is_open: bool
) -> ScopeView:
    return ScopeView(
        number=scope.number,
        fan_out_transition_id=scope.key,
        node_id=scope.node,
        parent_token_id=token_id(run_id, scope.parent),
        is_open=is_open,
        takes_branches=is_open and scope.takes_branches,
        branch_total=scope.total,
        branches={state.value: count for state, count in scope.branches.items()},
        joins=[
            ScopeJoin(
                node_id=join.node,
                arrived=scope.arrived[join.node],
                needed=_needed(join.rule.needed, scope.needed.get(join.node)),
                complete_on=joins.completing_signal(join),
            )
            for join in definition.joins_of(scope.key)
        ],
        opened_at_ms=scope.opened_at_ms,
        closed_at_ms=scope.closed_at_ms,
        because=scope.because,
    )


def _needed(declared: int | str | None, evaluated: int | None) -> int | None:
    return evaluated if isinstance(declared, str) else declared


def graph_view(
    record: RunRecord, definition: Definition, trace: RunProjection, *, at: int | None = None
) -> RunGraph:
    moment = trace.moment(at)
    open_scopes: dict[str, list[int]] = {}  # by fan-out
    for scope in trace.open_scopes(at):
        numbers = open_scopes.setdefault(scope.key, [])
        if len(numbers) < MOST_OPEN_SCOPES:
            numbers.append(scope.number)
    joined = {
        number: one.synchronization.joins_transition
        for number, one in enumerate(definition.transitions)
        if one.synchronization is not None
    }
    tokens = tokens_by_node(definition, moment)
    spans = {name: span_of(name, moment) for name in definition.nodes}
    is_past = moment.number < moment.last_number
    held_back = {} if is_past else _held_back(definition, trace)
    return RunGraph(
        run_id=to_text(record.id),
        workflow=record.workflow,
        version=record.version,
        state=trace.run_state(moment) if is_past else record.state,
        number=moment.number,
        at_ms=moment.at_ms,
        last_number=moment.last_number,
        initial_node=definition.initial_node,
        nodes=[
            GraphNode(
                id=name,
                kind=node.kind,
                task=node.task,
                workflow=node.workflow,
                tokens=tokens[name],
                first_at_ms=spans[name][0],
                last_at_ms=spans[name][1],
                held_back=held_back.get(name, 0),
            )
            for name, node in definition.nodes.items()
        ],
        transitions=[
            GraphTransition(
                id=one.id,
                from_=one.source,
                to=one.target,
                taken=one.taken,
                not_taken=one.not_taken,
                tokens=one.tokens,
                join=None
                if one.join is None
                else GraphJoin(**asdict(one.join), open_scopes=open_scopes.get(joined[number], [])),
            )
            for number, one in enumerate(transitions(definition, moment))
        ],
    )


def _held_back(definition: Definition, trace: RunProjection) -> dict[str, int]:
    """The branches that have not begun, by the node that they begin at.

    A run that has failed leaves its scopes open, and a retry begins their branches.
    """
    waiting: Counter[str] = Counter()  # by fan-out
    for scope in trace.scopes.values():
        if scope.closed_at is None:
            waiting[scope.key] += scope.branches.get(BranchState.WAITING, 0)
    if not waiting.total():
        return {}
    graph, found = Graph(definition), dict[str, int]()
    for number, one in enumerate(definition.transitions):
        # All branches of a group that have not begun are counted at its first node.
        count = waiting.pop(graph.scope_key(number) or "", 0)
        if count:
            found[one.to] = found.get(one.to, 0) + count
    return found


def function_graph_view(
    record: RunRecord, trace: FunctionProjection, *, at: int | None = None
) -> RunGraph:
    """The graph of a function: what it did by name, and what followed what."""
    moment = trace.moment(at)
    spans = {name: span_of(name, moment) for name in trace.steps}
    seen = [name for name in trace.steps if spans[name][0] is not None]
    is_past = moment.number < moment.last_number
    return RunGraph(
        run_id=to_text(record.id),
        workflow=record.workflow,
        version=record.version,
        state=trace.run_state(moment) if is_past else record.state,
        number=moment.number,
        at_ms=moment.at_ms,
        last_number=moment.last_number,
        initial_node=seen[0] if seen else "",
        nodes=[
            GraphNode(
                id=name,
                kind=trace.steps[name].kind,
                task=trace.steps[name].task,
                workflow=trace.steps[name].workflow,
                tokens=moment.counts(TOKENS, name),
                first_at_ms=spans[name][0],
                last_at_ms=spans[name][1],
                scopes=[*trace.steps[name].scopes],
                line=trace.steps[name].line,
                signal=trace.steps[name].signal,
                items=None if is_past else _items(trace, name),
            )
            for name in seen
        ],
        transitions=[
            GraphTransition(
                id=f"{source} → {target}",
                from_=source,
                to=target,
                taken=count,
                not_taken=0,
                tokens={},
            )
            for (source, target), count in moment.under(EDGES)
        ],
        function=_function(trace),
    )


def _items(trace: FunctionProjection, name: str) -> MapItems | None:
    found = trace.items_of(name)
    return None if found is None else MapItems(**asdict(found))


def _function(trace: FunctionProjection) -> FunctionView:
    place = trace.place()
    return FunctionView(
        state=place.state,
        task_id=_id(place.task),
        waits_for=place.waits_for,
        lines=place.lines,
        operations=place.operations,
        restarts=place.restarts,
        cancelled=place.cancelled,
    )


def artifact_view(artifact: Artifact) -> ArtifactView:
    return ArtifactView(
        name=artifact.name,
        size=artifact.size,
        media_type=artifact.media_type,
        created_at_ms=artifact.created_at_ms,
        task_id=to_text(artifact.task),
        committed_at_ms=artifact.committed_at_ms,
    )
