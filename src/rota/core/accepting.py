"""What does a submission lead to? New tasks, or the ones that have their keys already."""

from rota.core.decisions import AddTask, Decision, FinishTask
from rota.core.events import SubmitTasks
from rota.core.ids import TaskId, next_ids
from rota.core.replies import Submitted, Taken
from rota.core.snapshot import Snapshot, added_task
from rota.core.tasks import Task, TaskError, TaskState, due_at_ms, lane_of
from rota.errors import TooMany


def submit(snapshot: Snapshot, event: SubmitTasks) -> tuple[list[AddTask], Submitted]:
    """Accept each task once: a key that is known answers with the task it named before."""
    now_ms = snapshot.now_ms
    ids = next_ids(len(event.tasks), last=snapshot.last_task_id, now_ms=now_ms)
    snapshot.last_task_id = ids[-1] if ids else snapshot.last_task_id

    added: list[AddTask] = []
    items: list[AddTask | Task] = []
    for number, task in zip(ids, event.tasks, strict=True):
        if task.key is not None and task.key in snapshot.keys:
            items.append(snapshot.keys[task.key])
            continue
        decision = AddTask(TaskId(number), task, now_ms, due_at_ms(task, now_ms=now_ms))
        if task.key is not None:
            snapshot.note_added(decision, lane_of(task))
        added.append(decision)
        items.append(decision)
    return added, Submitted(items)


def take_inbox(snapshot: Snapshot) -> tuple[list[Decision], Taken]:
    """Accept what came with others' transactions; what cannot be accepted fails at once."""
    items, snapshot.inbox = snapshot.inbox, []
    added, submitted = submit(snapshot, SubmitTasks([item.task for item in items]))
    decisions: list[Decision] = [*added]
    refused: list[tuple[str | None, TaskError]] = []
    for item, outcome in zip(items, submitted.items, strict=True):
        if item.error is not None and isinstance(outcome, AddTask):
            refused.append((item.task.key, item.error))
            decisions.append(_failed(snapshot, outcome, item.error))
    return decisions, Taken(
        count=len(items), duplicates=len(items) - len(added), refused=tuple(refused)
    )


def _failed(snapshot: Snapshot, added: AddTask, error: TaskError) -> FinishTask:
    end = FinishTask(
        id=added.id,
        was=TaskState.QUEUED,
        state=TaskState.FAILED,
        fence=0,
        attempt=0,
        finished_at_ms=snapshot.now_ms,
        error=error,
        queue=added.task.queue,
    )
    snapshot.tasks[added.id] = added_task(added, lane_of(added.task))
    snapshot.note_finished(end)
    return end


def check_lanes(known: int, wanted: int, *, most: int) -> None:
    """Routing keeps one lane a (queue, name, requires); endless new ones would be a leak."""
    if known + wanted > most:
        raise TooMany(
            f"more than {most} distinct sets of queue, task name and required capabilities",
            limit="max_lanes",
        )
