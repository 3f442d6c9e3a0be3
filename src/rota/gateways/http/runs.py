"""Runs over HTTP: start, look, steer."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Raw

from rota.core import access, ids, limits
from rota.core.access import Action
from rota.core.values import check_value
from rota.core.workflow.commands import (
    ForkRun,
    LookAtRun,
    RunCommand,
    SignalRun,
    StartRun,
    SteerRun,
    named_version,
)
from rota.core.workflow.run import RUN_ENDED
from rota.engine.run_commands import RunShown, context_of
from rota.errors import (
    IllegalState,
    Invalid,
    NodeNotFound,
    Overloaded,
    RunNotFound,
    WorkflowNotFound,
)
from rota.gateways.http import artifacts, run_looks
from rota.gateways.http.answers import Answered, encoded
from rota.gateways.http.bodies import invalid_field, is_null
from rota.gateways.http.endpoint import Call, Endpoint, NoQuery
from rota.gateways.http.run_looks import known_id
from rota.gateways.http.run_views import run_view, shown_run
from rota.messages import (
    ForkRequest,
    Name,
    NoFields,
    Request,
    RunCancellation,
    RunPage,
    RunRequest,
    RunState,
    RunView,
    SignalRequest,
    WaitMs,
)


class WaitForRunQuery(Request, frozen=True, kw_only=True):
    wait_ms: Annotated[
        WaitMs, Meta(description="Answer as soon as the run has ended, after this at the latest.")
    ] = 0


class RunsQuery(Request, frozen=True, kw_only=True):
    workflow: Name | None = None
    state: RunState | None = None
    limit: Annotated[int, Meta(ge=1, le=limits.MAX_PAGE)] = limits.DEFAULT_PAGE
    cursor: Annotated[
        str | None, Meta(description="`next_cursor` of the page before this one.")
    ] = None


# --- starting ----------------------------------------------------------------------------------


async def start(call: Call[RunRequest, NoQuery]) -> Answered:
    asked = call.body
    access.check_unbound(call.caller)
    name, version = named_version(asked.workflow)
    if version is not None and asked.version not in {None, version}:
        raise invalid_field("version", f"{asked.version} is not that of {asked.workflow!r}")
    run_input = {} if asked.input is None else _value(call, asked.input, "input")
    shown = await _carry_out(
        call,
        StartRun(
            workflow=name,
            version=version or asked.version,
            input=run_input,
            key=asked.key,
            timeout_ms=asked.timeout_ms,
        ),
    )
    return encoded(shown_run(shown), 200 if shown.is_duplicate else 201)


def _value(call: Call[Any, Any], value: Raw, field: str) -> Any:
    """Decode a value that runs work with; JSON allows numbers that no machine has."""
    check_value(value, field, most_bytes=call.settings.max_payload_bytes)
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError as error:
        raise invalid_field(field, str(error)) from None


async def _carry_out(call: Call[Any, Any], command: RunCommand) -> RunShown:
    reply = await call.coordinator.command(command)
    assert isinstance(reply, RunShown)
    return reply


# --- looking -----------------------------------------------------------------------------------


async def show(call: Call[None, WaitForRunQuery]) -> RunView:
    access.check_unbound(call.caller)
    run_id = known_id(call.parameter)
    if call.query.wait_ms:
        waiting = call.coordinator.wait_run(run_id, wait_ms=call.query.wait_ms)
        await call.while_connected(waiting)
    record = await call.coordinator.queries.run(run_id)
    if record is None:
        raise RunNotFound(call.parameter)
    if record.state in RUN_ENDED:
        return run_view(record, context_of(record))
    return shown_run(await _carry_out(call, LookAtRun(run_id)))


async def listing(call: Call[None, RunsQuery]) -> RunPage:
    access.check_unbound(call.caller)
    query = call.query
    before = None
    if query.cursor is not None:
        before = ids.from_text(query.cursor)
        if before is None:
            raise invalid_field("cursor", "not one of ours; take `next_cursor` as it came")
    # One more than asked for tells whether there is a next page.
    found = await call.coordinator.queries.runs(
        workflow=query.workflow, state=query.state, limit=query.limit + 1, before=before
    )
    page = found[: query.limit]
    return RunPage(
        items=[run_view(record) for record in page],
        next_cursor=ids.to_text(page[-1].id) if len(found) > len(page) else None,
    )


# --- steering ----------------------------------------------------------------------------------


async def cancel(call: Call[RunCancellation | None, NoQuery]) -> RunView:
    return await _steer(call, "cancel", "" if call.body is None else call.body.reason)


async def pause(call: Call[NoFields | None, NoQuery]) -> RunView:
    return await _steer(call, "pause")


async def resume(call: Call[NoFields | None, NoQuery]) -> RunView:
    return await _steer(call, "resume")


async def retry(call: Call[NoFields | None, NoQuery]) -> RunView:
    return await _steer(call, "retry")


async def _steer(
    call: Call[Any, Any], wish: Literal["cancel", "pause", "resume", "retry"], reason: str = ""
) -> RunView:
    access.check_unbound(call.caller)
    command = SteerRun(run_id=known_id(call.parameter), wish=wish, reason=reason)
    return shown_run(await _carry_out(call, command))


async def signal(call: Call[SignalRequest, NoQuery]) -> RunView:
    access.check_unbound(call.caller)
    run_id, asked = known_id(call.parameter), call.body
    payload = None if asked.payload is None else _value(call, asked.payload, "payload")
    command = SignalRun(run_id=run_id, name=asked.name, payload=payload)
    return shown_run(await _carry_out(call, command))


async def fork(call: Call[ForkRequest, NoQuery]) -> RunView:
    access.check_unbound(call.caller)
    run_id, asked = known_id(call.parameter), call.body
    state = None
    if asked.state is not None and not is_null(asked.state):
        state = _value(call, asked.state, "state")
        if not isinstance(state, dict):
            raise invalid_field("state", "an object is needed")
    command = ForkRun(run_id=run_id, from_node=asked.from_node, state=state)
    return shown_run(await _carry_out(call, command))


ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/api/runs",
        summary="Start a run of a workflow",
        description="An input that does not fit the definition's schema is refused, and nothing "
        "starts. A `key` that is taken already is answered with the run that has it, 200 and "
        '`"duplicate": true`.',
        noun="Runs",
        action=Action.SUBMIT,
        handler=start,
        body=RunRequest,
        is_body_needed=True,
        answer=RunView,
        status=201,
        other_statuses=(200,),
        errors=(Invalid, WorkflowNotFound, Overloaded),
    ),
    Endpoint(
        method="GET",
        path="/api/runs",
        summary="List runs, newest first",
        noun="Runs",
        action=Action.READ,
        handler=listing,
        query=RunsQuery,
        answer=RunPage,
    ),
    Endpoint(
        method="GET",
        path="/api/runs/{run_id}",
        summary="Show a run, or wait for its end",
        noun="Runs",
        action=Action.READ,
        handler=show,
        query=WaitForRunQuery,
        answer=RunView,
        errors=(RunNotFound,),
    ),
    Endpoint(
        method="POST",
        path="/api/runs/{run_id}/cancel",
        summary="End a run, with its sub-workflows and its tasks",
        noun="Runs",
        action=Action.SUBMIT,
        handler=cancel,
        body=RunCancellation,
        answer=RunView,
        errors=(RunNotFound, IllegalState),
    ),
    *(
        Endpoint(
            method="POST",
            path=f"/api/runs/{{run_id}}/{verb}",
            summary=summary,
            noun="Runs",
            action=Action.SUBMIT,
            handler=handler,
            answer=RunView,
            errors=(RunNotFound, IllegalState),
        )
        for verb, handler, summary in (
            ("pause", pause, "Let a run finish what is under way, and begin nothing new"),
            ("resume", resume, "Let a paused run go on"),
            ("retry", retry, "Let a failed run go on from where it failed"),
        )
    ),
    Endpoint(
        method="POST",
        path="/api/runs/{run_id}/signal",
        summary="Tell a run something it waits for, now or later",
        description="An approval is a signal whose name is the node's id, and whose payload is "
        'true or {"approved": true}.',
        noun="Runs",
        action=Action.SUBMIT,
        handler=signal,
        body=SignalRequest,
        is_body_needed=True,
        answer=RunView,
        errors=(RunNotFound, IllegalState),
    ),
    Endpoint(
        method="POST",
        path="/api/runs/{run_id}/fork",
        summary="Start a new run on another one's input, from a node of it",
        noun="Runs",
        action=Action.SUBMIT,
        handler=fork,
        body=ForkRequest,
        is_body_needed=True,
        answer=RunView,
        status=201,
        errors=(RunNotFound, NodeNotFound),
    ),
    *run_looks.ENDPOINTS,
    *artifacts.ENDPOINTS,
)
