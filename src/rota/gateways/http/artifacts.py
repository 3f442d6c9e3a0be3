"""Artifacts over HTTP: attached by the worker that holds a task, listed, downloaded."""

import re
from collections.abc import Mapping
from typing import Annotated
from urllib.parse import quote

from msgspec import Meta

from rota.core import access, ids, limits
from rota.core.access import Action
from rota.core.ids import TaskId
from rota.core.tasks import TaskState
from rota.core.workflow.commands import StageArtifact
from rota.core.workflow.records import Artifact
from rota.engine.contents import pieces_of
from rota.engine.run_commands import ArtifactStaged
from rota.errors import (
    ArtifactNotFound,
    RunNotFound,
    StaleLease,
    TaskNotFound,
    TooLarge,
)
from rota.gateways.http.answers import Answered, Streamed
from rota.gateways.http.bodies import body_in_pieces, invalid_field
from rota.gateways.http.endpoint import Call, Endpoint, NoQuery, Reading
from rota.gateways.http.run_looks import known_id, known_run
from rota.gateways.http.run_views import artifact_view
from rota.messages import ArtifactPage, ArtifactView, Fence, IdText, Request

ANY_MEDIA_TYPE = "application/octet-stream"
MEDIA_TYPE = re.compile(rb"[\x20-\x7e]{1,200}")
MAX_CURSOR_DIGITS = 18


class AttachQuery(Request, frozen=True, kw_only=True):
    task_id: Annotated[IdText | None, Meta(description="The task that attaches it; needed.")] = None
    fence: Annotated[
        Fence | None, Meta(description="Of the lease that its worker holds; needed.")
    ] = None


class ArtifactsQuery(Request, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=limits.MAX_PAGE)] = limits.DEFAULT_PAGE
    cursor: Annotated[
        str | None, Meta(description="`next_cursor` of the page before this one.")
    ] = None


# --- attaching ---------------------------------------------------------------------------------


async def put(call: Call[None, AttachQuery]) -> ArtifactView:
    run_id, name = known_id(call.parameter), _name(call.second)
    media_type = _media_type(call.headers)
    task_id, fence = await _lease(call)
    contents = call.coordinator.contents
    content = await contents.take(
        body_in_pieces(
            call.receive,
            declared=call.headers.get(b"content-length"),
            most=contents.most_bytes,
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
    )
    try:
        reply = await call.coordinator.command(command)
    except Exception:
        # Refused, so no row names the file. Had the call been cut off, one might.
        await contents.discard(content)
        raise
    assert isinstance(reply, ArtifactStaged)
    return artifact_view(reply.artifact)


async def _lease(call: Call[None, AttachQuery]) -> tuple[TaskId, int]:
    """The task and its fence, if the lease is the caller's; seen to before the body is taken."""
    asked = call.query
    if asked.task_id is None:
        raise invalid_field("task_id", "the task that attaches the artifact is needed")
    if asked.fence is None:
        raise invalid_field("fence", "that of the task's lease is needed")
    task_id = ids.from_text(asked.task_id)
    task = None if task_id is None else await call.coordinator.queries.task(task_id)
    if task is None:
        raise TaskNotFound(asked.task_id)
    access.check_queue(call.caller, task.lane.queue)
    if task.state is not TaskState.RUNNING or task.fence != asked.fence:
        raise StaleLease(asked.task_id)
    if task.worker_id is not None:
        access.check_worker(call.caller, task.worker_id)
    return task.id, asked.fence


def _name(name: str) -> str:
    most = limits.MAX_NAME_LENGTH
    if len(name) > most or not name.isprintable():
        raise invalid_field("name", f"an artifact's has 1 to {most} printable characters")
    return name


def _media_type(headers: Mapping[bytes, bytes]) -> str:
    given = headers.get(b"content-type", ANY_MEDIA_TYPE.encode())
    if not MEDIA_TYPE.fullmatch(given):
        raise invalid_field("content-type", "not a media type")
    return given.decode("ascii")


# --- looking -----------------------------------------------------------------------------------


async def listing(call: Call[None, ArtifactsQuery]) -> ArtifactPage:
    query, record = call.query, await known_run(call)
    before = None if query.cursor is None else _before(query.cursor)
    # One more than asked for tells whether there is a next page.
    found = await call.coordinator.queries.artifacts(
        record.id, limit=query.limit + 1, before=before
    )
    page = found[: query.limit]
    return ArtifactPage(
        items=[artifact_view(artifact) for artifact in page],
        next_cursor=str(page[-1].id) if len(found) > len(page) else None,
    )


def _before(cursor: str) -> int:
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= MAX_CURSOR_DIGITS):
        raise invalid_field("cursor", "not one of ours; take `next_cursor` as it came")
    return int(cursor)


async def download(call: Call[None, NoQuery]) -> Answered | Streamed:
    record = await known_run(call)
    found = await call.coordinator.queries.artifact(record.id, call.second)
    if found is None:
        raise ArtifactNotFound(call.second)
    artifact, content = found
    headers = _headers(artifact)
    if artifact.file is None:
        return Answered(content or b"", 200, artifact.media_type, headers)
    file = await call.coordinator.contents.open(artifact.file, name=artifact.name)
    return Streamed(pieces_of(file), artifact.size, 200, artifact.media_type, headers)


def _headers(artifact: Artifact) -> tuple[tuple[str, str], ...]:
    """A browser must save it, never show it: what workers attach would run as a page of ours."""
    return (
        ("content-disposition", f"attachment; filename*=UTF-8''{quote(artifact.name, safe='')}"),
        ("x-content-type-options", "nosniff"),
        ("content-security-policy", "sandbox"),
    )


ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        method="PUT",
        path="/api/runs/{run_id}/artifacts/{artifact}",
        summary="Attach a blob to the run that a leased task works for",
        description="The body as it is, its content type kept. The artifact is the run's when "
        "this attempt of the task has succeeded; an attempt that does not leaves nothing.",
        noun="Artifacts",
        action=Action.WORK,
        handler=put,
        query=AttachQuery,
        reads=Reading.STREAM,
        answer=ArtifactView,
        status=201,
        errors=(RunNotFound, TaskNotFound, StaleLease, TooLarge),
    ),
    Endpoint(
        method="GET",
        path="/api/runs/{run_id}/artifacts",
        summary="List the artifacts of a run, newest first",
        noun="Artifacts",
        action=Action.READ,
        handler=listing,
        query=ArtifactsQuery,
        answer=ArtifactPage,
        errors=(RunNotFound,),
    ),
    Endpoint(
        method="GET",
        path="/api/runs/{run_id}/artifacts/{artifact}",
        summary="Download the newest artifact of a name",
        noun="Artifacts",
        action=Action.READ,
        handler=download,
        answer=bytes,
        media_type="*/*",
        errors=(RunNotFound, ArtifactNotFound),
    ),
)
