"""What can be asked of a coordinator about workflows and runs? As `calls`, for those nouns."""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from rota.core.workflow.definition import Definition, canonical
from rota.errors import Invalid
from rota.messages import (
    ArtifactPage,
    ArtifactView,
    ForkRequest,
    JournalPage,
    RunCancellation,
    RunGraph,
    RunPage,
    RunRequest,
    RunTokenPage,
    RunView,
    SignalRequest,
    WorkflowCheck,
    WorkflowDetail,
    WorkflowPage,
    WorkflowView,
)
from rota.sdk.once import new_key
from rota.sdk.requests import Call, decoder_of, get, path_at, post
from rota.sdk.transport import ANSWER_TIMEOUT_S

# --- workflows -------------------------------------------------------------------------------


def put_workflow(definition: Definition) -> Call[WorkflowView]:
    return Call(
        method="PUT",
        path=path_at("workflows", definition.name),
        decoder=decoder_of(WorkflowView),
        body=canonical(definition),
        is_repeatable=True,
    )


def list_workflows(*, limit: int | None = None, cursor: str | None = None) -> Call[WorkflowPage]:
    return get("/api/workflows", WorkflowPage, [("limit", limit), ("cursor", cursor)])


def get_workflow(name: str, version: int | None = None) -> Call[WorkflowDetail]:
    """A workflow with its definition; without `version` the newest, and which others there are."""
    parts = () if version is None else ("versions", str(version))
    return get(path_at("workflows", name, *parts), WorkflowDetail)


def validate_workflow(text: str) -> Call[WorkflowCheck]:
    """Have a definition, YAML or JSON, looked at by the coordinator; nothing is kept."""
    return Call(
        method="POST",
        path=path_at("workflows", "validate"),
        decoder=decoder_of(WorkflowCheck),
        body=text.encode(),
        is_repeatable=True,
    )


# --- runs ------------------------------------------------------------------------------------


def start_run(request: RunRequest) -> Call[RunView]:
    call: Call[RunView] = post("/api/runs", RunView, request, is_repeatable=request.key is not None)
    if request.key is not None:
        return call
    return replace(call, made_repeatable=lambda: start_run(replace(request, key=new_key())))


def get_run(run_id: str, *, wait_ms: int = 0) -> Call[RunView]:
    """One run; with `wait_ms` as soon as it has ended, or as it is when that time is over."""
    call = get(path_at("runs", run_id), RunView, [("wait_ms", wait_ms or None)])
    return msgspec.structs.replace(call, timeout_s=ANSWER_TIMEOUT_S + wait_ms / 1000)


def list_runs(
    *,
    workflow: str | None = None,
    state: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[RunPage]:
    wanted = {"workflow": workflow, "state": state, "limit": limit, "cursor": cursor}
    return get("/api/runs", RunPage, wanted.items())


def get_graph(run_id: str) -> Call[RunGraph]:
    return get(path_at("runs", run_id, "graph"), RunGraph)


def list_run_tokens(
    run_id: str, *, limit: int | None = None, cursor: str | None = None
) -> Call[RunTokenPage]:
    path = path_at("runs", run_id, "tokens")
    return get(path, RunTokenPage, [("limit", limit), ("cursor", cursor)])


def list_journal(
    run_id: str, *, limit: int | None = None, after: str | None = None
) -> Call[JournalPage]:
    """The entries of a run's journal, oldest first, beyond the number `after`."""
    path = path_at("runs", run_id, "journal")
    return get(path, JournalPage, [("limit", limit), ("after", after)])


# --- steering --------------------------------------------------------------------------------


def cancel_run(run_id: str, *, reason: str = "") -> Call[RunView]:
    return _steer(run_id, "cancel", RunCancellation(reason=reason))


def pause_run(run_id: str) -> Call[RunView]:
    return _steer(run_id, "pause")


def resume_run(run_id: str) -> Call[RunView]:
    return _steer(run_id, "resume")


def retry_run(run_id: str) -> Call[RunView]:
    return _steer(run_id, "retry")


def signal_run(run_id: str, name: str, payload: Raw) -> Call[RunView]:
    return _steer(run_id, "signal", SignalRequest(name=name, payload=payload))


def fork_run(run_id: str, from_node: str, state: Raw | None = None) -> Call[RunView]:
    return _steer(run_id, "fork", ForkRequest(from_node=from_node, state=state))


def _steer(run_id: str, verb: str, body: Any = None) -> Call[RunView]:
    return post(path_at("runs", run_id, verb), RunView, body)


# --- artifacts -------------------------------------------------------------------------------


class _Content:
    """An answer that is taken as it is."""

    def decode(self, content: bytes, /) -> bytes:
        return content


def list_artifacts(
    run_id: str, *, limit: int | None = None, cursor: str | None = None
) -> Call[ArtifactPage]:
    path = path_at("runs", run_id, "artifacts")
    return get(path, ArtifactPage, [("limit", limit), ("cursor", cursor)])


def get_artifact(run_id: str, name: str) -> Call[bytes]:
    path = path_at("runs", run_id, "artifacts", name)
    return Call(method="GET", path=path, decoder=_Content(), is_repeatable=True, empty=b"")


def put_artifact(
    run_id: str, name: str, data: bytes, *, media_type: str, task_id: str, fence: int
) -> Call[ArtifactView]:
    """Stage an artifact with the task that made it; it is the run's when the task succeeds."""
    if not (media_type.isascii() and media_type.isprintable()):
        raise Invalid(f"not a media type: {media_type!r}")
    path = path_at("runs", run_id, "artifacts", name)
    return Call(
        method="PUT",
        path=f"{path}?task_id={task_id}&fence={fence}",
        decoder=decoder_of(ArtifactView),
        body=data,
        content_type=media_type,
        is_repeatable=True,
    )


# --- pages -----------------------------------------------------------------------------------


def every_item(
    run: Callable[[Call[Any]], Any], page: Callable[[str | None], Call[Any]]
) -> list[Any]:
    """All items of a list, page by page."""
    found: list[Any] = []
    cursor: str | None = None
    while True:
        answer = run(page(cursor))
        found += answer.items
        cursor = answer.next_cursor
        if cursor is None:
            return found
