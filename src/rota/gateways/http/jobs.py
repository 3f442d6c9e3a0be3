"""Jobs over HTTP: tasks under their other name, for workers that get ids elsewhere.

Same rules, another spelling: every answer says `success`, also those that refuse.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw

from rota.core import access, ids
from rota.core.access import Action
from rota.core.events import CompleteJob, FailJob, StartJob
from rota.core.replies import JobChanged
from rota.core.tasks import NULL, Task
from rota.core.values import check_value
from rota.errors import (
    IllegalState,
    ResultConflict,
    RotaError,
    StaleLease,
    TaskNotFound,
)
from rota.gateways.http.answers import Answered, encoded
from rota.gateways.http.bodies import decode
from rota.gateways.http.endpoint import Call, Endpoint, NoQuery
from rota.gateways.http.histories import events_of
from rota.gateways.http.problems import extra_headers
from rota.gateways.http.reports import task_error
from rota.gateways.http.tasks import known_id, own_task
from rota.gateways.http.views import task_view
from rota.messages import JobAnswer, JobFailure, JobRefusal, JobStart, JobView, Name, Request

DEFAULT_HOLDER = "jobs-api"

_anything = msgspec.json.Decoder()


class HolderQuery(Request, frozen=True, kw_only=True):
    worker_id: Annotated[
        Name | None, Meta(description="Who starts the job; in the body as well as here.")
    ] = None


def refuse(error: RotaError) -> Answered:
    refusal = encoded(JobRefusal(error=error.detail, code=error.code), error.status)
    return refusal._replace(headers=extra_headers(error))


async def show(call: Call[None, NoQuery]) -> JobAnswer:
    return _answer(await own_task(call, known_id(call.parameter)))


async def start(call: Call[JobStart | None, HolderQuery]) -> JobAnswer:
    named = (call.body.worker_id if call.body else None) or call.query.worker_id
    holder = named or call.caller.worker_id or DEFAULT_HOLDER
    access.check_worker(call.caller, holder)
    task_id = await _own_id(call)
    return await _handled(call, StartJob(task_id=task_id, holder=holder))


async def complete(call: Call[Raw | None, NoQuery]) -> JobAnswer:
    result = NULL if call.body is None else call.body
    check_value(result, "result", most_bytes=call.settings.max_payload_bytes)
    # It will be compared with what comes in a second call, so it must be a value we can read.
    decode(bytes(result), _anything)
    return await _handled(call, CompleteJob(task_id=await _own_id(call), result=result))


async def fail(call: Call[JobFailure | None, NoQuery]) -> JobAnswer:
    said = call.body.error if call.body else None
    error = task_error(said, most_bytes=call.settings.max_payload_bytes)
    return await _handled(call, FailJob(task_id=await _own_id(call), error=error))


async def _own_id(call: Call[Any, Any]) -> ids.TaskId:
    task_id = known_id(call.parameter)
    if call.caller.queues is not None:
        await own_task(call, task_id)
    return task_id


async def _handled(call: Call[Any, Any], event: StartJob | CompleteJob | FailJob) -> JobAnswer:
    reply = await call.coordinator.handle(event)
    assert isinstance(reply, JobChanged)
    return _answer(reply.task)


def _answer(task: Task) -> JobAnswer:
    job = JobView(
        **msgspec.structs.asdict(task_view(task)), fence=task.fence, events=events_of(task)
    )
    return JobAnswer(success=True, job=job)


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/api/jobs/{job_id}",
        summary="Show a job and what happened to it",
        noun="Jobs",
        action=Action.READ,
        handler=show,
        answer=JobAnswer,
        errors=(TaskNotFound,),
        refuse=refuse,
        refusal=JobRefusal,
    ),
    Endpoint(
        method="POST",
        path="/api/jobs/{job_id}/start",
        summary="Claim a job",
        description="The same caller again gets the same answer; another one, while it is leased, "
        "gets 409. After a failed attempt this is the retry.",
        noun="Jobs",
        action=Action.WORK,
        handler=start,
        body=JobStart,
        query=HolderQuery,
        answer=JobAnswer,
        errors=(TaskNotFound, StaleLease, IllegalState),
        refuse=refuse,
        refusal=JobRefusal,
    ),
    Endpoint(
        method="POST",
        path="/api/jobs/{job_id}/complete",
        summary="Finish a job; the body is its result",
        description="The same result twice is fine, another one is a conflict.",
        noun="Jobs",
        action=Action.WORK,
        handler=complete,
        body=Raw,
        answer=JobAnswer,
        errors=(TaskNotFound, StaleLease, IllegalState, ResultConflict),
        refuse=refuse,
        refusal=JobRefusal,
    ),
    Endpoint(
        method="POST",
        path="/api/jobs/{job_id}/fail",
        summary="End a job's attempt with an error",
        noun="Jobs",
        action=Action.WORK,
        handler=fail,
        body=JobFailure,
        answer=JobAnswer,
        errors=(TaskNotFound, StaleLease, IllegalState),
        refuse=refuse,
        refusal=JobRefusal,
    ),
)
