"""Workers over HTTP, when they report: results, and how far they are."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw

from rota.core import ids, limits
from rota.core.access import Action
from rota.core.events import Progress, ReportProgress, ReportResults, Result, ShardClaim
from rota.core.replies import OutcomeName, Outcomes
from rota.core.tasks import NULL, TaskError, shortened
from rota.core.values import check_value
from rota.errors import RotaError, StaleIncarnation, StaleLease, TaskNotFound, WorkerNotFound
from rota.gateways.http.bodies import invalid_field, is_null
from rota.gateways.http.endpoint import Call, Endpoint, NoQuery
from rota.gateways.http.work import acting_worker
from rota.messages import (
    ProgressItem,
    ProgressReport,
    ResultAnswer,
    ResultItem,
    ResultOutcome,
    ResultReport,
)

ProgressItems = Annotated[list[ProgressItem], Meta(max_length=limits.MAX_RESULTS_PER_REPORT)]


async def results(call: Call[ResultReport, NoQuery]) -> ResultAnswer:
    worker_id = await acting_worker(call)
    most_bytes = call.settings.max_payload_bytes
    reported = [
        _result(item, index, most_bytes=most_bytes) for index, item in enumerate(call.body.results)
    ]
    known = [result for result in reported if result is not None]
    outcomes: list[OutcomeName] = []
    if known or not reported:
        event = ReportResults(worker_id=worker_id, incarnation=call.body.incarnation, results=known)
        outcomes = _outcomes(await call.coordinator.handle(event))
    return _answer([item.task_id for item in call.body.results], reported, outcomes)


def _result(item: ResultItem, index: int, *, most_bytes: int) -> Result | None:
    """What a worker says of one task; None when no task can have that id."""
    if item.result is not None:
        check_value(item.result, "result", most_bytes=most_bytes)
    if item.ok is None and item.snooze_ms is None:
        text = "say true with a result, false with an error, or give snooze_ms"
        raise invalid_field("ok", text, index=index)
    if item.ok and (item.error is not None or item.snooze_ms is not None):
        field = "snooze_ms" if item.error is None else "error"
        raise invalid_field(field, "not with a success", index=index)
    if not item.ok and not is_null(item.result):
        raise invalid_field("result", "only with a success", index=index)
    task_id = ids.from_text(item.task_id)
    if task_id is None:
        return None
    claim = None
    if item.shard is not None:
        claim = ShardClaim(item.shard.service, item.shard.shard, item.shard.epoch)
    if item.ok:
        result = NULL if item.result is None else item.result
        return Result(task_id, item.fence, True, result, claim=claim)  # noqa: FBT003 - hot; the field's name is `ok`
    error = None if item.snooze_ms is not None else task_error(item.error, most_bytes=most_bytes)
    return Result(
        task_id,
        item.fence,
        ok=False,
        error=error,
        retry_in_ms=item.retry_in_ms,
        snooze_ms=item.snooze_ms,
        claim=claim,
    )


def task_error(error: TaskError | str | None, *, most_bytes: int) -> TaskError:
    """An error as its worker said it, in full or as a mere text."""
    if not isinstance(error, TaskError):
        return shortened(TaskError(message=error or "failed"))
    if error.details is not None:
        details = Raw(msgspec.json.encode(error.details))
        check_value(details, "details", most_bytes=most_bytes)
    return shortened(error)


async def progress(call: Call[ProgressReport | list[ProgressItem], NoQuery]) -> ResultAnswer:
    worker_id = await acting_worker(call)
    report = call.body if isinstance(call.body, ProgressReport) else ProgressReport(items=call.body)
    most_bytes = call.settings.max_payload_bytes
    reported = [
        _progress(item, index, most_bytes=most_bytes) for index, item in enumerate(report.items)
    ]
    event = ReportProgress(
        worker_id=worker_id,
        incarnation=await _incarnation(call, report.incarnation),
        items=[one for one in reported if one is not None],
    )
    outcomes = _outcomes(await call.coordinator.handle(event)) if event.items else []
    answer = _answer([item.task_id for item in report.items], reported, outcomes)
    if len(report.items) == 1:
        _raise_for(answer.outcomes[0])
    return answer


async def _incarnation(call: Call[Any, Any], given: int | None) -> int:
    """The worker's incarnation; a worker that does not tell its own means the current one."""
    figures = await call.coordinator.queries.worker(call.parameter)
    if figures is None:
        raise WorkerNotFound(call.parameter)
    current = figures.worker.incarnation
    if given is not None and given != current:
        raise StaleIncarnation(call.parameter, given=given, current=current)
    return current


def _progress(item: ProgressItem, index: int, *, most_bytes: int) -> Progress | None:
    if is_null(item.progress) and is_null(item.partial):
        raise invalid_field("progress", "give this or partial", index=index)
    for field, value in (("progress", item.progress), ("partial", item.partial)):
        if value is not None:
            check_value(value, field, most_bytes=most_bytes)
    task_id = ids.from_text(item.task_id)
    if task_id is None:
        return None
    return Progress(task_id, item.fence, item.progress, item.partial)


def _outcomes(reply: object) -> list[OutcomeName]:
    assert isinstance(reply, Outcomes)
    return reply.outcomes


def _answer(task_ids: list[str], reported: list[Any], outcomes: list[OutcomeName]) -> ResultAnswer:
    """One outcome an item, in order; ids that no task can have never reached the coordinator."""
    told = iter(outcomes)
    return ResultAnswer(
        outcomes=[
            ResultOutcome(task_id=task_id, outcome="unknown" if one is None else next(told))
            for task_id, one in zip(task_ids, reported, strict=True)
        ]
    )


def _raise_for(item: ResultOutcome) -> None:
    """With one item only, what became of it is what became of the call."""
    error: RotaError
    if item.outcome == "stale":
        error = StaleLease(item.task_id)
    elif item.outcome == "unknown":
        error = TaskNotFound(item.task_id)
    else:
        return
    error.facts["outcomes"] = [msgspec.structs.asdict(item)]
    raise error


ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/api/workers/{worker_id}/results",
        summary="Report what became of leased tasks",
        description="Each has its outcome, in order. One that names a `shard` is refused with "
        "`stale_epoch` when nobody owns it under that epoch any more; the lease stays.",
        noun="Workers",
        action=Action.WORK,
        handler=results,
        body=ResultReport,
        is_body_needed=True,
        answer=ResultAnswer,
        errors=(WorkerNotFound, StaleIncarnation),
    ),
    Endpoint(
        method="POST",
        path="/api/workers/{worker_id}/progress",
        summary="Report how far leased tasks are",
        description="An array of items, or an object with `items` and `incarnation`. A single "
        "item that is stale or unknown is an error; of several, each has its outcome.",
        noun="Workers",
        action=Action.WORK,
        handler=progress,
        body=ProgressReport | ProgressItems,
        is_body_needed=True,
        answer=ResultAnswer,
        errors=(WorkerNotFound, TaskNotFound, StaleIncarnation, StaleLease),
    ),
)
