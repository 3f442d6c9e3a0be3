"""Runs over HTTP, looked into: their tokens, their journal, their graph."""

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any

from msgspec import Meta

from rota.core import access, ids, limits
from rota.core.access import Action
from rota.core.tasks import Name
from rota.core.workflow.records import RunRecord
from rota.core.workflow.tokens import TokenState
from rota.engine.projections import TokenTrace, Trace
from rota.errors import RunNotFound, WorkflowNotFound
from rota.gateways.http.bodies import invalid_field
from rota.gateways.http.endpoint import Call, Endpoint
from rota.gateways.http.run_views import entry_view, graph_view, token_view, with_task
from rota.messages import JournalPage, Request, RunGraph, RunTokenPage, RunTokenView

Number = Annotated[int, Meta(ge=0, le=2**53)]


class TokensQuery(Request, frozen=True, kw_only=True):
    node: Annotated[Name | None, Meta(description="Only those of this node.")] = None
    state: Annotated[TokenState | None, Meta(description="Only those in this state.")] = None
    per_node: Annotated[
        Annotated[int, Meta(ge=1, le=limits.MAX_PAGE)] | None,
        Meta(description="At most so many of each node, the first ones."),
    ] = None
    limit: Annotated[int, Meta(ge=1, le=limits.MAX_PAGE)] = limits.DEFAULT_PAGE
    cursor: Annotated[
        str | None, Meta(description="`next_cursor` of the page before this one.")
    ] = None


class GraphQuery(Request, frozen=True, kw_only=True):
    at: Annotated[
        Number | None,
        Meta(description="As the run was after this entry of its journal; absent: as it is."),
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


async def known_run(call: Call[Any, Any]) -> RunRecord:
    """The run in the path, for a caller that may see it."""
    access.check_unbound(call.caller)
    record = await call.coordinator.queries.run(known_id(call.parameter))
    if record is None:
        raise RunNotFound(call.parameter)
    return record


async def tokens(call: Call[None, TokensQuery]) -> RunTokenPage:
    query, record = call.query, await known_run(call)
    after = 0 if query.cursor is None else _number(query.cursor)
    queries = call.coordinator.queries

    def page(trace: Trace) -> list[RunTokenView]:
        # One more than asked for tells whether there is a next page.
        wanted = islice(_wanted(query, trace, after), query.limit + 1)
        return [token_view(record.id, token, trace) for token in wanted]

    found = await queries.trace(record.id, page)
    shown = found[: query.limit]
    working = {one.id: task for one in shown if (task := ids.from_text(one.task_id or ""))}
    tasks = await queries.tasks_by_ids(list(working.values()))
    return RunTokenPage(
        items=[
            with_task(one, tasks[working[one.id]]) if working.get(one.id) in tasks else one
            for one in shown
        ],
        next_cursor=shown[-1].id.rpartition(".")[2] if len(found) > len(shown) else None,
    )


def _wanted(query: TokensQuery, trace: Trace, after: int) -> Iterator[TokenTrace]:
    seen: Counter[str] = Counter()
    for token in trace.tokens.values():
        if token.number <= after or query.node not in {None, token.node}:
            continue
        if query.state not in {None, trace.state(token)}:
            continue
        seen[token.node] += 1
        if query.per_node is None or seen[token.node] <= query.per_node:
            yield token


def _number(cursor: str) -> int:
    if not (cursor.isascii() and cursor.isdigit()):
        raise invalid_field("cursor", "not one of ours; take `next_cursor` as it came")
    return int(cursor[:20])


async def journal(call: Call[None, JournalQuery]) -> JournalPage:
    query, record = call.query, await known_run(call)
    found = await call.coordinator.queries.journal(
        record.id, after=query.after, limit=query.limit + 1
    )
    page = found[: query.limit]
    return JournalPage(
        items=[entry_view(entry, query.decisions) for entry in page],
        next_cursor=str(page[-1].number) if len(found) > len(page) else None,
    )


async def graph(call: Call[None, GraphQuery]) -> RunGraph:
    record = await known_run(call)
    queries = call.coordinator.queries
    definition = await queries.definition(record.workflow, record.version)
    if definition is None:
        raise WorkflowNotFound(record.workflow, record.version)
    return await queries.trace(
        record.id, lambda trace: graph_view(record, definition, trace, at=call.query.at)
    )


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/api/runs/{run_id}/tokens",
        summary="List where a run is and was, in the order of their making",
        noun="Runs",
        action=Action.READ,
        handler=tokens,
        query=TokensQuery,
        answer=RunTokenPage,
        errors=(RunNotFound,),
    ),
    Endpoint(
        method="GET",
        path="/api/runs/{run_id}/journal",
        summary="List what happened to a run, and what was decided each time",
        noun="Runs",
        action=Action.READ,
        handler=journal,
        query=JournalQuery,
        answer=JournalPage,
        errors=(RunNotFound,),
    ),
    Endpoint(
        method="GET",
        path="/api/runs/{run_id}/graph",
        summary="Show a run's nodes and transitions with counts of tokens",
        noun="Runs",
        action=Action.READ,
        handler=graph,
        query=GraphQuery,
        answer=RunGraph,
        errors=(RunNotFound, WorkflowNotFound),
    ),
)
