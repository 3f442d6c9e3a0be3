"""What has a session to do with tasks? It names them, and hears how those it submitted end.

A session calls a task by a name of its own choice, which counts inside one coordinator address,
that is one queue. The name is kept as the task's idempotency key, so the same name never runs
twice, and whoever sees the task can tell what its session calls it.
"""

from msgspec import Struct

from rota.core.ids import TaskId, to_text
from rota.core.tasks import Task


class ClearNews(Struct, frozen=True, tag=True):
    """Sessions have been told of these ends."""

    told: tuple["News", ...]


class News(Struct, frozen=True):
    """That a task has ended, as it is kept for a session until it has been told."""

    seq: int  # rises; the order of telling
    session_id: str
    task_id: TaskId


def key_of(queue: str, name: str) -> str:
    """The idempotency key of the task that sessions call so."""
    return f"session:{queue}:{name}"


def name_of(task: Task) -> str:
    """What sessions call a task: the name they gave it, or the id it has anyway."""
    prefix = key_of(task.lane.queue, "")
    if task.key is not None and task.key.startswith(prefix):
        return task.key.removeprefix(prefix)
    return to_text(task.id)


def pin_of(worker_id: str) -> str:
    """The capability that only this worker has, so that a task can be meant for it alone."""
    return f"worker:{worker_id}"
