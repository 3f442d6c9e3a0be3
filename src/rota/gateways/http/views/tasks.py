"""Views of tasks and leases, and the timeline of a task.

Views are made by the ten thousand: plain construction, one call each, and nothing computed that the
caller did not ask for.

A task stores its times and a log of ended attempts, not its events. The timeline derives the events
from these. Each event starts where the one before it ended, and every step is one that the state
machine allows.
"""

import msgspec
from msgspec import Raw

from rota.core.access import Caller
from rota.core.decisions import AddTask
from rota.core.dispatch.wait_reasons import NO_WORKERS, Explanation, no_worker_for_queue
from rota.core.ids import to_text
from rota.core.tasks.keys import shown_key
from rota.core.tasks.model import (
    DEFAULT_BACKOFF,
    FINISHED,
    Labels,
    TaskRecord,
    TaskState,
)
from rota.messages import AcknowledgementView, JobEvent, LeaseView, TaskView
from rota.messages.dashboard import WhyView

NO_LABELS: Labels = {}
QUEUED, SCHEDULED = TaskState.QUEUED, TaskState.SCHEDULED  # looked up once; an enum is slow at it
FINAL_EVENTS = {
    TaskState.SUCCEEDED: "completed",
    TaskState.FAILED: "failed",
    TaskState.CANCELLED: "cancelled",
}


def added_task(item: AddTask, *, duplicate: bool = False) -> TaskView:
    """A task that was just accepted."""
    task = item.task
    # Beyond fifteen keywords CPython builds a dictionary for the call, at eight times the cost;
    # so what most tasks leave alone is added in a second step, to those that have it.
    view = TaskView(
        id=to_text(item.id),
        name=task.name,
        state=QUEUED if item.due_at_ms is None else SCHEDULED,
        queue=task.queue,
        priority=task.priority,
        payload=task.payload,
        requires=task.requires,
        attempt=0,
        max_attempts=task.max_attempts,
        timeout_ms=task.timeout_ms,
        backoff=task.backoff or DEFAULT_BACKOFF,
        key=None if task.key is None else shown_key(task.key),
        labels=task.labels or NO_LABELS,
        created_at_ms=item.created_at_ms,
        duplicate=duplicate,
    )
    if task.concurrency is not None or task.rate is not None or task.fair_key is not None:
        view = msgspec.structs.replace(
            view, concurrency=task.concurrency, rate=task.rate, fair_key=task.fair_key
        )
    if task.headers is not None:
        view = msgspec.structs.replace(view, headers=task.headers)
    if (
        item.due_at_ms is None
        and task.run_at_ms is None
        and task.start_within_ms is None
        and task.unique is None
        and task.delay_ms is None
        and task.on_expiry == "fail"
    ):
        return view
    return msgspec.structs.replace(
        view,
        delay_ms=task.delay_ms,
        run_at_ms=task.run_at_ms if item.due_at_ms is None else item.due_at_ms,
        start_within_ms=task.start_within_ms,
        on_expiry=task.on_expiry,
        unique=task.unique,
        debounce=task.debounce,
    )


def task_view(
    task: TaskRecord, *, position: int | None = None, duplicate: bool = False
) -> TaskView:
    options = task.options
    return TaskView(
        id=to_text(task.id),
        name=task.lane.name,
        state=task.state,
        queue=task.lane.queue,
        priority=task.priority,
        payload=Raw(task.payload),
        requires=task.lane.requires,
        attempt=task.attempt,
        max_attempts=options.max_attempts,
        worker_id=task.worker_id,
        result=None if task.result is None else Raw(task.result),
        # What an earlier attempt failed of is of interest until the task has ended.
        error=task.error if task.state in FINISHED else task.last_error,
        progress=None if task.progress is None else Raw(task.progress),
        partial=None if task.partial is None else Raw(task.partial),
        position=position,
        delay_ms=options.delay_ms,
        run_at_ms=options.run_at_ms if task.due_at_ms is None else task.due_at_ms,
        timeout_ms=options.timeout_ms,
        start_within_ms=options.start_within_ms,
        backoff=options.backoff or DEFAULT_BACKOFF,
        key=None if task.key is None else shown_key(task.key),
        labels=options.labels or NO_LABELS,
        concurrency=options.concurrency,
        rate=options.rate,
        fair_key=options.fair_key,
        on_expiry=options.on_expiry,
        unique=options.unique,
        debounce=options.debounce,
        headers=options.headers,
        created_at_ms=task.created_at_ms,
        started_at_ms=task.started_at_ms,
        finished_at_ms=task.finished_at_ms,
        acknowledged=_acknowledgement(task),
        run_id=None if task.run is None else to_text(task.run),
        token_id=None if task.run is None or task.token is None else token_id(task.run, task.token),
        duplicate=duplicate,
    )


def lease_view(task: TaskRecord) -> LeaseView:
    options = task.options
    return LeaseView(
        task_id=to_text(task.id),
        fence=task.fence,
        name=task.lane.name,
        payload=Raw(task.payload),
        attempt=task.attempt,
        max_attempts=options.max_attempts,
        deadline_ms=task.deadline_ms,
        timeout_ms=options.timeout_ms,
        queue=task.lane.queue,
        priority=task.priority,
        key=None if task.key is None else shown_key(task.key),
        labels=options.labels,
        created_at_ms=task.created_at_ms,
        run_id=None if task.run is None else to_text(task.run),
        headers=options.headers,
    )


def _acknowledgement(task: TaskRecord) -> AcknowledgementView | None:
    noted = task.acknowledged
    if noted is None:
        return None
    return AcknowledgementView(at_ms=noted.at_ms, by=noted.by, reason=noted.reason)


def token_id(run_id: int, number: int) -> str:
    return f"{to_text(run_id)}.{number}"


def wait_reason_view(explanation: Explanation, queue: str, caller: Caller) -> WhyView:
    """The explanation as the caller may see it.

    It is about workers that serve the queue, with one exception: that there is no worker at all
    would tell a caller bound to queues about those of other tenants.
    """
    if explanation is NO_WORKERS and caller.queues is not None:
        explanation = no_worker_for_queue(queue)
    return msgspec.convert(explanation, WhyView, from_attributes=True)


# --- the timeline -------------------------------------------------------------------------------


def events_of(task: TaskRecord) -> list[JobEvent]:
    timeline = _Timeline()
    options = task.options
    is_delayed = options.delay_ms or options.run_at_ms is not None or options.debounce is not None
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
