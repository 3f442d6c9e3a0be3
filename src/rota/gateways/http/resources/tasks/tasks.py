"""Tasks over HTTP: submit, show, list, cancel, retry."""

import math
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from rota.core import access, ids, limits
from rota.core.access import Action, Caller
from rota.core.commands import CancelTasks, RetryTasks, SubmitTasks, TaskFilter
from rota.core.decisions import AddTask
from rota.core.dispatch.wait_reasons import Explanation
from rota.core.flows.commands import LookAtLimits
from rota.core.ids import TaskId
from rota.core.replies import Submitted
from rota.core.tasks.model import NewTask, TaskRecord, TaskState
from rota.core.tasks.values import SHALLOW_BYTES, check_value
from rota.errors import (
    Forbidden,
    IllegalState,
    KeyBusy,
    Overloaded,
    QueueFull,
    TaskNotFound,
    Unavailable,
    UniqueConflict,
)
from rota.gateways.http.resources.tasks import bulk
from rota.gateways.http.routing.endpoint import HttpCall, NoQuery, Routes
from rota.gateways.http.routing.parameters import PageQuery, id_before, page_of
from rota.gateways.http.routing.responses import HttpResponse, encoded
from rota.gateways.http.views.tasks import added_task, events_of, task_view, wait_reason_view
from rota.gateways.validation import invalid_field
from rota.messages import (
    Name,
    NoFields,
    Request,
    TaskCount,
    TaskPage,
    TaskSelection,
    TaskView,
    WaitMs,
)
from rota.messages.dashboard import AttemptView, TaskTimeline

NewTasks = Annotated[list[NewTask], Meta(max_length=limits.MAX_TASKS_PER_SUBMISSION)]

MOST_RETRY_AFTER_S = 60  # that a client is told to wait for room in a queue

routes = Routes("Tasks")


class WaitQuery(Request, frozen=True, kw_only=True):
    wait_ms: Annotated[
        WaitMs, Meta(description="Answer as soon as the task has ended, after this at the latest.")
    ] = 0


class TasksQuery(PageQuery, frozen=True, kw_only=True):
    state: Annotated[
        tuple[TaskState, ...],
        Meta(description="Any of these states; repeated or comma separated."),
    ] = ()
    queue: Name | None = None
    name: Name | None = None
    label: Annotated[
        Name | None, Meta(description="One of a list's labels, or `key=value` of a mapping.")
    ] = None
    key: Annotated[
        Annotated[str, Meta(min_length=1, max_length=limits.MAX_KEY_LENGTH)] | None,
        Meta(description="Accepted under this key, in `queue` or, without it, in any queue."),
    ] = None
    acknowledged: Annotated[
        bool | None, Meta(description="Failed tasks that are acknowledged, or that are not.")
    ] = None


# --- submitting --------------------------------------------------------------------------------


@routes.post(
    "/api/tasks",
    Action.SUBMIT,
    answer=TaskView | list[TaskView],
    status=201,
    other_statuses=(200,),
    errors=(UniqueConflict, KeyBusy, QueueFull, Overloaded, Unavailable),
    starts_eagerly=True,
)
async def submit(call: HttpCall[NewTask | NewTasks, NoQuery]) -> HttpResponse:
    """Submit one task or many.

    One object, or an array of up to 10,000 that is accepted or refused as a whole. A task whose
    `key` is taken already in its queue is answered with the one that has it, and `"duplicate":
    true`; 200 when that is true of all. A task that is `unique` or has `debounce` is answered the
    same way with the task that holds its key. With `"on_conflict": "reject"` that is the error
    `unique_conflict`, and no task of the array is accepted.
    """
    is_batch = isinstance(call.body, list)
    tasks = call.body if isinstance(call.body, list) else [call.body]
    _check(tasks, call.caller, most_bytes=call.settings.max_payload_bytes, is_batch=is_batch)
    if not tasks:
        return encoded([], 201)
    if is_batch:
        call.services.quotas.reserve_submission(call.reservation, len(tasks))
    command = SubmitTasks(tasks, by=call.caller if call.caller.is_bound else None)
    try:
        reply = await call.coordinator.execute(command, is_alone=True)
    except QueueFull as error:
        error.facts["retry_after_s"] = _seconds_until_room(call, error.facts["queue"], len(tasks))
        raise
    assert isinstance(reply, Submitted)
    views = _views(reply.items)
    if not is_batch:
        return encoded(views[0], 200 if views[0].duplicate else 201)
    is_new = not all(view.duplicate for view in views)
    return encoded(views, 201 if is_new else 200)


