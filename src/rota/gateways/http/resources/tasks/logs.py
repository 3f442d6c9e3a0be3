"""The logs of tasks over HTTP: read a page, or wait for the next lines."""

from typing import Annotated

from msgspec import Meta, Raw

from rota.core import limits
from rota.core.access import Action
from rota.core.ids import TaskId
from rota.core.tasks.logs import LogLevel
from rota.core.tasks.model import FINISHED, TaskState
from rota.engine.queries.tasks import TaskLog
from rota.engine.topics import NewLines
from rota.errors import TaskNotFound
from rota.gateways.http.resources.tasks.tasks import known_id, own_task
from rota.gateways.http.routing.endpoint import HttpCall, Routes
from rota.messages import AttemptLogView, LogLineView, LogPage, Request, WaitMs

routes = Routes("Tasks")


class LogQuery(Request, frozen=True, kw_only=True):
    attempt: Annotated[
        Annotated[int, Meta(ge=0, le=limits.MAX_ATTEMPTS)] | None,
        Meta(description="Only lines of attempts with this number."),
    ] = None
    level: Annotated[LogLevel, Meta(description="Only lines of this level and above.")] = "debug"
    after: Annotated[
        Annotated[int, Meta(ge=0, le=2**53)],
        Meta(description="Only lines after this number: `next_after` of the page before."),
    ] = 0
    limit: Annotated[int, Meta(ge=1, le=limits.MAX_PAGE)] = limits.DEFAULT_PAGE
    wait_ms: Annotated[
        WaitMs,
        Meta(description="Without such lines, wait for some or for the end of the task, so long."),
    ] = 0


@routes.get("/api/tasks/{task_id}/logs", Action.READ, errors=(TaskNotFound,))
async def logs(call: HttpCall[None, LogQuery]) -> LogPage:
    """Read what the handler of a task has logged, the oldest line first.

    The lines of all attempts, or of one. To follow a task, go on with `next_after` and a `wait_ms`
    until `state` is that of an ended task and `has_more` is false.
    """
    task_id = known_id(call.path["task_id"])
    with call.coordinator.subscribe(NewLines(task_id)) as newer:
        page = await _page(call, task_id)
        is_complete = page.state in FINISHED
        is_waiting = call.query.wait_ms and not page.items and not page.has_more
        if not is_waiting or is_complete or call.coordinator.is_stopping:
            return page
        await call.while_connected(newer.wait(call.query.wait_ms))
    return await _page(call, task_id)


async def _page(call: HttpCall[None, LogQuery], task_id: TaskId) -> LogPage:
    # The state first: when the task has ended by then, all of its lines are there.
    state = (await own_task(call, task_id)).state
    query = call.query
    found = await call.coordinator.queries.tasks.log_after(
        task_id,
        query.after,
        attempt=query.attempt,
        level=query.level,
        limit=query.limit,
    )
    return _view(found, state)


def _view(found: TaskLog, state: TaskState) -> LogPage:
    attempts = found.attempts
    return LogPage(
        items=[
            LogLineView(
                number=one.number,
                attempt=attempts[one.fence].attempt,
                fence=one.fence,
                at_ms=one.line.at_ms,
                level=one.line.level,
                logger=one.line.logger,
                message=one.line.message,
                fields=None if one.line.fields is None else Raw(one.line.fields),
            )
            for one in found.lines
        ],
        attempts=[
            AttemptLogView(attempt=one.attempt, fence=fence, lines=one.lines, dropped=one.dropped)
            for fence, one in sorted(attempts.items())
        ],
        next_after=found.scanned,
        has_more=found.has_more,
        state=state,
    )
