"""What happened to a task, step by step?

A task keeps its times and a log of ended attempts, not its events; they are told from these. Each
event starts where the one before it ended, and every step is one the state machine allows.
"""

from rota.core.tasks import FINISHED, Task, TaskState
from rota.messages import JobEvent

FINAL_EVENTS = {
    TaskState.SUCCEEDED: "completed",
    TaskState.FAILED: "failed",
    TaskState.CANCELLED: "cancelled",
}


def events_of(task: Task) -> list[JobEvent]:
    story = _Story()
    is_delayed = task.options.delay_ms or task.options.run_at_ms is not None
    first = TaskState.SCHEDULED if is_delayed else TaskState.QUEUED
    story.add("created", first, task.created_at_ms)
    for line in task.log:
        if line.started_at_ms is not None:  # None: its time to start was over before it did
            story.start(line.started_at_ms)
        story.add(line.ending.value, line.next_state, line.ended_at_ms)

    # Every lease has a higher fence, so a fence beyond the log's is an attempt not told of yet.
    logged_fence = task.log[-1].fence if task.log else 0
    if task.fence > logged_fence and (task.state is TaskState.RUNNING or task.state in FINISHED):
        story.start(task.started_at_ms)
    if task.state in FINISHED:
        if story.state in FINISHED:  # sent round again, and ended before anybody took it
            story.queue()
        story.add(FINAL_EVENTS[task.state], task.state, task.finished_at_ms)
    elif task.state is TaskState.QUEUED:
        story.queue()
    return story.events


class _Story:
    def __init__(self) -> None:
        self.events: list[JobEvent] = []
        self.state: TaskState | None = None
        self.at_ms = 0

    def add(self, event_type: str, state: TaskState, at_ms: int | None) -> None:
        # A clock set back must not turn the order of events round.
        self.at_ms = max(self.at_ms, at_ms or 0)
        event = JobEvent(
            event_type=event_type,
            from_state=self.state,
            to_state=state,
            created_at_ms=self.at_ms,
        )
        self.events.append(event)
        self.state = state

    def start(self, at_ms: int | None) -> None:
        self.queue()
        self.add("started", TaskState.RUNNING, at_ms)

    def queue(self) -> None:
        """Bring a task that waited or had ended back into its queue, unless it is there."""
        if self.state in FINISHED:
            self.add("retried", TaskState.QUEUED, None)
        elif self.state is TaskState.SCHEDULED:
            self.add("queued", TaskState.QUEUED, None)