def _seconds_until_room(call: HttpCall[Any, Any], queue: str, count: int) -> int:
    """Estimate when a full queue has room for so many tasks, by how fast it is worked off."""
    rates = call.coordinator.metrics().rates.get(queue)
    per_s = 0.0 if rates is None else rates.finished.per_second(call.coordinator.clock.now_ms())
    if per_s <= 0:
        return MOST_RETRY_AFTER_S
    return max(1, min(MOST_RETRY_AFTER_S, math.ceil(count / per_s)))


def _check(tasks: Sequence[NewTask], caller: Caller, *, most_bytes: int, is_batch: bool) -> None:
    small = min(SHALLOW_BYTES, most_bytes)
    for index, task in enumerate(tasks):
        if task.delay_ms is not None and task.run_at_ms is not None:
            text = "give this or delay_ms, not both"
            raise invalid_field("run_at_ms", text, index=index if is_batch else None)
        if len(task.payload) > small:
            check_value(task.payload, "payload", most_bytes=most_bytes)
    if caller.queues is not None:
        for task in tasks:
            access.check_queue(caller, task.queue)


def _views(items: Sequence[AddTask | TaskRecord]) -> list[TaskView]:
    views, keyed = [], set()
    for item in items:
        if isinstance(item, TaskRecord):
            views.append(task_view(item, duplicate=True))
        elif item.task.key is None:
            views.append(added_task(item))
        else:
            # The same key twice in one submission: the second is a duplicate of the first.
            views.append(added_task(item, duplicate=item.id in keyed))
            keyed.add(item.id)
    return views


# --- reading -----------------------------------------------------------------------------------


@routes.get("/api/tasks/{task_id}", Action.READ, errors=(TaskNotFound,))
async def show(call: HttpCall[None, WaitQuery]) -> TaskView:
    """Show a task, or wait for its end."""
    task_id = known_id(call.path["task_id"])
    if call.query.wait_ms:
        await own_task(call, task_id)
        waiting = call.coordinator.wait_for_end(task_id, wait_ms=call.query.wait_ms)
        await call.while_connected(waiting)
    return await current_view(call, task_id)


async def current_view(call: HttpCall[Any, Any], task_id: TaskId) -> TaskView:
    task = await own_task(call, task_id)
    is_waiting = task.state is TaskState.QUEUED
    position = await call.coordinator.queries.tasks.position(task) if is_waiting else None
    return task_view(task, position=position)


@routes.get("/api/tasks", Action.READ)
async def listing(call: HttpCall[None, TasksQuery]) -> TaskPage:
    """List tasks, newest first."""
    query = call.query
    selection = TaskFilter(
        states=tuple(dict.fromkeys(query.state)),
        queue=bulk.own_queue(call.caller, query.queue),
        name=query.name,
        label=bulk.label_text(query.label),
        acknowledged=query.acknowledged,
    )
    before = id_before(query.cursor)
    queries = call.coordinator.queries
    if query.key is None:
        found = await queries.tasks.page(selection, limit=query.limit + 1, before=before)
    else:
        found = await queries.tasks.with_key(
            query.key, queue=selection.queue, limit=query.limit + 1, before=before
        )
    page, next_cursor = page_of(found, query.limit, lambda task: ids.to_text(task.id))
    return TaskPage(
        items=[task_view(task) for task in page if bulk.matches(task, selection)],
        next_cursor=next_cursor,
    )


