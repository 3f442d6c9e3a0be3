"""Inspection of runs over HTTP: tokens, journal, graph."""

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any

from msgspec import Meta

from rota.core import access, ids, limits
from rota.core.access import Action
from rota.core.ids import TaskId
from rota.core.tasks.model import Name, TaskState
from rota.core.workers import registry
from rota.core.workflow.definition.model import Definition
from rota.core.workflow.records import RunRecord
from rota.core.workflow.states import TokenState
from rota.engine.runs.function_projection import FunctionProjection
from rota.engine.runs.projections import RunProjection, TokenProjection
from rota.errors import (
    RunNotFound,
    StaleLease,
    TaskNotFound,
    WorkflowNotFound,
)
from rota.gateways.http.routing.endpoint import HttpCall, Routes
from rota.gateways.http.routing.parameters import PageQuery, number_of, page_of
from rota.gateways.http.views.runs import (
    entry_view,
    function_graph_view,
    graph_view,
    token_view,
    with_task,
)
from rota.messages import JournalPage, Request, RunGraph, RunTokenPage, RunTokenView

Number = Annotated[int, Meta(ge=0, le=2**53)]

routes = Routes("Runs")


class TokensQuery(PageQuery, frozen=True, kw_only=True):
    node: Annotated[Name | None, Meta(description="Only those of this node.")] = None
    state: Annotated[TokenState | None, Meta(description="Only those in this state.")] = None
    per_node: Annotated[
        Annotated[int, Meta(ge=1, le=limits.MAX_PAGE)] | None,
        Meta(description="At most so many of each node, the first ones."),
    ] = None


class GraphQuery(Request, frozen=True, kw_only=True):
    at: Annotated[
        Number | None,
        Meta(
            description="As the run was after this entry of its journal; absent: the current one."
        ),
    ] = None


class JournalQuery(Request, frozen=True, kw_only=True):
    after: Annotated[Number, Meta(description="The number of the last entry already known.")] = 0
    limit: Annotated[int, Meta(ge=1, le=limits.MAX_PAGE)] = limits.DEFAULT_PAGE
    decisions: Annotated[
        Annotated[int, Meta(ge=0, le=2**31)],
        Meta(description="Show at most so many of each entry: a large fan-out has many."),
    ] = 2**31


def known_id(text: str) -> int:
    run_id = ids.from_text(text)
    if run_id is None:
        raise RunNotFound(text)
    return run_id


async def known_run(call: HttpCall[Any, Any]) -> RunRecord:
    """The run in the path, for a caller that may see it."""
    access.check_unbound(call.caller)
    record = await call.coordinator.queries.runs.by_id(known_id(call.path["run_id"]))
    if record is None:
        raise RunNotFound(call.path["run_id"])
    return record


async def leased_task(call: HttpCall[Any, Any], text: str, fence: int) -> TaskId:
    """The id of a task whose lease is the caller's."""
    task_id = ids.from_text(text)
    task = None if task_id is None else await call.coordinator.queries.tasks.by_id(task_id)
    if task is None:
        raise TaskNotFound(text)
    access.check_queue(call.caller, task.lane.queue, of=f"task {text!r}")
    if task.state is not TaskState.RUNNING or task.fence != fence:
        raise StaleLease(text)
    if task.worker_id is not None:
        access.check_worker(call.caller, task.worker_id)
        holder = await call.coordinator.queries.workers.by_id(task.worker_id)
        if holder is not None and holder.worker.incarnation == task.incarnation:
            registry.check_owner(holder.worker, call.caller)
    return task.id


@routes.get("/api/runs/{run_id}/tokens", Action.READ, errors=(RunNotFound,))
async def tokens(call: HttpCall[None, TokensQuery]) -> RunTokenPage:
    """List the tokens of a run, the oldest first."""
    query, record = call.query, await known_run(call)
    after = 0 if query.cursor is None else number_of(query.cursor)
    queries = call.coordinator.queries

    def page(trace: RunProjection) -> list[RunTokenView]:
        wanted = islice(_wanted(query, trace, after), query.limit + 1)
        return [token_view(record.id, token, trace) for token in wanted]

    found = await queries.runs.project(record.id, page)
    shown, next_cursor = page_of(found, query.limit, lambda token: token.id.rpartition(".")[2])
    working = {one.id: task for one in shown if (task := ids.from_text(one.task_id or ""))}
    tasks = await queries.tasks.by_ids([*working.values()])
    return RunTokenPage(
        items=[
            with_task(one, tasks[working[one.id]]) if working.get(one.id) in tasks else one
            for one in shown
        ],
        next_cursor=next_cursor,
    )


def _wanted(query: TokensQuery, trace: RunProjection, after: int) -> Iterator[TokenProjection]:
    seen: Counter[str] = Counter()
    for token in trace.tokens.values():
        if token.number <= after or query.node not in {None, token.node}:
            continue
        if query.state not in {None, trace.state(token)}:
            continue
        seen[token.node] += 1
        if query.per_node is None or seen[token.node] <= query.per_node:
            yield token


@routes.get("/api/runs/{run_id}/journal", Action.READ, errors=(RunNotFound,))
async def journal(call: HttpCall[None, JournalQuery]) -> JournalPage:
    """List the journal of a run: its events and the decisions of each.

    Events and decisions hold numbers of tokens and scopes. `text`, `token_names` and `scope_names`
    say them by node and branch, for people; their wording may change.
    """
    query, record = call.query, await known_run(call)
    runs = call.coordinator.queries.runs
    found = await runs.journal(record.id, after=query.after, limit=query.limit + 1)
    page, next_cursor = page_of(found, query.limit, lambda entry: str(entry.number))
    items = await runs.project(
        record.id, lambda trace: [entry_view(entry, query.decisions, trace) for entry in page]
    )
    return JournalPage(items=items, next_cursor=next_cursor)


@routes.get("/api/runs/{run_id}/graph", Action.READ, errors=(RunNotFound, WorkflowNotFound))
async def graph(call: HttpCall[None, GraphQuery]) -> RunGraph:
    """Show a run's nodes and transitions with counts of tokens."""
    record = await known_run(call)
    queries = call.coordinator.queries
    definition = await queries.workflows.definition(record.workflow, record.version)
    if definition is None:
        raise WorkflowNotFound(record.workflow, record.version)
    if not isinstance(definition, Definition):
        return await queries.runs.project(
            record.id, lambda trace: _function_graph(record, trace, at=call.query.at)
        )
    return await queries.runs.project(
        record.id, lambda trace: graph_view(record, definition, trace, at=call.query.at)
    )


def _function_graph(record: RunRecord, trace: RunProjection, *, at: int | None) -> RunGraph:
    assert isinstance(trace, FunctionProjection)
    return function_graph_view(record, trace, at=at)
