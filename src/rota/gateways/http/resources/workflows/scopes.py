"""Scopes of runs over HTTP: listed, completed, cancelled, and extended by branches."""

from itertools import islice
from typing import Annotated, Any

from msgspec import Meta

from rota.core import access
from rota.core.access import Action
from rota.core.ids import to_text
from rota.core.workflow.commands import AddBranches, AddSiblings, ScopeExtended, SteerScope
from rota.core.workflow.definition.model import Graph
from rota.core.workflow.functions.model import CodeDefinition
from rota.core.workflow.states import ScopeAction
from rota.engine.runs.projections import RunProjection
from rota.errors import (
    IllegalState,
    Invalid,
    Overloaded,
    RunNotFound,
    ScopeNotFound,
    StaleLease,
    TaskNotFound,
    TooLarge,
    WorkflowNotFound,
)
from rota.gateways.http.resources.workflows.run_inspection import known_id, known_run, leased_task
from rota.gateways.http.routing.endpoint import HttpCall, NoQuery, Routes
from rota.gateways.http.routing.parameters import PageQuery, number_of, page_of
from rota.gateways.http.routing.responses import HttpResponse, encoded
from rota.gateways.http.views.runs import scope_view, shown_run
from rota.messages import (
    BranchesRequest,
    BranchesView,
    RunView,
    ScopeEnding,
    ScopePage,
    ScopeView,
    SiblingsRequest,
)

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
    if isinstance(definition, CodeDefinition):
        return ScopePage(items=[])  # the scopes of a function are its own
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


@routes.post(
    "/api/runs/{run_id}/scopes/{scope}/branches",
    Action.SUBMIT,
    answer=BranchesView,
    status=201,
    other_statuses=(200,),
    errors=(Invalid, RunNotFound, ScopeNotFound, IllegalState, TooLarge, Overloaded),
)
async def add_branches(call: HttpCall[BranchesRequest, NoQuery]) -> HttpResponse:
    """Add branches to a scope whose fan-out is `open`.

    Each item is a branch. With `last`, the scope takes no further branches: its join then fires as
    any other does. A `key` that the scope knows already changes nothing; it is answered with 200,
    the indexes of the branches, and `"duplicate": true`.
    """
    access.check_unbound(call.caller)
    asked = call.body
    command = AddBranches(
        run_id=known_id(call.path["run_id"]),
        scope=_number(call),
        items=asked.items,
        key=asked.key,
        is_last=asked.last,
    )
    return _extended(await call.coordinator.execute(command))


@routes.post(
    "/api/tasks/{task_id}/branches",
    Action.WORK,
    answer=BranchesView,
    status=201,
    other_statuses=(200,),
    errors=(Invalid, TaskNotFound, StaleLease, IllegalState, TooLarge, Overloaded),
)
async def add_siblings(call: HttpCall[SiblingsRequest, NoQuery]) -> HttpResponse:
    """Add branches to an open scope around a leased task of a run.

    The scope is the innermost one that takes branches, or that of the fan-out that is named. A join
    that waits for all cannot fire before the task has ended, so its branches are never too late.
    """
    asked = call.body
    command = AddSiblings(
        task_id=await leased_task(call, call.path["task_id"], asked.fence),
        fence=asked.fence,
        fan_out=asked.fan_out,
        items=asked.items,
        key=asked.key,
        is_last=asked.last,
        by=call.caller,
    )
    return _extended(await call.coordinator.execute(command))


def _extended(added: ScopeExtended) -> HttpResponse:
    view = BranchesView(
        run_id=to_text(added.run_id),
        scope=added.scope,
        first_index=added.first_index,
        count=added.count,
        branch_total=added.total,
        duplicate=added.is_duplicate,
    )
    return encoded(view, 200 if added.is_duplicate else 201)


def _number(call: HttpCall[Any, NoQuery]) -> int:
    """The number of the scope in the path; 0, which none has, if it is not a number."""
    text = call.path["scope"]
    return int(text[:MOST_DIGITS]) if text.isascii() and text.isdigit() else 0
