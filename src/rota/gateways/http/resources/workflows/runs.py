"""Runs over HTTP: start, show, list, control."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Raw

from rota.core import access, ids
from rota.core.access import Action
from rota.core.ids import TaskId
from rota.core.tasks.headers import check_headers, trace_headers
from rota.core.tasks.values import check_value
from rota.core.workflow.commands import (
    ForkRun,
    LookAtRun,
    SignalRun,
    StartRun,
    SteerRun,
    named_version,
)
from rota.core.workflow.records import RunRecord
from rota.core.workflow.states import RUN_ENDED
from rota.engine.coordinator import Coordinator
from rota.engine.runs.run_domain import context_of
from rota.engine.topics import EndOfTask
from rota.errors import (
    IllegalState,
    Invalid,
    NodeNotFound,
    NothingToApprove,
    Overloaded,
    RunNotFound,
    WorkflowNotFound,
)
from rota.gateways.http.resources.workflows.run_inspection import known_id
from rota.gateways.http.routing.endpoint import HttpCall, NoQuery, Routes
from rota.gateways.http.routing.parameters import PageQuery, id_before, page_of
from rota.gateways.http.routing.responses import HttpResponse, encoded
from rota.gateways.http.views.runs import run_view, shown_run
from rota.gateways.validation import invalid_field, is_null
from rota.messages import (
    ForkRequest,
    Name,
    NoFields,
    Request,
    RunCancellation,
    RunPage,
    RunRequest,
    RunResumption,
    RunState,
    RunView,
    SignalRequest,
    WaitMs,
)

MOST_TOKENS = 2**53 - 1  # tokens of a run; a higher number is none of them
MOST_DIGITS = 16  # of such a number

routes = Routes("Runs")


class WaitForRunQuery(Request, frozen=True, kw_only=True):
    wait_ms: Annotated[
        WaitMs, Meta(description="Answer as soon as the run has ended, after this at the latest.")
    ] = 0


class RunsQuery(PageQuery, frozen=True, kw_only=True):
    workflow: Name | None = None
    state: RunState | None = None


# --- starting ----------------------------------------------------------------------------------


@routes.post(
    "/api/runs",
    Action.SUBMIT,
    answer=RunView,
    status=201,
    other_statuses=(200,),
    errors=(Invalid, WorkflowNotFound, Overloaded),
    starts_eagerly=True,
)
async def start(call: HttpCall[RunRequest, WaitForRunQuery]) -> HttpResponse:
    """Start a run of a workflow, and wait for its end, if asked.

    An input that does not fit the definition's schema is refused, and nothing starts. A `key`
    that is taken already is answered with the run that has it, 200 and `"duplicate": true`. With
    `wait_ms` the answer shows the run as it is then: a caller that goes away meanwhile does not
    end it.

    The tasks of the run get its `headers`. Without any, a `traceparent` in the head of the request
    becomes one.
    """
    asked = call.body
    access.check_unbound(call.caller)
    name, version = named_version(asked.workflow)
    if version is not None and asked.version not in {None, version}:
        raise invalid_field("version", f"{asked.version} is not that of {asked.workflow!r}")
    run_input = {} if asked.input is None else _value(call, asked.input, "input")
    command = StartRun(
        workflow=name,
        version=version or asked.version,
        input=run_input,
        key=asked.key,
        timeout_ms=asked.timeout_ms,
        headers=_headers(call),
    )
    if call.query.wait_ms:
        view = await _ended(call, command)
    else:
        view = shown_run(await call.coordinator.execute(command, is_alone=True))
    return encoded(view, 200 if view.duplicate else 201)


async def _ended(call: HttpCall[RunRequest, WaitForRunQuery], command: StartRun) -> RunView:
    """Start a run, and show it when it has ended, or after the time that the caller waits."""
    with call.coordinator.start_run(command) as started:
        shown = await started.reply
        ending = started.end_within(call.query.wait_ms)
        if ending is None or call.coordinator.is_stopping:
            return shown_run(shown)
        ended = await call.while_connected(ending)
    if ended is not None and ended.run is not None:
        return run_view(ended.run.record, ended.run.context, duplicate=shown.is_duplicate)
    now = await _current(call, shown.record.id)
    return msgspec.structs.replace(now, duplicate=shown.is_duplicate)


def _headers(call: HttpCall[RunRequest, WaitForRunQuery]) -> dict[str, str] | None:
    given = call.body.headers
    if given:
        check_headers(given)
        return given
    return trace_headers(call.headers.get(b"traceparent"))


def _value(call: HttpCall[Any, Any], value: Raw, field: str) -> Any:
    """Decode a value that runs compute with; refuse numbers that no machine has."""
    check_value(value, field, most_bytes=call.settings.max_payload_bytes)
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError as error:
        raise invalid_field(field, str(error)) from None


# --- showing -----------------------------------------------------------------------------------


@routes.get("/api/runs/{run_id}", Action.READ, errors=(RunNotFound,))
async def show(call: HttpCall[None, WaitForRunQuery]) -> RunView:
    """Show a run, or wait for its end."""
    access.check_unbound(call.caller)
    run_id = known_id(call.path["run_id"])
    wait_ms = call.query.wait_ms
    if not wait_ms or call.coordinator.is_stopping:
        return await _current(call, run_id)
    with call.coordinator.subscribe(EndOfTask(TaskId(run_id))) as end:
        record = await call.coordinator.queries.runs.by_id(run_id)
        if record is None:
            raise RunNotFound(ids.to_text(run_id))
        if record.state in RUN_ENDED:
            return await _current(call, run_id)
        ended = await call.while_connected(end.within(wait_ms))
    if ended is not None and ended.run is not None and record.parent_run is None:
        return shown_run(ended.run)
    return await _current(call, run_id)


async def _current(call: HttpCall[Any, Any], run_id: int) -> RunView:
    record = await call.coordinator.queries.runs.by_id(run_id)
    if record is None:
        raise RunNotFound(ids.to_text(run_id))
    parents = await _parent_workflows(call.coordinator, [record])
    parent = parents.get(record.parent_run or 0)
    if record.state in RUN_ENDED:
        return run_view(record, context_of(record), parent_workflow=parent)
    shown = await call.coordinator.execute(LookAtRun(run_id))
    return shown_run(shown, parent_workflow=parent)


@routes.get("/api/runs", Action.READ)
async def listing(call: HttpCall[None, RunsQuery]) -> RunPage:
    """List runs, newest first."""
    access.check_unbound(call.caller)
    query = call.query
    found = await call.coordinator.queries.runs.page(
        workflow=query.workflow,
        state=query.state,
        limit=query.limit + 1,
        before=id_before(query.cursor),
    )
    page, next_cursor = page_of(found, query.limit, lambda record: ids.to_text(record.id))
    parents = await _parent_workflows(call.coordinator, page)
    items = [run_view(one, parent_workflow=parents.get(one.parent_run or 0)) for one in page]
    return RunPage(items=items, next_cursor=next_cursor)


async def _parent_workflows(coordinator: Coordinator, runs: Sequence[RunRecord]) -> dict[int, str]:
    """The workflows of the runs inside which these run."""
    wanted = [run.parent_run for run in runs if run.parent_run is not None]
    return await coordinator.queries.waits.workflows(wanted) if wanted else {}


# --- controlling -------------------------------------------------------------------------------


@routes.post("/api/runs/{run_id}/cancel", Action.SUBMIT, errors=(RunNotFound, IllegalState))
async def cancel(call: HttpCall[RunCancellation | None, NoQuery]) -> RunView:
    """Cancel a run with its sub-workflows and its tasks.

    What it has done is undone first, where its nodes have compensating tasks; until then the run
    stays `running`. A run that is being compensated because it has failed keeps its error. With
    `force` the run ends at once, and its error lists what was not undone.
    """
    asked = call.body or RunCancellation()
    return await _steer(call, "cancel", asked.reason, force=asked.force)


@routes.post("/api/runs/{run_id}/pause", Action.SUBMIT, errors=(RunNotFound, IllegalState))
async def pause(call: HttpCall[NoFields | None, NoQuery]) -> RunView:
    """Pause a run and its sub-workflows: running tasks finish, and nothing new starts."""
    return await _steer(call, "pause")


@routes.post("/api/runs/{run_id}/resume", Action.SUBMIT, errors=(RunNotFound, IllegalState))
async def resume(call: HttpCall[RunResumption | None, NoQuery]) -> RunView:
    """Resume a paused run and its sub-workflows.

    A function that does not do what its log says pauses its run (`diverged`). A resume lets any
    worker try it again, for example one with the earlier code. With `accept` the new code counts:
    what the log has, and the function did not ask for again, is dropped.
    """
    accept = call.body is not None and call.body.accept
    return await _steer(call, "resume", accept=accept)


@routes.post("/api/runs/{run_id}/retry", Action.SUBMIT, errors=(RunNotFound, IllegalState))
async def retry(call: HttpCall[NoFields | None, NoQuery]) -> RunView:
    """Retry a failed run from where it failed."""
    return await _steer(call, "retry")


async def _steer(
    call: HttpCall[Any, Any],
    action: Literal["cancel", "pause", "resume", "retry"],
    reason: str = "",
    *,
    force: bool = False,
    accept: bool = False,
) -> RunView:
    access.check_unbound(call.caller)
    run_id = known_id(call.path["run_id"])
    command = SteerRun(run_id=run_id, action=action, reason=reason, force=force, accept=accept)
    return shown_run(await call.coordinator.execute(command))


@routes.post(
    "/api/runs/{run_id}/signal",
    Action.SUBMIT,
    errors=(Invalid, RunNotFound, IllegalState, NothingToApprove),
)
async def signal(call: HttpCall[SignalRequest, NoQuery]) -> RunView:
    """Send a run a signal that it waits for, now or later.

    An approval is a signal whose name is the node's id, and whose payload is true or
    {"approved": true}. It is refused if no token waits for it. Give the `token_id` that you have
    seen waiting, so that a repeated answer does not answer the next question. Other signals are
    kept until a token waits for them. A `key` makes a repeated signal count once.
    """
    access.check_unbound(call.caller)
    run_id, asked = known_id(call.path["run_id"]), call.body
    payload = None if asked.payload is None else _value(call, asked.payload, "payload")
    command = SignalRun(
        run_id=run_id,
        name=asked.name,
        payload=payload,
        key=asked.key,
        token=None if asked.token_id is None else _token_number(run_id, asked.token_id),
    )
    return shown_run(await call.coordinator.execute(command))


def _token_number(run_id: int, token_id: str) -> int:
    """The number of a token of a run, from its id."""
    run_text, _, number = token_id.rpartition(".")
    if ids.from_text(run_text) != run_id or not (number.isascii() and number.isdigit()):
        raise invalid_field(
            "token_id", f"{token_id!r} is not a token of run {ids.to_text(run_id)!r}"
        )
    return min(int(number[:MOST_DIGITS]), MOST_TOKENS)


@routes.post(
    "/api/runs/{run_id}/fork", Action.SUBMIT, status=201, errors=(RunNotFound, NodeNotFound)
)
async def fork(call: HttpCall[ForkRequest, NoQuery]) -> RunView:
    """Start a new run on the input of another run, from one of its nodes."""
    access.check_unbound(call.caller)
    run_id, asked = known_id(call.path["run_id"]), call.body
    state = None
    if asked.state is not None and not is_null(asked.state):
        state = _value(call, asked.state, "state")
        if not isinstance(state, dict):
            raise invalid_field("state", "must be an object")
    command = ForkRun(run_id=run_id, from_node=asked.from_node, state=state)
    return shown_run(await call.coordinator.execute(command))
