"""Artifacts over HTTP: attached by the worker that holds a task, listed, downloaded."""

import re
from collections.abc import Mapping
from typing import Annotated
from urllib.parse import quote

from msgspec import Meta

from rota.core import limits
from rota.core.access import Action
from rota.core.ids import TaskId
from rota.core.workflow.commands import CheckArtifact, StageArtifact
from rota.core.workflow.records import Artifact
from rota.engine.runs.artifact_io import pieces_of
from rota.errors import (
    ArtifactNotFound,
    RunNotFound,
    StaleLease,
    TaskNotFound,
    TooLarge,
    TooMany,
)
from rota.gateways.http.resources.workflows.run_inspection import known_id, known_run, leased_task
from rota.gateways.http.routing.bodies import body_in_pieces
from rota.gateways.http.routing.endpoint import BodyReading, HttpCall, NoQuery, Routes
from rota.gateways.http.routing.parameters import PageQuery, number_of, page_of
from rota.gateways.http.routing.responses import HttpResponse, StreamedResponse
from rota.gateways.http.views.runs import artifact_view
from rota.gateways.validation import invalid_field
from rota.messages import ArtifactPage, ArtifactView, Fence, IdText, Request

ANY_MEDIA_TYPE = "application/octet-stream"
MEDIA_TYPE = re.compile(rb"[\x20-\x7e]{1,200}")

routes = Routes("Artifacts")


class AttachQuery(Request, frozen=True, kw_only=True):
    task_id: Annotated[IdText | None, Meta(description="The task that attaches it; needed.")] = None
    fence: Annotated[
        Fence | None, Meta(description="Of the lease that its worker holds; needed.")
    ] = None


# --- attaching ---------------------------------------------------------------------------------


@routes.put(
    "/api/runs/{run_id}/artifacts/{artifact}",
    Action.WORK,
    reads=BodyReading.STREAM,
    status=201,
    errors=(RunNotFound, TaskNotFound, StaleLease, TooLarge, TooMany),
)
async def put(call: HttpCall[None, AttachQuery]) -> ArtifactView:
    """Attach an artifact to the run of a leased task.

    The body is stored as it is, with its content type. The artifact belongs to the run when
    this attempt of the task has succeeded; an attempt that does not succeed leaves nothing.
    """
    run_id, name = known_id(call.path["run_id"]), _name(call.path["artifact"])
    media_type = _media_type(call.headers)
    task_id, fence = await _lease(call)
    artifact_io = call.coordinator.artifact_io
    size = _announced_size(call.headers)
    if limits.UNCOUNTED_BODY_BYTES < size <= artifact_io.most_bytes:
        await call.coordinator.execute(
            CheckArtifact(run_id=run_id, task_id=task_id, fence=fence, size=size, by=call.caller)
        )
    content = await artifact_io.take(
        body_in_pieces(
            call.receive,
            declared=call.headers.get(b"content-length"),
            most=artifact_io.most_bytes,
            setting="max_artifact_bytes",
        )
    )
    command = StageArtifact(
        run_id=run_id,
        task_id=task_id,
        fence=fence,
        name=name,
        media_type=media_type,
        size=content.size,
        content=content.inline,
        file=content.file,
        by=call.caller,
    )
    try:
        reply = await call.coordinator.execute(command)
    except Exception:
        # Refused, so no row names the file. Had the call been cut off, one might.
        await artifact_io.discard(content)
        raise
    return artifact_view(reply.artifact)


async def _lease(call: HttpCall[None, AttachQuery]) -> tuple[TaskId, int]:
    """The task and its fence, if the lease is the caller's; checked before the body is read."""
    asked = call.query
    if asked.task_id is None:
        raise invalid_field("task_id", "required: the task that attaches the artifact")
    if asked.fence is None:
        raise invalid_field("fence", "required: the fence of the task's lease")
    return await leased_task(call, asked.task_id, asked.fence), asked.fence


def _name(name: str) -> str:
    most = limits.MAX_NAME_LENGTH
    if len(name) > most or not name.isprintable():
        raise invalid_field("name", f"must have 1 to {most} printable characters")
    return name


def _announced_size(headers: Mapping[bytes, bytes]) -> int:
    """The declared size; without one, a size that is large enough for a check."""
    declared = headers.get(b"content-length", b"")
    return int(declared) if declared.isdigit() else limits.UNCOUNTED_BODY_BYTES + 1


def _media_type(headers: Mapping[bytes, bytes]) -> str:
    given = headers.get(b"content-type", ANY_MEDIA_TYPE.encode())
    if not MEDIA_TYPE.fullmatch(given):
        raise invalid_field("content-type", "not a media type")
    return given.decode("ascii")


# --- reading -----------------------------------------------------------------------------------


@routes.get("/api/runs/{run_id}/artifacts", Action.READ, errors=(RunNotFound,))
async def listing(call: HttpCall[None, PageQuery]) -> ArtifactPage:
    """List the artifacts of a run, newest first."""
    query, record = call.query, await known_run(call)
    before = None if query.cursor is None else number_of(query.cursor)
    found = await call.coordinator.queries.runs.artifacts(
        record.id, limit=query.limit + 1, before=before
    )
    page, next_cursor = page_of(found, query.limit, lambda artifact: str(artifact.id))
    return ArtifactPage(items=[artifact_view(one) for one in page], next_cursor=next_cursor)


@routes.get(
    "/api/runs/{run_id}/artifacts/{artifact}",
    Action.READ,
    answer=bytes,
    media_type="*/*",
    errors=(RunNotFound, ArtifactNotFound),
)
async def download(call: HttpCall[None, NoQuery]) -> HttpResponse | StreamedResponse:
    """Download the newest artifact of a name."""
    record = await known_run(call)
    found = await call.coordinator.queries.runs.artifact(record.id, call.path["artifact"])
    if found is None:
        raise ArtifactNotFound(call.path["artifact"])
    artifact, content = found
    headers = _headers(artifact)
    if artifact.file is None:
        return HttpResponse(content or b"", 200, artifact.media_type, headers)
    file = await call.coordinator.artifact_io.open(artifact.file, name=artifact.name)
    return StreamedResponse(pieces_of(file), artifact.size, 200, artifact.media_type, headers)


def _headers(artifact: Artifact) -> tuple[tuple[str, str], ...]:
    """Make a browser save the artifact: shown as a page, it would run with our origin."""
    return (
        ("content-disposition", f"attachment; filename*=UTF-8''{quote(artifact.name, safe='')}"),
        ("x-content-type-options", "nosniff"),
        ("content-security-policy", "sandbox"),
    )
