"""What does a submission lead to? New tasks, or the ones that have their keys already."""

from rota.core.decisions import AddTask
from rota.core.events import SubmitTasks
from rota.core.ids import TaskId, next_ids
from rota.core.replies import Submitted
from rota.core.snapshot import Snapshot
from rota.core.tasks import Task, due_at_ms, lane_of
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


def check_lanes(known: int, wanted: int, *, most: int) -> None:
    """Routing keeps one lane a (queue, name, requires); endless new ones would be a leak."""
    if known + wanted > most:
        raise TooMany(
            f"more than {most} distinct sets of queue, task name and required capabilities",
            limit="max_lanes",
        )