def known_id(text: str) -> TaskId:
    task_id = ids.from_text(text)
    if task_id is None:
        raise TaskNotFound(text)
    return task_id


async def own_task(call: HttpCall[Any, Any], task_id: TaskId) -> TaskRecord:
    """The task, if it exists in a queue that this caller may see."""
    task = await call.coordinator.queries.tasks.by_id(task_id)
    if task is None:
        raise TaskNotFound(ids.to_text(task_id))
    access.check_queue(call.caller, task.lane.queue, of=f"task {ids.to_text(task_id)!r}")
    return task


@routes.get("/api/tasks/{task_id}/timeline", Action.READ, errors=(TaskNotFound,))
async def timeline(call: HttpCall[None, NoQuery]) -> TaskTimeline:
    """Show the events and attempts of a task, and why it waits."""
    task = await own_task(call, known_id(call.path["task_id"]))
    why = await _explanation(call, task)
    return TaskTimeline(
        id=call.path["task_id"],
        state=task.state,
        events=events_of(task),
        attempts=[msgspec.convert(one, AttemptView, from_attributes=True) for one in task.log],
        why=wait_reason_view(why, task.lane.queue, call.caller),
        fence=task.fence,
        deadline_ms=task.deadline_ms,
    )


async def _explanation(call: HttpCall[None, NoQuery], task: TaskRecord) -> Explanation:
    """Why the task waits. Only a task that has limits costs a command."""
    queries = call.coordinator.queries
    keys = await queries.dashboard.limit_keys(task)
    known = (await call.coordinator.execute(LookAtLimits(keys=keys))).items if keys else []
    position = await queries.tasks.position(task)
    return await queries.dashboard.why(task, position, known, shows_counts=not call.caller.is_bound)


# --- changing ----------------------------------------------------------------------------------


@routes.post("/api/tasks/{task_id}/cancel", Action.SUBMIT, errors=(TaskNotFound, IllegalState))
async def cancel(call: HttpCall[NoFields | None, NoQuery]) -> TaskView:
    """Cancel a task that has not ended."""
    return await change_one(call, CancelTasks)


@routes.post("/api/tasks/{task_id}/retry", Action.SUBMIT, errors=(TaskNotFound, IllegalState))
async def retry(call: HttpCall[NoFields | None, NoQuery]) -> TaskView:
    """Retry a failed or cancelled task."""
    return await change_one(call, RetryTasks)


async def change_one(call: HttpCall[Any, NoQuery], change: bulk.Change) -> TaskView:
    """Change the task that the path names, if it is in a queue of the caller."""
    task_id = known_id(call.path["task_id"])
    if call.caller.queues is not None:
        await own_task(call, task_id)
    reply = await call.coordinator.execute(change((task_id,)))
    if task_id in reply.refused:
        raise reply.refused[task_id]
    return await current_view(call, task_id)


@routes.post("/api/tasks/cancel", Action.SUBMIT, errors=(Forbidden,))
async def cancel_many(call: HttpCall[TaskSelection, NoQuery]) -> TaskCount:
    """Cancel all tasks that match.

    Without `state`: scheduled, queued and running ones. With `dry_run` nothing changes, and the
    answer has the number of matching tasks.
    """
    return await bulk.change(call, CancelTasks, usual_states=bulk.CANCELLABLE)


@routes.post("/api/tasks/retry", Action.SUBMIT, errors=(Forbidden,))
async def retry_many(call: HttpCall[TaskSelection, NoQuery]) -> TaskCount:
    """Retry all tasks that match.

    Without `state`: failed ones. With `dry_run` nothing changes, and the answer has the number
    of matching tasks.
    """
    return await bulk.change(call, RetryTasks, usual_states=bulk.RETRYABLE)
