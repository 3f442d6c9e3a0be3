"""API calls about workflows in code: their definitions, logs, replies and streams."""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from rota.core import limits
from rota.core.workflow.functions.model import CodeDefinition
from rota.messages import (
    OperationsAnswer,
    OperationsItem,
    OperationsReport,
    RunResumption,
    RunStreamPage,
    RunView,
    SignalReply,
    WorkflowView,
)
from rota.sdk.client.requests import ApiCall, Exchange, get, path_at, post, put
from rota.sdk.functions.execution.log import LoggedOperation


class LoggedOperationPage(Struct, frozen=True, kw_only=True):
    """Entries of the log of a function, as a replay reads them."""

    items: list[LoggedOperation]
    next_after: int | None = None
    reported: int = 0
    restarts: int = 0


def put_code(definition: CodeDefinition) -> ApiCall[WorkflowView]:
    """Store the definition of a workflow in code; equal code is the same version."""
    fields = msgspec.to_builtins(definition)
    del fields["name"]
    content = msgspec.json.encode({"code": fields})
    return put(path_at("workflows", definition.name), WorkflowView, content)


def report_operations(
    worker_id: str, *, incarnation: int, items: Sequence[OperationsItem]
) -> ApiCall[OperationsAnswer]:
    """Commit operations of functions; repeating it does no more than sending it once."""
    report = OperationsReport(incarnation=incarnation, items=list(items))
    path = path_at("workers", worker_id, "operations")
    return post(path, OperationsAnswer, report, is_repeatable=True)


def list_operations(
    run_id: str, *, after: int = 0, limit: int | None = None
) -> ApiCall[LoggedOperationPage]:
    path = path_at("runs", run_id, "operations")
    return get(path, LoggedOperationPage, [("after", after), ("limit", limit)])


def whole_log(run_id: str) -> Exchange[tuple[list[LoggedOperation], LoggedOperationPage]]:
    """The log of a run since its last restart, and the last page of it."""
    entries: list[LoggedOperation] = []
    page: LoggedOperationPage = yield list_operations(run_id, limit=limits.MAX_PAGE)
    entries += page.items
    while page.next_after is not None:
        page = yield list_operations(run_id, after=page.next_after, limit=limits.MAX_PAGE)
        entries += page.items
    return entries, page


def get_reply(run_id: str, key: str, *, wait_ms: int = 0) -> ApiCall[SignalReply]:
    """The reply to the signal with a key; with `wait_ms` as soon as there is one."""
    return get(path_at("runs", run_id, "replies", key), SignalReply, wait_ms=wait_ms)


def get_stream(
    run_id: str, name: str, *, after: int = 0, wait_ms: int = 0
) -> ApiCall[RunStreamPage]:
    path = path_at("runs", run_id, "streams", name)
    return get(path, RunStreamPage, [("after", after)], wait_ms=wait_ms)


def resume_run(run_id: str, *, accept: bool) -> ApiCall[RunView]:
    """Resume a run; `accept`: after a divergence the new code counts."""
    return post(path_at("runs", run_id, "resume"), RunView, RunResumption(accept=accept))
