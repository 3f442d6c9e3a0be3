"""API calls about workflows and runs."""

from collections.abc import Sequence
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from rota.core.workflow.commands import Publishing
from rota.core.workflow.definition.model import Definition, canonical
from rota.errors import Invalid
from rota.messages import (
    ArtifactPage,
    ArtifactView,
    BranchesRequest,
    BranchesView,
    ForkRequest,
    JournalPage,
    RunActivityPage,
    RunCancellation,
    RunGraph,
    RunPage,
    RunRequest,
    RunTokenPage,
    RunView,
    ScopeEnding,
    ScopePage,
    SiblingsRequest,
    SignalRequest,
    WaitPage,
    WorkflowDetail,
    WorkflowPage,
    WorkflowView,
)
from rota.sdk.client.requests import ApiCall, get, new_key, path_at, post, put

# --- workflows -------------------------------------------------------------------------------


def put_workflow(
    definition: Definition, *, publish: Publishing = "always"
) -> ApiCall[WorkflowView]:
    """Store a definition, and make it the current version as `publish` says."""
    query = {} if publish == "always" else {"publish": publish}
    path = path_at("workflows", definition.name, **query)
    return put(path, WorkflowView, canonical(definition))


def list_workflows(*, limit: int | None = None, cursor: str | None = None) -> ApiCall[WorkflowPage]:
    return get("/api/workflows", WorkflowPage, [("limit", limit), ("cursor", cursor)])


def get_workflow(name: str, version: int | None = None) -> ApiCall[WorkflowDetail]:
    """A workflow with its definition; without `version` the current one, with all versions."""
    parts = () if version is None else ("versions", str(version))
    return get(path_at("workflows", name, *parts), WorkflowDetail)


# --- runs ------------------------------------------------------------------------------------


def start_run(request: RunRequest, *, wait_ms: int = 0) -> ApiCall[RunView]:
    """Start a run; with `wait_ms` answered as soon as it has ended, or unended after that time."""
    path = f"/api/runs?wait_ms={wait_ms}" if wait_ms else "/api/runs"
    is_repeatable = request.key is not None
    call: ApiCall[RunView] = post(
        path, RunView, request, is_repeatable=is_repeatable, wait_ms=wait_ms
    )
    if request.key is not None:
        return call

    def with_key() -> ApiCall[RunView]:
        return start_run(replace(request, key=new_key()), wait_ms=wait_ms)

    return replace(call, made_repeatable=with_key)


def get_run(run_id: str, *, wait_ms: int = 0) -> ApiCall[RunView]:
    """One run; with `wait_ms` as soon as it has ended, or unended after that time."""
    return get(path_at("runs", run_id), RunView, wait_ms=wait_ms)


