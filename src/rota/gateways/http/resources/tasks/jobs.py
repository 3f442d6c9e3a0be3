"""Jobs over HTTP: tasks for workers that get the ids from elsewhere.

The rules are those of tasks. Every answer, also an error, has the field `success`.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw

from rota.core import access, ids
from rota.core.access import Action
from rota.core.commands import CompleteJob, FailJob, StartJob
from rota.core.tasks.model import NULL, TaskRecord
from rota.core.tasks.values import check_value
from rota.errors import (
    IllegalState,
    KeyBusy,
    ResultConflict,
    RotaError,
    StaleLease,
    TaskNotFound,
)
from rota.gateways.http.resources.tasks.tasks import known_id, own_task
from rota.gateways.http.routing.bodies import decode
from rota.gateways.http.routing.endpoint import HttpCall, NoQuery, Routes
from rota.gateways.http.routing.responses import HttpResponse, encoded, extra_headers
from rota.gateways.http.views.tasks import events_of, task_view
from rota.gateways.validation import task_error
from rota.messages import JobAnswer, JobFailure, JobRefusal, JobStart, JobView, Name, Request

DEFAULT_HOLDER = "jobs-api"

_anything = msgspec.json.Decoder()


class HolderQuery(Request, frozen=True, kw_only=True):
    worker_id: Annotated[
        Name | None, Meta(description="Who starts the job; in the body as well as here.")
    ] = None


def refuse(error: RotaError) -> HttpResponse:
    refusal = encoded(JobRefusal(error=error.detail, code=error.code), error.status)
    return refusal._replace(headers=extra_headers(error))


routes = Routes("Jobs", refuse=refuse, refusal=JobRefusal)


@routes.get("/api/jobs/{job_id}", Action.READ, errors=(TaskNotFound,))
async def show(call: HttpCall[None, NoQuery]) -> JobAnswer:
    """Show a job and what happened to it."""
    return _answer(await own_task(call, known_id(call.path["job_id"])))


@routes.post(
    "/api/jobs/{job_id}/start",
    Action.WORK,
    errors=(TaskNotFound, StaleLease, IllegalState, KeyBusy),
)
async def start(call: HttpCall[JobStart | None, HolderQuery]) -> JobAnswer:
    """Claim a job.

    The same caller again gets the same answer; another one, while it is leased, gets 409. After
    a failed attempt this is the retry.
    """
    named = (call.body.worker_id if call.body else None) or call.query.worker_id
    holder = named or call.caller.worker_id or DEFAULT_HOLDER
    access.check_worker(call.caller, holder)
    task_id = await _own_id(call)
    return await _executed(call, StartJob(task_id=task_id, holder=holder, by=call.caller))


@routes.post(
    "/api/jobs/{job_id}/complete",
    Action.WORK,
    keeps_work=True,
    errors=(TaskNotFound, StaleLease, IllegalState, ResultConflict),
)
async def complete(call: HttpCall[Raw | None, NoQuery]) -> JobAnswer:
    """Finish a job; the body is its result.

    The same result twice is fine, another one is a conflict.
    """
    result = NULL if call.body is None else call.body
    check_value(result, "result", most_bytes=call.settings.max_payload_bytes)
    # A second call compares its result with this one, so it must be valid JSON.
    decode(bytes(result), _anything)
    command = CompleteJob(task_id=await _own_id(call), result=result, by=call.caller)
    return await _executed(call, command)


@routes.post(
    "/api/jobs/{job_id}/fail",
    Action.WORK,
    keeps_work=True,
    errors=(TaskNotFound, StaleLease, IllegalState),
)
async def fail(call: HttpCall[JobFailure | None, NoQuery]) -> JobAnswer:
    """End a job's attempt with an error."""
    given = call.body.error if call.body else None
    error = task_error(given, most_bytes=call.settings.max_payload_bytes)
    command = FailJob(task_id=await _own_id(call), error=error, by=call.caller)
    return await _executed(call, command)


async def _own_id(call: HttpCall[Any, Any]) -> ids.TaskId:
    task_id = known_id(call.path["job_id"])
    if call.caller.queues is not None:
        await own_task(call, task_id)
    return task_id


async def _executed(
    call: HttpCall[Any, Any], command: StartJob | CompleteJob | FailJob
) -> JobAnswer:
    reply = await call.coordinator.execute(command)
    return _answer(reply.task)


def _answer(task: TaskRecord) -> JobAnswer:
    job = JobView(
        **msgspec.structs.asdict(task_view(task)), fence=task.fence, events=events_of(task)
    )
    return JobAnswer(success=True, job=job)
