"""Bulk changes of tasks: in steps, each a transaction, from the newest task downwards.

Ids only rise, so walking down ends, whatever is submitted meanwhile.
"""

from collections.abc import Callable
from typing import Any

from rota.core import access, ids, limits
from rota.core.access import Caller
from rota.core.commands import AcknowledgeTasks, CancelTasks, RetryTasks, TaskFilter
from rota.core.ids import TaskId
from rota.core.tasks.model import TaskRecord, TaskState, normalised_labels
from rota.engine.coordinator import Coordinator
from rota.errors import Forbidden, Invalid
from rota.gateways.http.routing.endpoint import HttpCall, NoQuery
from rota.messages import TaskCount, TaskSelection

CANCELLABLE = (TaskState.SCHEDULED, TaskState.QUEUED, TaskState.RUNNING)
RETRYABLE = (TaskState.FAILED,)

Change = Callable[[tuple[TaskId, ...]], CancelTasks | RetryTasks | AcknowledgeTasks]


async def change(
    call: HttpCall[Any, NoQuery],
    make: Change,
    *,
    usual_states: tuple[TaskState, ...],
    acknowledged: bool | None = None,
) -> TaskCount:
    """Execute a bulk change, or count the tasks that it would change.

    `acknowledged`: only failed tasks that are, or are not.
    """
    asked: TaskSelection = call.body
    is_selective = any((asked.state, asked.queue, asked.name, asked.label, asked.ids is not None))
    if not is_selective and not asked.dry_run:
        raise Invalid(
            "say which tasks: at least one of state, queue, name, label, ids; or dry_run",
            field="state",
        )
    selection = TaskFilter(
        states=usual_states if asked.state is None else (asked.state,),
        queue=own_queue(call.caller, asked.queue),
        name=asked.name,
        label=label_text(asked.label),
        acknowledged=acknowledged,
    )
    coordinator = call.coordinator
    if asked.ids is not None:
        named = await _named(coordinator, asked.ids, selection)
        count = len(named) if asked.dry_run else await change_named(coordinator, named, make)
    elif asked.dry_run:
        count = await coordinator.queries.tasks.count(selection)
    else:
        count = await _change_matching(coordinator, selection, make)
    return TaskCount(count=count, dry_run=asked.dry_run)


async def _change_matching(coordinator: Coordinator, selection: TaskFilter, make: Change) -> int:
    count, before = 0, None
    while True:
        step = await coordinator.queries.tasks.ids(
            selection, limit=limits.MAX_BULK_STEP, before=before
        )
        if not step:
            return count
        count += await _change_step(coordinator, tuple(step), make)
        before = step[-1]


async def change_named(coordinator: Coordinator, named: list[TaskId], make: Change) -> int:
    """Change these tasks; returns how many were changed."""
    count = 0
    for start in range(0, len(named), limits.MAX_BULK_STEP):
        step = tuple(named[start : start + limits.MAX_BULK_STEP])
        count += await _change_step(coordinator, step, make)
    return count


async def _change_step(coordinator: Coordinator, step: tuple[TaskId, ...], make: Change) -> int:
    reply = await coordinator.execute(make(step))
    return len(reply.changed)


async def _named(coordinator: Coordinator, texts: list[str], selection: TaskFilter) -> list[TaskId]:
    """The named tasks that exist and match the rest of the filter."""
    found = []
    for task_id in dict.fromkeys(ids.from_text(text) for text in texts):
        task = None if task_id is None else await coordinator.queries.tasks.by_id(task_id)
        if task is not None and matches(task, selection):
            found.append(task.id)
    return found


def matches(task: TaskRecord, selection: TaskFilter) -> bool:
    return (
        (not selection.states or task.state in selection.states)
        and _fits_acknowledgement(task, selection)
        and selection.queue in {None, task.lane.queue}
        and selection.name in {None, task.lane.name}
        and (selection.label is None or selection.label in normalised_labels(task.options.labels))
    )


def _fits_acknowledgement(task: TaskRecord, selection: TaskFilter) -> bool:
    if selection.acknowledged is None:
        return True
    is_acknowledged = task.acknowledged is not None
    return task.state is TaskState.FAILED and is_acknowledged == selection.acknowledged


def label_text(label: str | None) -> str | None:
    """A label as it is searched for: `key:value` means the same as `key=value`."""
    if label is None or "=" in label:
        return label
    return label.replace(":", "=", 1)


def own_queue(caller: Caller, queue: str | None) -> str | None:
    """The queue of a listing; a caller that is bound to queues may name only these."""
    if caller.queues is None:
        return queue
    if queue is not None:
        access.check_queue(caller, queue)
        return queue
    if len(caller.queues) == 1:
        return caller.queues[0]
    raise Forbidden(f"token {caller.name!r} is bound to queues: name one of them with `queue`")
