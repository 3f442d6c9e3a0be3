"""Operator commands: cancel, retry, acknowledge, pause, prune, and tokens."""

from collections.abc import Callable, Iterable
from typing import assert_never

from msgspec.structs import replace

from rota.core.commands import (
    AcknowledgeTasks,
    AddToken,
    CancelTasks,
    PauseQueue,
    PruneHistory,
    RetryTasks,
    RevokeToken,
)
from rota.core.context import Context
from rota.core.decisions import (
    AcknowledgeTask,
    ChangeQueue,
    Decision,
    DropToken,
    ForgetCancelled,
    ForgetHistory,
    PutToken,
    QueueTask,
    ReviveTask,
    TellCancelled,
)
from rota.core.ids import TaskId, to_text
from rota.core.replies import Changed, Done
from rota.core.snapshot import Snapshot
from rota.core.tasks import attempts
from rota.core.tasks.model import (
    JOB_INCARNATION,
    Acknowledgement,
    TaskRecord,
    TaskState,
    retried_options,
)
from rota.errors import IllegalState, QueueNotFound, RotaError, TaskNotFound, TokenNotFound

PRUNED_PER_STEP = 2_000  # finished tasks deleted in one transaction, so that none is long


def cancel(
    snapshot: Snapshot, command: CancelTasks, context: Context
) -> tuple[list[Decision], Changed]:
    """End live tasks at once. The worker that runs one is notified, and its result is refused."""
    return _change_each(snapshot, command.ids, cancel_task, context)


def retry(
    snapshot: Snapshot, command: RetryTasks, context: Context
) -> tuple[list[Decision], Changed]:
    """Queue failed and cancelled tasks again, and scheduled ones before their time."""
    return _change_each(snapshot, command.ids, _retry, context)


def acknowledge(
    snapshot: Snapshot, command: AcknowledgeTasks, context: Context
) -> tuple[list[Decision], Changed]:
    """Note who has seen that tasks failed, or forget it; the first acknowledgement stays."""
    noted = None
    if not command.undo:
        noted = Acknowledgement(context.now_ms, command.by, command.reason)

    def rule(snapshot: Snapshot, task: TaskRecord, _context: Context) -> list[Decision]:
        if task.state is not TaskState.FAILED:
            raise _illegal(task, "acknowledged: only failed tasks can")
        if (task.acknowledged is None) == command.undo:
            detail = "is not acknowledged" if command.undo else "is acknowledged already"
            raise IllegalState(
                f"task {to_text(task.id)!r} {detail}", task_id=to_text(task.id), state=task.state
            )
        snapshot.tasks[task.id] = replace(task, acknowledged=noted)
        return [AcknowledgeTask(task.id, noted)]

    return _change_each(snapshot, command.ids, rule, context)


def _change_each(
    snapshot: Snapshot,
    ids: Iterable[TaskId],
    rule: Callable[[Snapshot, TaskRecord, Context], list[Decision]],
    context: Context,
) -> tuple[list[Decision], Changed]:
    decisions: list[Decision] = []
    changed: list[TaskId] = []
    refused: dict[TaskId, RotaError] = {}
    for task_id in ids:
        task = snapshot.tasks.get(task_id)
        try:
            if task is None:
                raise TaskNotFound(to_text(task_id))
            decisions += rule(snapshot, task, context)
            changed.append(task_id)
        except RotaError as error:
            refused[task_id] = error
    return decisions, Changed(tuple(changed), refused)


def _illegal(task: TaskRecord, change: str) -> IllegalState:
    return IllegalState(
        f"task {to_text(task.id)!r} is {task.state}, so it cannot be {change}",
        task_id=to_text(task.id),
        state=task.state,
    )


def cancel_task(snapshot: Snapshot, task: TaskRecord, context: Context) -> list[Decision]:
    """Cancel a task; the worker that runs it is told."""
    if not task.state.may_become(TaskState.CANCELLED):
        raise _illegal(task, "cancelled")
    incarnation = task.incarnation if task.state is TaskState.RUNNING else None
    finish = attempts.end_task(snapshot, task, TaskState.CANCELLED, context)
    if incarnation is None or incarnation == JOB_INCARNATION:
        return [finish]
    snapshot.to_cancel.setdefault(incarnation, set()).add(task.id)
    return [finish, TellCancelled(incarnation, task.id)]


def _retry(snapshot: Snapshot, task: TaskRecord, context: Context) -> list[Decision]:
    decisions: list[Decision]
    match task.state:
        case TaskState.CANCELLED if task.id in snapshot.lingering:
            raise IllegalState(
                f"task {to_text(task.id)!r} is cancelled, but its worker has not stopped yet and "
                "still holds a slot of its limits; retry it in a moment",
                task_id=to_text(task.id),
                state=task.state,
            )
        case TaskState.FAILED | TaskState.CANCELLED:
            options = retried_options(task.options, now_ms=context.now_ms)
            changed = None if options is task.options else options
            decisions = [ReviveTask(task.id, changed), *_void_cancellation(snapshot, task)]
        case TaskState.SCHEDULED:
            decisions = [QueueTask(task.id)]
        case TaskState.QUEUED | TaskState.RUNNING | TaskState.SUCCEEDED:
            raise _illegal(task, "retried")
        case _:
            assert_never(task.state)
    snapshot.note_state(task.id, TaskState.QUEUED, now_ms=context.now_ms)
    return decisions


def _void_cancellation(snapshot: Snapshot, task: TaskRecord) -> list[Decision]:
    """Drop the notification of a worker, which may get the task again.

    If it still runs the cancelled attempt, the answer to its next heartbeat lists that as lost.
    """
    if task.state is not TaskState.CANCELLED or task.incarnation in {None, JOB_INCARNATION}:
        return []
    assert task.incarnation is not None
    snapshot.to_cancel.get(task.incarnation, set()).discard(task.id)
    return [ForgetCancelled(task.incarnation, task.id)]


def queue_due(snapshot: Snapshot, context: Context) -> tuple[list[Decision], Done]:
    """Queue due tasks, except those that an earlier command of this batch has changed."""
    due = [task_id for task_id in snapshot.due if _is_due(snapshot.tasks.get(task_id), context)]
    for task_id in due:
        if task_id in snapshot.tasks:
            snapshot.note_state(task_id, TaskState.QUEUED, now_ms=context.now_ms)
    return [QueueTask(task_id) for task_id in due], Done(len(due))


def _is_due(task: TaskRecord | None, context: Context) -> bool:
    """Whether a task that was due before this batch still is; None: no command has named it."""
    if task is None:
        return True
    is_later = task.due_at_ms is not None and task.due_at_ms > context.now_ms
    return task.state is TaskState.SCHEDULED and not is_later


def pause(snapshot: Snapshot, command: PauseQueue, context: Context) -> tuple[list[Decision], Done]:
    """Pause or resume a queue. A queue may be paused before its first task."""
    if not command.paused and command.queue not in snapshot.known_queues:
        raise QueueNotFound(command.queue)
    return [ChangeQueue(command.queue, command.paused, context.now_ms)], Done()


def prune(command: PruneHistory) -> tuple[list[Decision], Done]:
    return [ForgetHistory(command.finished_before_ms, PRUNED_PER_STEP)], Done()


def add_token(command: AddToken) -> tuple[list[Decision], Done]:
    return [PutToken(command.token)], Done()


def revoke_token(snapshot: Snapshot, command: RevokeToken) -> tuple[list[Decision], Done]:
    if command.token_id not in snapshot.token_ids:
        raise TokenNotFound(command.token_id)
    return [DropToken(command.token_id)], Done()
