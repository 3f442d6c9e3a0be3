"""Sessions and tasks: the names that sessions give to tasks, and the notifications they get.

A session chooses the name of a task. The name is valid inside one coordinator address, which is one
queue. It is stored as the task's idempotency key, in the key space of sessions (`keys.KeySpace`).
So the same name never runs twice, and the task shows the name that its session gave it.
"""

from msgspec import Struct

from rota.core.ids import TaskId, to_text
from rota.core.replies import CommandBase, Done
from rota.core.tasks.keys import SESSION_PREFIX
from rota.core.tasks.model import TaskRecord


class ClearNotifications(CommandBase[Done], frozen=True, tag="ClearNews"):
    """Delete the notifications that sessions have received."""

    told: tuple["SessionNotification", ...]


class SessionNotification(Struct, frozen=True):
    """The end of a task, stored for a session until the session has received it."""

    seq: int  # rises; the order of delivery
    session_id: str
    task_id: TaskId


def key_of(queue: str, name: str) -> str:
    """Return the idempotency key of a task that a session has named."""
    return f"{SESSION_PREFIX}{queue}:{name}"


def name_of(task: TaskRecord) -> str:
    """Return the name of a task for sessions: the name a session gave it, or else its id.

    Callers' keys are never stored with this prefix, so no caller can give a task a session's name.
    """
    prefix = key_of(task.lane.queue, "")
    if task.key is not None and task.key.startswith(prefix):
        return task.key.removeprefix(prefix)
    return to_text(task.id)


def pin_of(worker_id: str) -> str:
    """Return the capability that only this worker has, so that a task can require this worker."""
    return f"worker:{worker_id}"
