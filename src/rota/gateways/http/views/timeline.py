"""The timeline of a task, derived from its row and its attempt log.

A task stores its times and a log of ended attempts, not its events. The events are derived from
these. Each event starts where the one before it ended, and every step is one that the state machine
allows.
"""

from rota.core.tasks.model import FINISHED, TaskRecord, TaskState
from rota.messages import JobEvent

FINAL_EVENTS = {
    TaskState.SUCCEEDED: "completed",
    TaskState.FAILED: "failed",
    TaskState.CANCELLED: "cancelled",
}


def events_of(task: TaskRecord) -> list[JobEvent]:
    timeline = _Timeline()
    is_delayed = task.options.delay_ms or task.options.run_at_ms is not None
    first = TaskState.SCHEDULED if is_delayed else TaskState.QUEUED
    timeline.add("created", first, task.created_at_ms)
    for line in task.log:
        if line.started_at_ms is not None:  # None: its time to start was over before it did
            timeline.start(line.started_at_ms)
        timeline.add(line.ending.value, line.next_state, line.ended_at_ms)

    # Every lease has a higher fence, so a fence beyond the log's is a new attempt.
    logged_fence = task.log[-1].fence if task.log else 0
    if task.fence > logged_fence and (task.state is TaskState.RUNNING or task.state in FINISHED):
        timeline.start(task.started_at_ms)
    if task.state in FINISHED:
        if timeline.state in FINISHED:  # retried, and ended before a worker took it
            timeline.queue()
        timeline.add(FINAL_EVENTS[task.state], task.state, task.finished_at_ms)
    elif task.state is TaskState.QUEUED:
        timeline.queue()
    return timeline.events


class _Timeline:
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
