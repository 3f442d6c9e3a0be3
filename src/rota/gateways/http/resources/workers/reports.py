"""Reports of workers over HTTP: results, progress, and what handlers have logged."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from rota.core import ids, limits
from rota.core.access import Action
from rota.core.commands import (
    AttemptLines,
    EpochClaim,
    Progress,
    ReportLogs,
    ReportProgress,
    ReportResults,
    Result,
)
from rota.core.replies import OutcomeName
from rota.core.tasks.logs import LogLine
from rota.core.tasks.model import NULL
from rota.core.tasks.values import check_value
from rota.core.workflow.commands import ReportedOperations, ReportOperations
from rota.errors import RotaError, StaleIncarnation, StaleLease, TaskNotFound, WorkerNotFound
from rota.gateways.http.resources.workers.work import acting_worker
from rota.gateways.http.routing.endpoint import HttpCall, NoQuery, Routes
from rota.gateways.validation import (
    check_lines,
    check_result,
    invalid_field,
    is_null,
    operations_of,
    task_error,
)
from rota.messages import (
    AttemptLogItem,
    LogReport,
    OperationsAnswer,
    OperationsItem,
    OperationsOutcome,
    OperationsReport,
    ProgressItem,
    ProgressReport,
    ResultAnswer,
    ResultItem,
    ResultOutcome,
    ResultReport,
)

ProgressItems = Annotated[list[ProgressItem], Meta(max_length=limits.MAX_RESULTS_PER_REPORT)]
LogItems = Annotated[list[AttemptLogItem], Meta(max_length=limits.MAX_RESULTS_PER_REPORT)]

routes = Routes("Workers")


@routes.post(
    "/api/workers/{worker_id}/results",
    Action.WORK,
    keeps_work=True,
    errors=(WorkerNotFound, StaleIncarnation),
)
async def results(call: HttpCall[ResultReport, NoQuery]) -> ResultAnswer:
    """Report the results of leased tasks.

    Each has its outcome, in order. One that names a `shard` is refused with `stale_epoch` when
    it is not owned under that epoch any more; the lease stays.
    """
    worker_id = acting_worker(call)
    most_bytes = call.settings.max_payload_bytes
    reported = [
        _result(item, index, most_bytes=most_bytes) for index, item in enumerate(call.body.results)
    ]
    known = [result for result in reported if result is not None]
    outcomes: list[OutcomeName] = []
    if known or not reported:
        command = ReportResults(
            worker_id=worker_id,
            incarnation=call.body.incarnation,
            results=known,
            by=call.caller,
        )
        outcomes = (await call.coordinator.execute(command)).outcomes
    return _answer([item.task_id for item in call.body.results], reported, outcomes)


def _result(item: ResultItem, index: int, *, most_bytes: int) -> Result | None:
    """The result of one task; None when no task can have that id."""
    if item.result is not None:
        check_value(item.result, "result", most_bytes=most_bytes)
    if item.ok is None and item.snooze_ms is None:
        text = "say true with a result, false with an error, or give snooze_ms"
        raise invalid_field("ok", text, index=index)
    check_result(
        ok=item.ok,
        has_result=not is_null(item.result),
        error=item.error,
        snooze_ms=item.snooze_ms,
        rate_limited=item.rate_limited,
        index=index,
    )
    task_id = ids.from_text(item.task_id)
    if task_id is None:
        return None
    claim = None
    if item.shard is not None:
        claim = EpochClaim(item.shard.service, item.shard.shard, item.shard.epoch)
    if item.ok:
        result = NULL if item.result is None else item.result
        return Result(
            task_id,
            item.fence,
            True,  # noqa: FBT003 - hot; the field's name is `ok`
            result,
            claim=claim,
            traceparent=item.traceparent,
        )
    error = None if item.snooze_ms is not None else task_error(item.error, most_bytes=most_bytes)
    return Result(
        task_id,
        item.fence,
        ok=False,
        error=error,
        retry_in_ms=item.retry_in_ms,
        snooze_ms=item.snooze_ms,
        claim=claim,
        rate_limited=item.rate_limited,
    )


@routes.post(
    "/api/workers/{worker_id}/progress",
    Action.WORK,
    keeps_work=True,
    errors=(WorkerNotFound, TaskNotFound, StaleIncarnation, StaleLease),
)
async def progress(call: HttpCall[ProgressReport | ProgressItems, NoQuery]) -> ResultAnswer:
    """Report the progress of leased tasks.

    An array of items, or an object with `items` and `incarnation`. A single item that is stale
    or unknown is an error; of several, each has its outcome.
    """
    worker_id = acting_worker(call)
    report = call.body if isinstance(call.body, ProgressReport) else ProgressReport(items=call.body)
    most_bytes = call.settings.max_payload_bytes
    reported = [
        _progress(item, index, most_bytes=most_bytes) for index, item in enumerate(report.items)
    ]
    command = ReportProgress(
        worker_id=worker_id,
        incarnation=report.incarnation,
        items=[one for one in reported if one is not None],
        by=call.caller,
    )
    outcomes = (await call.coordinator.execute(command)).outcomes
    answer = _answer([item.task_id for item in report.items], reported, outcomes)
    if len(report.items) == 1:
        _raise_for(answer.outcomes[0])
    return answer


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


@routes.post(
    "/api/workers/{worker_id}/logs",
    Action.WORK,
    errors=(WorkerNotFound, StaleIncarnation),
)
async def logs(call: HttpCall[LogReport | LogItems, NoQuery]) -> ResultAnswer:
    """Report what the handlers of leased tasks have logged.

    An array of items, or an object with `items` and `incarnation`. Each item has its outcome, in
    order. Lines of an attempt that has just ended are accepted for a few seconds. Lines over a
    limit are dropped and counted, not refused.
    """
    worker_id = acting_worker(call)
    report = call.body if isinstance(call.body, LogReport) else LogReport(items=call.body)
    most_bytes = call.settings.max_payload_bytes
    reported = [_log(item, index, most_bytes=most_bytes) for index, item in enumerate(report.items)]
    command = ReportLogs(
        worker_id=worker_id,
        incarnation=report.incarnation,
        items=[one for one in reported if one is not None],
        by=call.caller,
    )
    outcomes = (await call.coordinator.execute(command)).outcomes
    return _answer([item.task_id for item in report.items], reported, outcomes)


def _log(item: AttemptLogItem, index: int, *, most_bytes: int) -> AttemptLines | None:
    """What the handler of one task has logged; None when no task can have that id."""
    lines: list[LogLine] = []
    for one in item.lines:
        fields = None if is_null(one.fields) else one.fields
        if fields is not None:
            check_value(fields, "fields", most_bytes=most_bytes)
        given = None if fields is None else bytes(fields)
        lines.append(LogLine(one.at_ms, one.level, one.logger, one.message, given))
    check_lines(lines, index)
    task_id = ids.from_text(item.task_id)
    if task_id is None:
        return None
    return AttemptLines(task_id, item.fence, lines, item.first, item.dropped)


@routes.post(
    "/api/workers/{worker_id}/operations",
    Action.WORK,
    keeps_work=True,
    errors=(WorkerNotFound, StaleIncarnation),
)
async def operations(call: HttpCall[OperationsReport, NoQuery]) -> OperationsAnswer:
    """Report what functions have done so far.

    An item that was accepted is committed. A report that is repeated is `duplicate`. An outcome
    with `cancelled` tells the function to stop, and to undo what it has done.
    """
    worker_id = acting_worker(call)
    most_bytes = call.settings.max_payload_bytes
    reported = [
        _operations(item, index, most_bytes=most_bytes)
        for index, item in enumerate(call.body.items)
    ]
    command = ReportOperations(
        worker_id=worker_id,
        incarnation=call.body.incarnation,
        items=[one for one in reported if one is not None],
        by=call.caller,
    )
    noted = await call.coordinator.execute(command)
    known = iter(enumerate(noted.outcomes))
    outcomes = []
    for item, one in zip(call.body.items, reported, strict=True):
        outcome: OutcomeName = "unknown"
        cancelled = None
        if one is not None:
            place, outcome = next(known)
            cancelled = noted.cancelled.get(place)
        outcomes.append(
            OperationsOutcome(task_id=item.task_id, outcome=outcome, cancelled=cancelled)
        )
    return OperationsAnswer(outcomes=outcomes)


def _operations(item: OperationsItem, index: int, *, most_bytes: int) -> ReportedOperations | None:
    """What a function reports; None when no task can have that id."""
    operations = operations_of(bytes(item.operations), index, most_bytes=most_bytes)
    task_id = ids.from_text(item.task_id)
    if task_id is None:
        return None
    return ReportedOperations(task_id, item.fence, item.after, operations)


def _answer(task_ids: list[str], reported: list[Any], outcomes: list[OutcomeName]) -> ResultAnswer:
    """One outcome an item, in order; ids that no task can have never reached the coordinator."""
    known = iter(outcomes)
    return ResultAnswer(
        outcomes=[
            ResultOutcome(task_id=task_id, outcome="unknown" if one is None else next(known))
            for task_id, one in zip(task_ids, reported, strict=True)
        ]
    )


def _raise_for(item: ResultOutcome) -> None:
    """Raise the outcome of the only item as an error of the call."""
    error: RotaError
    if item.outcome == "stale":
        error = StaleLease(item.task_id)
    elif item.outcome == "unknown":
        error = TaskNotFound(item.task_id)
    else:
        return
    error.facts["outcomes"] = [msgspec.structs.asdict(item)]
    raise error
