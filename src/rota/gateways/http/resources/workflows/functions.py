"""Functions over HTTP: their logs, their streams, and their replies to signals."""

from typing import Annotated, Any

from msgspec import Meta, Raw

from rota.core import access, limits
from rota.core.access import Action
from rota.core.ids import TaskId, news_of
from rota.core.workflow.commands import (
    LookAtOperations,
    LookAtReply,
    LookAtStream,
    ReplyShown,
    StreamShown,
)
from rota.engine.topics import EndOfTask
from rota.errors import Forbidden, Invalid, RunNotFound
from rota.gateways.http.resources.workflows.run_inspection import Number, known_id
from rota.gateways.http.routing.endpoint import HttpCall, Routes
from rota.gateways.http.routing.responses import HttpResponse, encoded
from rota.messages import OperationPage, Request, RunStreamPage, SignalReply, WaitMs

routes = Routes("Runs")


class OperationsQuery(Request, frozen=True, kw_only=True):
    after: Annotated[Number, Meta(description="The number of entries already known.")] = 0
    limit: Annotated[int, Meta(ge=1, le=limits.MAX_PAGE)] = limits.MAX_PAGE


class StreamQuery(Request, frozen=True, kw_only=True):
    after: Annotated[Number, Meta(description="The number of values already known.")] = 0
    limit: Annotated[int, Meta(ge=1, le=limits.MAX_PAGE)] = limits.DEFAULT_PAGE
    wait_ms: Annotated[
        WaitMs, Meta(description="Answer as soon as there are values, after this at the latest.")
    ] = 0


class ReplyQuery(Request, frozen=True, kw_only=True):
    wait_ms: Annotated[
        WaitMs, Meta(description="Answer as soon as there is a reply, after this at the latest.")
    ] = 0


@routes.get(
    "/api/runs/{run_id}/operations",
    Action.FOLLOW,
    answer=OperationPage,
    errors=(Invalid, RunNotFound, Forbidden),
)
async def operations(call: HttpCall[None, OperationsQuery]) -> HttpResponse:
    """List the log of a function: its operations since its last restart.

    A token of the scope `worker` alone may read the logs of functions that its workers run.
    """
    run_id, caller, query = known_id(call.path["run_id"]), call.caller, call.query
    is_reader = access.is_allowed(caller, Action.READ)
    if is_reader:
        access.check_unbound(caller)
    shown = await call.coordinator.execute(
        LookAtOperations(
            run_id=run_id,
            after=query.after,
            limit=query.limit,
            by=None if is_reader else caller,
        )
    )
    page = {
        "items": _joined(shown.entries),
        "next_after": shown.next_after,
        "reported": shown.reported,
        "restarts": shown.restarts,
    }
    return encoded(page)


@routes.get(
    "/api/runs/{run_id}/streams/{name}",
    Action.READ,
    answer=RunStreamPage,
    errors=(Invalid, RunNotFound),
)
async def stream(call: HttpCall[None, StreamQuery]) -> HttpResponse:
    """List the values that a function has appended to a stream, or wait for them."""
    access.check_unbound(call.caller)
    query = call.query
    run_id = known_id(call.path["run_id"])
    command = LookAtStream(
        run_id=run_id, name=call.path["name"], after=query.after, limit=query.limit
    )
    shown = await _awaited(call, run_id, command, query.wait_ms)
    page = {
        "items": _joined(shown.values),
        "next_after": shown.next_after,
        "ended": shown.is_ended,
    }
    return encoded(page)


@routes.get(
    "/api/runs/{run_id}/replies/{key}",
    Action.READ,
    answer=SignalReply,
    errors=(Invalid, RunNotFound),
)
async def reply(call: HttpCall[None, ReplyQuery]) -> HttpResponse:
    """Show the reply of a function to the signal with this key, or wait for it."""
    access.check_unbound(call.caller)
    run_id = known_id(call.path["run_id"])
    command = LookAtReply(run_id=run_id, key=call.path["key"])
    shown = await _awaited(call, run_id, command, call.query.wait_ms)
    page: dict[str, Any] = {"ready": shown.value is not None, "ended": shown.is_ended}
    if shown.value is not None:
        page["value"] = Raw(shown.value)
    return encoded(page)


async def _awaited(call: HttpCall[None, Any], run_id: int, command: Any, wait_ms: int) -> Any:
    """Look, and if there is nothing yet, look again after the next news of the run."""
    coordinator = call.coordinator
    with coordinator.subscribe(EndOfTask(TaskId(news_of(run_id)))) as news:
        shown = await coordinator.execute(command)
        if _is_there(shown) or shown.is_ended or not wait_ms or coordinator.is_stopping:
            return shown
        await call.while_connected(news.wait(wait_ms))
    return await coordinator.execute(command)


def _is_there(shown: StreamShown | ReplyShown) -> bool:
    return bool(shown.values) if isinstance(shown, StreamShown) else shown.value is not None


def _joined(values: list[bytes]) -> Raw:
    return Raw(b"[" + b",".join(values) + b"]")