def list_runs(
    *,
    workflow: str | None = None,
    state: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> ApiCall[RunPage]:
    wanted = {"workflow": workflow, "state": state, "limit": limit, "cursor": cursor}
    return get("/api/runs", RunPage, wanted.items())


def list_waits(
    *, kind: str | None = None, limit: int | None = None, cursor: str | None = None
) -> ApiCall[WaitPage]:
    """The approvals and signals that open runs wait for, approvals and the oldest first."""
    wanted = {"kind": kind, "limit": limit, "cursor": cursor}
    return get("/api/waits", WaitPage, wanted.items())


def get_activity(run_ids: Sequence[str]) -> ApiCall[RunActivityPage]:
    """What runs wait for, of at most 100 of them."""
    return get("/api/runs/activity", RunActivityPage, [("run", one) for one in run_ids])


def get_graph(run_id: str) -> ApiCall[RunGraph]:
    return get(path_at("runs", run_id, "graph"), RunGraph)


def list_run_tokens(
    run_id: str,
    *,
    node: str | None = None,
    state: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> ApiCall[RunTokenPage]:
    wanted = {"node": node, "state": state, "limit": limit, "cursor": cursor}
    return get(path_at("runs", run_id, "tokens"), RunTokenPage, wanted.items())


def list_scopes(
    run_id: str, *, closed: bool = False, limit: int | None = None, cursor: str | None = None
) -> ApiCall[ScopePage]:
    """The open scopes of a run, or all of them, oldest first."""
    wanted = {"closed": "true" if closed else None, "limit": limit, "cursor": cursor}
    return get(path_at("runs", run_id, "scopes"), ScopePage, wanted.items())


def list_asking_tokens(run_id: str, node: str) -> ApiCall[RunTokenPage]:
    """The token that has waited longest at an approval, as a page of at most one."""
    return list_run_tokens(run_id, node=node, state="waiting_for_event", limit=1)


def list_journal(
    run_id: str, *, limit: int | None = None, after: str | None = None
) -> ApiCall[JournalPage]:
    """The entries of a run's journal after the number `after`, oldest first."""
    path = path_at("runs", run_id, "journal")
    return get(path, JournalPage, [("limit", limit), ("after", after)])


# --- control ---------------------------------------------------------------------------------


def cancel_run(run_id: str, *, reason: str = "", force: bool = False) -> ApiCall[RunView]:
    return _control(run_id, "cancel", RunCancellation(reason=reason, force=force))


def pause_run(run_id: str) -> ApiCall[RunView]:
    return _control(run_id, "pause")


def resume_run(run_id: str) -> ApiCall[RunView]:
    return _control(run_id, "resume")


def retry_run(run_id: str) -> ApiCall[RunView]:
    return _control(run_id, "retry")


def complete_scope(run_id: str, scope: int, *, reason: str = "") -> ApiCall[RunView]:
    return _steer_scope(run_id, scope, "complete", reason)


def cancel_scope(run_id: str, scope: int, *, reason: str = "") -> ApiCall[RunView]:
    return _steer_scope(run_id, scope, "cancel", reason)


def _steer_scope(run_id: str, scope: int, verb: str, reason: str) -> ApiCall[RunView]:
    path = path_at("runs", run_id, "scopes", str(scope), verb)
    return post(path, RunView, ScopeEnding(reason=reason))


def add_branches(
    run_id: str, scope: int, items: list[Any], *, key: str | None = None, last: bool = False
) -> ApiCall[BranchesView]:
    """Add branches to an open scope; without a key, one is made so that a repetition is safe."""
    request = BranchesRequest(items=items, key=key or new_key(), last=last)
    path = path_at("runs", run_id, "scopes", str(scope), "branches")
    return post(path, BranchesView, request, is_repeatable=True)


def add_siblings(task_id: str, request: SiblingsRequest) -> ApiCall[BranchesView]:
    """Add branches to an open scope around a leased task."""
    path = path_at("tasks", task_id, "branches")
    return post(path, BranchesView, request, is_repeatable=request.key is not None)


def signal_run(
    run_id: str, name: str, payload: Raw, *, key: str | None = None, token_id: str | None = None
) -> ApiCall[RunView]:
    request = SignalRequest(name=name, payload=payload, key=key, token_id=token_id)
    path = path_at("runs", run_id, "signal")
    call: ApiCall[RunView] = post(path, RunView, request, is_repeatable=key is not None)
    if key is not None:
        return call
    return replace(
        call,
        made_repeatable=lambda: signal_run(run_id, name, payload, key=new_key(), token_id=token_id),
    )


def fork_run(run_id: str, from_node: str, state: Raw | None = None) -> ApiCall[RunView]:
    return _control(run_id, "fork", ForkRequest(from_node=from_node, state=state))


def _control(run_id: str, verb: str, body: Any = None) -> ApiCall[RunView]:
    return post(path_at("runs", run_id, verb), RunView, body)


# --- artifacts -------------------------------------------------------------------------------


class _Content:
    """Returns the body of an answer unchanged."""

    def decode(self, content: bytes, /) -> bytes:
        return content


def list_artifacts(
    run_id: str, *, limit: int | None = None, cursor: str | None = None
) -> ApiCall[ArtifactPage]:
    path = path_at("runs", run_id, "artifacts")
    return get(path, ArtifactPage, [("limit", limit), ("cursor", cursor)])


def get_artifact(run_id: str, name: str) -> ApiCall[bytes]:
    path = path_at("runs", run_id, "artifacts", name)
    return ApiCall(method="GET", path=path, decoder=_Content(), is_repeatable=True, empty=b"")


def put_artifact(
    run_id: str, name: str, data: bytes, *, media_type: str, task_id: str, fence: int
) -> ApiCall[ArtifactView]:
    """Stage an artifact with the task that made it; the run gets it when the task succeeds."""
    if not (media_type.isascii() and media_type.isprintable()):
        raise Invalid(f"not a media type: {media_type!r}")
    path = path_at("runs", run_id, "artifacts", name)
    call = put(f"{path}?task_id={task_id}&fence={fence}", ArtifactView, data)
    return replace(call, content_type=media_type)
