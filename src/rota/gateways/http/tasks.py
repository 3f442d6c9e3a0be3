"""Tasks over HTTP: submit, look, list, cancel, retry."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from msgspec import Meta

from rota.core import access, ids, limits
from rota.core.access import Action, Caller
from rota.core.decisions import AddTask
from rota.core.events import CancelTasks, RetryTasks, SubmitTasks, TaskFilter
from rota.core.ids import TaskId
from rota.core.replies import Changed, Submitted
from rota.core.tasks import NewTask, Task, TaskState
from rota.core.values import SHALLOW_BYTES, check_value
from rota.errors import Forbidden, IllegalState, Overloaded, TaskNotFound, Unavailable
from rota.gateways.http import bulk
from rota.gateways.http.answers import Answered, encoded
from rota.gateways.http.bodies import invalid_field
from rota.gateways.http.endpoint import Call, Endpoint, NoQuery
from rota.gateways.http.views import added_task, task_view
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

NewTasks = Annotated[list[NewTask], Meta(max_length=limits.MAX_TASKS_PER_SUBMISSION)]


class WaitQuery(Request, frozen=True, kw_only=True):
    wait_ms: Annotated[
        WaitMs, Meta(description="Answer as soon as the task has ended, after this at the latest.")
    ] = 0


class TasksQuery(Request, frozen=True, kw_only=True):
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
        Meta(description="The one task that was accepted under this key, if it matches the rest."),
    ] = None
    limit: Annotated[int, Meta(ge=1, le=limits.MAX_PAGE)] = limits.DEFAULT_PAGE
    cursor: Annotated[
        str | None, Meta(description="`next_cursor` of the page before this one.")
    ] = None


# --- submitting --------------------------------------------------------------------------------


async def submit(call: Call[NewTask | list[NewTask], NoQuery]) -> Answered:
    is_batch = isinstance(call.body, list)
    tasks = call.body if isinstance(call.body, list) else [call.body]
    _check(tasks, call.caller, most_bytes=call.settings.max_payload_bytes, is_batch=is_batch)
    if not tasks:
        return encoded([], 201)
    reply = await call.coordinator.handle(SubmitTasks(tasks), is_alone=True)
    assert isinstance(reply, Submitted)
    views = _views(reply.items)
    is_new = not all(view.duplicate for view in views)
    return encoded(views if is_batch else views[0], 201 if is_new else 200)


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


def _views(items: Sequence[AddTask | Task]) -> list[TaskView]:
    views, keyed = [], set()
    for item in items:
        if isinstance(item, Task):
            views.append(task_view(item, duplicate=True))
        elif item.task.key is None:
            views.append(added_task(item))
        else:
            # The same key twice in one submission: the second is a duplicate of the first.
            views.append(added_task(item, duplicate=item.id in keyed))
            keyed.add(item.id)
    return views


# --- looking -----------------------------------------------------------------------------------


async def show(call: Call[None, WaitQuery]) -> TaskView:
    task_id = known_id(call.parameter)
    if call.query.wait_ms:
        await own_task(call, task_id)
        waiting = call.coordinator.wait_finished(task_id, wait_ms=call.query.wait_ms)
        await call.while_connected(waiting)
    return await current_view(call, task_id)


async def current_view(call: Call[Any, Any], task_id: TaskId) -> TaskView:
    task = await own_task(call, task_id)
    is_waiting = task.state is TaskState.QUEUED
    position = await call.coordinator.queries.position(task) if is_waiting else None
    return task_view(task, position=position)


async def listing(call: Call[None, TasksQuery]) -> TaskPage:
    query = call.query
    selection = TaskFilter(
        states=tuple(dict.fromkeys(query.state)),
        queue=bulk.own_queue(call.caller, query.queue),
        name=query.name,
        label=bulk.label_text(query.label),
    )
    if query.key is not None:
        task = await call.coordinator.queries.task_by_key(query.key)
        tasks = [task] if task is not None and bulk.matches(task, selection) else []
        return TaskPage(items=[task_view(one) for one in tasks])
    before = None
    if query.cursor is not None:
        before = ids.from_text(query.cursor)
        if before is None:
            raise invalid_field("cursor", "not one of ours; take `next_cursor` as it came")
    # One more than asked for tells whether there is a next page.
    found = await call.coordinator.queries.tasks(selection, limit=query.limit + 1, before=before)
    page = found[: query.limit]
    return TaskPage(
        items=[task_view(task) for task in page],
        next_cursor=ids.to_text(page[-1].id) if len(found) > len(page) else None,
    )


def known_id(text: str) -> TaskId:
    task_id = ids.from_text(text)
    if task_id is None:
        raise TaskNotFound(text)
    return task_id


async def own_task(call: Call[Any, Any], task_id: TaskId) -> Task:
    """The task, if it is there and in a queue that this caller may see."""
    task = await call.coordinator.queries.task(task_id)
    if task is None:
        raise TaskNotFound(ids.to_text(task_id))
    access.check_queue(call.caller, task.lane.queue)
    return task


# --- changing ----------------------------------------------------------------------------------


async def cancel(call: Call[NoFields | None, NoQuery]) -> TaskView:
    return await _change(call, CancelTasks)


async def retry(call: Call[NoFields | None, NoQuery]) -> TaskView:
    return await _change(call, RetryTasks)


async def _change(
    call: Call[NoFields | None, NoQuery],
    change: Callable[[tuple[TaskId, ...]], CancelTasks | RetryTasks],
) -> TaskView:
    task_id = known_id(call.parameter)
    if call.caller.queues is not None:
        await own_task(call, task_id)
    reply = await call.coordinator.handle(change((task_id,)))
    assert isinstance(reply, Changed)
    if task_id in reply.refused:
        raise reply.refused[task_id]
    return await current_view(call, task_id)


async def cancel_many(call: Call[TaskSelection, NoQuery]) -> TaskCount:
    return await bulk.change(call, CancelTasks, usual_states=bulk.CANCELLABLE)


async def retry_many(call: Call[TaskSelection, NoQuery]) -> TaskCount:
    return await bulk.change(call, RetryTasks, usual_states=bulk.RETRYABLE)


ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/api/tasks",
        summary="Submit one task or many",
        description="One object, or an array of up to 10,000 that is accepted or refused as a "
        "whole. A task whose `key` is taken already is answered with the one that has it, and "
        '`"duplicate": true`; 200 when that is true of all.',
        noun="Tasks",
        action=Action.SUBMIT,
        handler=submit,
        body=NewTask | NewTasks,
        is_body_needed=True,
        answer=TaskView | list[TaskView],
        status=201,
        other_statuses=(200,),
        errors=(Overloaded, Unavailable),
        is_brisk=True,
    ),
    Endpoint(
        method="GET",
        path="/api/tasks",
        summary="List tasks, newest first",
        noun="Tasks",
        action=Action.READ,
        handler=listing,
        query=TasksQuery,
        answer=TaskPage,
    ),
    Endpoint(
        method="GET",
        path="/api/tasks/{task_id}",
        summary="Show a task, or wait for its end",
        noun="Tasks",
        action=Action.READ,
        handler=show,
        query=WaitQuery,
        answer=TaskView,
        errors=(TaskNotFound,),
    ),
    Endpoint(
        method="POST",
        path="/api/tasks/{task_id}/cancel",
        summary="Cancel a task that has not ended",
        noun="Tasks",
        action=Action.SUBMIT,
        handler=cancel,
        answer=TaskView,
        errors=(TaskNotFound, IllegalState),
    ),
    Endpoint(
        method="POST",
        path="/api/tasks/{task_id}/retry",
        summary="Send a failed or cancelled task round again",
        noun="Tasks",
        action=Action.SUBMIT,
        handler=retry,
        answer=TaskView,
        errors=(TaskNotFound, IllegalState),
    ),
    Endpoint(
        method="POST",
        path="/api/tasks/cancel",
        summary="Cancel all tasks that match",
        description="Without `state`: scheduled, queued and running ones. "
        "With `dry_run` nothing changes, and the answer says how many it would be.",
        noun="Tasks",
        action=Action.SUBMIT,
        handler=cancel_many,
        body=TaskSelection,
        is_body_needed=True,
        answer=TaskCount,
        errors=(Forbidden,),
    ),
    Endpoint(
        method="POST",
        path="/api/tasks/retry",
        summary="Retry all tasks that match",
        description="Without `state`: failed ones. "
        "With `dry_run` nothing changes, and the answer says how many it would be.",
        noun="Tasks",
        action=Action.SUBMIT,
        handler=retry_many,
        body=TaskSelection,
        is_body_needed=True,
        answer=TaskCount,
        errors=(Forbidden,),
    ),
)
