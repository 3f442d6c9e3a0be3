"""Jobs on the wire: tasks by their other name."""

from typing import Literal

from rota.core.tasks.model import Name, TaskError
from rota.messages.base import Answer, Request
from rota.messages.tasks import TaskView


class JobStart(Request, frozen=True, kw_only=True):
    worker_id: Name | None = None  # who starts it; a repeated call gets the same answer


class JobFailure(Request, frozen=True, kw_only=True):
    error: TaskError | str = "failed"


class JobEvent(Answer, frozen=True, kw_only=True):
    event_type: str
    from_state: str | None
    to_state: str
    created_at_ms: int


class JobView(TaskView, frozen=True, kw_only=True):
    fence: int
    events: list[JobEvent] = []


class JobAnswer(Answer, frozen=True, kw_only=True):
    success: bool
    job: JobView


class JobRefusal(Answer, frozen=True, kw_only=True):
    success: Literal[False] = False
    error: str
    code: str
