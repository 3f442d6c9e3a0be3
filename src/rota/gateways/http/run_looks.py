"""Runs over HTTP, looked into: their tokens, their journal, their graph."""

from typing import Annotated, Any

from msgspec import Meta

from rota.core import access, ids, limits
from rota.core.access import Action
from rota.core.workflow.records import RunRecord
from rota.engine.projections import Trace
from rota.errors import RunNotFound, WorkflowNotFound
from rota.gateways.http.bodies import invalid_field
from rota.gateways.http.endpoint import Call, Endpoint, NoQuery
from rota.gateways.http.run_views import entry_view, graph_view, token_view
from rota.messages import JournalPage, Request, RunGraph, RunTokenPage

Number = Annotated[int, Meta(ge=0, le=2**53)]


class TokensQuery(Request, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=limits.MAX_PAGE)] = limits.DEFAULT_PAGE
    cursor: Annotated[
        str | None, Meta(description="`next_cursor` of the page before this one.")
    ] = None


class JournalQuery(Request, frozen=True, kw_only=True):
    after: Annotated[Number, Meta(description="The number of the last entry already known.")] = 0
    limit: Annotated[int, Meta(ge=1, le=limits.MAX_PAGE)] = limits.DEFAULT_PAGE


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
    trace = await call.coordinator.queries.trace(record.id)
    # One more than asked for tells whether there is a next page.
    found = [token for token in trace.tokens.values() if token.number > after][: query.limit + 1]
    page = found[: query.limit]
    return RunTokenPage(
        items=[token_view(record.id, token, trace) for token in page],
        next_cursor=str(page[-1].number) if len(found) > len(page) else None,
    )


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
        items=[entry_view(entry) for entry in page],
        next_cursor=str(page[-1].number) if len(found) > len(page) else None,
    )


async def graph(call: Call[None, NoQuery]) -> RunGraph:
    record = await known_run(call)
    queries = call.coordinator.queries
    definition = await queries.definition(record.workflow, record.version)
    if definition is None:
        raise WorkflowNotFound(record.workflow, record.version)
    trace: Trace = await queries.trace(record.id)
    return graph_view(record, definition, trace)


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
        answer=RunGraph,
        errors=(RunNotFound, WorkflowNotFound),
    ),
)
