"""What do operators' wishes lead to: cancel, retry, pause, and access?"""

from rota.core.decisions import (
    ChangeQueue,
    Decision,
    DropToken,
    FinishTask,
    ForgetCancelled,
    ForgetHistory,
    PutToken,
    QueueTask,
    ReviveTask,
    TellCancelled,
)
from rota.core.events import (
    AddToken,
    CancelTasks,
    PauseQueue,
    PruneHistory,
    RetryTasks,
    RevokeToken,
)
from rota.core.ids import TaskId, to_text
from rota.core.replies import Changed, Done
from rota.core.snapshot import Snapshot
from rota.core.tasks import FINISHED, JOB_INCARNATION, Task, TaskState
from rota.errors import IllegalState, QueueNotFound, RotaError, TaskNotFound, TokenNotFound

PRUNED_PER_STEP = 2_000  # finished tasks forgotten in one transaction, so that none is long


def cancel(snapshot: Snapshot, event: CancelTasks) -> tuple[list[Decision], Changed]:
    """End live tasks at once. A worker that runs one is told, and its result comes too late."""
    decisions: list[Decision] = []
    changed: list[TaskId] = []
    refused: dict[TaskId, RotaError] = {}
    for task_id in event.ids:
        task = snapshot.tasks.get(task_id)
        if task is None:
            refused[task_id] = TaskNotFound(to_text(task_id))
        elif task.state in FINISHED:
            refused[task_id] = _refused("cancelled", task)
        else:
            decisions += _cancelled(snapshot, task)
            changed.append(task_id)
    return decisions, Changed(tuple(changed), refused)


def _refused(wish: str, task: Task) -> IllegalState:
    return IllegalState(
        f"task {to_text(task.id)!r} is {task.state}, so it cannot be {wish}",
        task_id=to_text(task.id),
        state=task.state,
    )


def _cancelled(snapshot: Snapshot, task: Task) -> list[Decision]:
    finish = FinishTask(
        id=task.id,
        was=task.state,
        state=TaskState.CANCELLED,
        fence=task.fence,
        attempt=task.attempt,
        finished_at_ms=snapshot.now_ms,
        worker_id=task.worker_id,
        queue=task.lane.queue,
    )
    incarnation = task.incarnation if task.state is TaskState.RUNNING else None
    snapshot.note_finished(finish)
    if incarnation is None or incarnation == JOB_INCARNATION:
        return [finish]
    snapshot.to_cancel.setdefault(incarnation, set()).add(task.id)
    return [finish, TellCancelled(incarnation, task.id)]


def retry(snapshot: Snapshot, event: RetryTasks) -> tuple[list[Decision], Changed]:
    """Send failed and cancelled tasks round again; one that waits for its time runs now."""
    decisions: list[Decision] = []
    changed: list[TaskId] = []
    refused: dict[TaskId, RotaError] = {}
    for task_id in event.ids:
        task = snapshot.tasks.get(task_id)
        if task is None:
            refused[task_id] = TaskNotFound(to_text(task_id))
        elif task.state in {TaskState.FAILED, TaskState.CANCELLED}:
            decisions += [ReviveTask(task_id), *_void_cancellation(snapshot, task)]
        elif task.state is TaskState.SCHEDULED:
            decisions.append(QueueTask(task_id))
        else:
            refused[task_id] = _refused("retried", task)
        if task_id not in refused:
            snapshot.note_state(task_id, TaskState.QUEUED)
            changed.append(task_id)
    return decisions, Changed(tuple(changed), refused)


def _void_cancellation(snapshot: Snapshot, task: Task) -> list[Decision]:
    """Its worker may get the task again, and must not be told to drop it then.

    If it still runs the cancelled attempt, its next beat says that this one is lost.
    """
    if task.state is not TaskState.CANCELLED or task.incarnation in {None, JOB_INCARNATION}:
        return []
    assert task.incarnation is not None
    snapshot.to_cancel.get(task.incarnation, set()).discard(task.id)
    return [ForgetCancelled(task.incarnation, task.id)]


def queue_due(snapshot: Snapshot) -> tuple[list[Decision], Done]:
    """Queue what is due, but for tasks that this batch has moved on from there already."""
    moved_on = {
        task_id
        for task_id in snapshot.due
        if task_id in snapshot.tasks and snapshot.tasks[task_id].state is not TaskState.SCHEDULED
    }
    due = [task_id for task_id in snapshot.due if task_id not in moved_on]
    for task_id in due:
        if task_id in snapshot.tasks:
            snapshot.note_state(task_id, TaskState.QUEUED)
    return [QueueTask(task_id) for task_id in due], Done(len(due))


def pause(snapshot: Snapshot, event: PauseQueue) -> tuple[list[Decision], Done]:
    """A queue may be paused before its first task; only what never was cannot be resumed."""
    if not event.paused and event.queue not in snapshot.known_queues:
        raise QueueNotFound(event.queue)
    return [ChangeQueue(event.queue, event.paused, snapshot.now_ms)], Done()


def prune(event: PruneHistory) -> tuple[list[Decision], Done]:
    return [ForgetHistory(event.finished_before_ms, PRUNED_PER_STEP)], Done()


def add_token(event: AddToken) -> tuple[list[Decision], Done]:
    return [PutToken(event.token)], Done()


def revoke_token(snapshot: Snapshot, event: RevokeToken) -> tuple[list[Decision], Done]:
    if event.token_id not in snapshot.token_ids:
        raise TokenNotFound(event.token_id)
    return [DropToken(event.token_id)], Done()
