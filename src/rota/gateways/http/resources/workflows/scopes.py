"""Scopes of runs over HTTP: listed, completed and cancelled."""

from itertools import islice
from typing import Annotated

from msgspec import Meta

from rota.core import access
from rota.core.access import Action
from rota.core.workflow.commands import SteerScope
from rota.core.workflow.definition.model import Graph
from rota.core.workflow.states import ScopeAction
from rota.engine.runs.projections import RunProjection
from rota.errors import IllegalState, RunNotFound, ScopeNotFound, WorkflowNotFound
from rota.gateways.http.resources.workflows.run_inspection import known_id, known_run
from rota.gateways.http.routing.endpoint import HttpCall, NoQuery, Routes
from rota.gateways.http.routing.parameters import PageQuery, number_of, page_of
from rota.gateways.http.views.runs import scope_view, shown_run
from rota.messages import RunView, ScopeEnding, ScopePage, ScopeView

MOST_DIGITS = 15  # of the number of a scope

routes = Routes("Scopes")


class ScopesQuery(PageQuery, frozen=True, kw_only=True):
    closed: Annotated[bool, Meta(description="Closed ones as well.")] = False


@routes.get("/api/runs/{run_id}/scopes", Action.READ, errors=(RunNotFound, WorkflowNotFound))
async def listing(call: HttpCall[None, ScopesQuery]) -> ScopePage:
    """List the open scopes of a run, the oldest first.

    A scope is opened by a fan-out, and is closed when its joins have fired, or when its branches
    have ended.
    """
    query, record = call.query, await known_run(call)
    after = 0 if query.cursor is None else number_of(query.cursor)
    queries = call.coordinator.queries
    definition = await queries.workflows.definition(record.workflow, record.version)
    if definition is None:
        raise WorkflowNotFound(record.workflow, record.version)
    graph = Graph(definition)

    def page(trace: RunProjection) -> list[ScopeView]:
        opened = {scope.number for scope in trace.open_scopes()}
        wanted = (
            scope
            for scope in trace.scopes.values()
            if scope.number > after and (query.closed or scope.number in opened)
        )
        return [
            scope_view(record.id, graph, scope, is_open=scope.number in opened)
            for scope in islice(wanted, query.limit + 1)
        ]

    found = await queries.runs.project(record.id, page)
    shown, next_cursor = page_of(found, query.limit, lambda scope: str(scope.number))
    return ScopePage(items=shown, next_cursor=next_cursor)


@routes.post(
    "/api/runs/{run_id}/scopes/{scope}/complete",
    Action.SUBMIT,
    errors=(RunNotFound, ScopeNotFound, IllegalState),
)
async def complete(call: HttpCall[ScopeEnding | None, NoQuery]) -> RunView:
    """Complete an open scope: its join fires with what has arrived.

    The other branches are cancelled, or left to finish, as the join's `late` says.
    """
    return await _steer(call, "complete")


@routes.post(
    "/api/runs/{run_id}/scopes/{scope}/cancel",
    Action.SUBMIT,
    errors=(RunNotFound, ScopeNotFound, IllegalState),
)
async def cancel(call: HttpCall[ScopeEnding | None, NoQuery]) -> RunView:
    """Cancel an open scope: its branches end, and its join never fires.

    The rest of the run goes on. A run of which nothing is left completes.
    """
    return await _steer(call, "cancel")


async def _steer(call: HttpCall[ScopeEnding | None, NoQuery], action: ScopeAction) -> RunView:
    access.check_unbound(call.caller)
    run_id = known_id(call.path["run_id"])
    asked = call.body or ScopeEnding()
    command = SteerScope(run_id=run_id, scope=_number(call), action=action, reason=asked.reason)
    return shown_run(await call.coordinator.execute(command))


def _number(call: HttpCall[ScopeEnding | None, NoQuery]) -> int:
    """The number of the scope in the path; 0, which none has, if it is not a number."""
    text = call.path["scope"]
    return int(text[:MOST_DIGITS]) if text.isascii() and text.isdigit() else 0
