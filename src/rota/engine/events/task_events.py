"""Public events about tasks: single ones for a few tasks, one per queue for many.

Theory of operation. Nothing is loaded for the sake of an event: it holds only what the batch knows
anyway. When up to `MAX_SINGLE_EVENTS` tasks of a queue change alike, each has its own event. More
of them share one event with a count. So a commit of a thousand tasks costs hardly more than one of
ten. A task that failed, and a task that is retried because it failed, always has its own event.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from rota.core.decisions import AddTask, FinishTask, LeaseTask, RequeueTask, ReviveTask
from rota.core.events import Event, error_in_short
from rota.core.ids import TaskId, to_text
from rota.core.limits import MAX_SINGLE_EVENTS
from rota.core.tasks.model import JOB_INCARNATION, Ending, Lane, TaskRecord, TaskState
from rota.engine.commit.batch import Batch

T = TypeVar("T", AddTask, FinishTask, RequeueTask, ReviveTask, TaskRecord)
Data = dict[str, Any]

RETRYING = "task-retrying"
RETRIED = "retried"  # the reason when a caller, not the end of an attempt, causes the retry


def submitted(batch: Batch, added: Sequence[AddTask]) -> list[Event]:
    if len(added) <= MAX_SINGLE_EVENTS:
        return [_submitted_one(one) for one in added]
    if len(batch.counts.submitted) == 1:
        return [_of_many("task-submitted", added[0].task.queue, added)]
    queues = [one.task.queue for one in added]
    return _together("task-submitted", added, queues, _submitted_one)


def _submitted_one(one: AddTask) -> Event:
    data: Data = {"queue": one.task.queue, "name": one.task.name}
    if one.due_at_ms is not None:
        data["due_at_ms"] = one.due_at_ms
    return Event(type="task-submitted", subject=to_text(one.id), data=data)


def started(batch: Batch, leases: Sequence[LeaseTask]) -> list[Event]:
    granted = batch.granted
    if len(leases) <= MAX_SINGLE_EVENTS:
        events = [_started_one(task, worker_id) for worker_id, tasks in granted for task in tasks]
        jobs = _jobs(batch, leases, known=len(events))
        return events + [_started_one(task, task.worker_id) for task in jobs]
    tasks = [task for _, tasks in granted for task in tasks]
    tasks += _jobs(batch, leases, known=len(tasks))
    workers: dict[TaskId, str] = {}

    def single(task: TaskRecord) -> Event:
        if not workers:  # built only when needed: an event for many tasks names no worker
            workers.update({one.id: worker_id for worker_id, given in granted for one in given})
        return _started_one(task, workers.get(task.id, task.worker_id))

    return _together("task-started", tasks, [task.lane.queue for task in tasks], single)


def _jobs(batch: Batch, leases: Sequence[LeaseTask], *, known: int) -> list[TaskRecord]:
    """Return the tasks started as jobs, not leased to workers; the snapshot has them whole."""
    if known == len(leases):
        return []
    tasks = batch.snapshot.tasks
    return [tasks[one.id] for one in leases if one.incarnation == JOB_INCARNATION]


def _started_one(task: TaskRecord, worker_id: str | None) -> Event:
    lane = task.lane
    data: Data = {"queue": lane.queue, "name": lane.name, "attempt": task.attempt}
    if worker_id is not None:
        data["worker_id"] = worker_id
    if task.run is not None:
        data["run_id"] = to_text(task.run)
    return Event(type="task-started", subject=to_text(task.id), data=data)


def finished(batch: Batch, ended: Sequence[FinishTask]) -> list[Event]:
    if len(ended) <= MAX_SINGLE_EVENTS:
        return [_finished_one(batch, one) for one in ended]
    if len(batch.counts.finished) == 1 and ended[0].state is not TaskState.FAILED:
        return [_of_many(ENDS[ended[0].state], ended[0].queue, ended)]
    events: list[Event] = []
    for state, kind in ENDS.items():
        if alike := [one for one in ended if one.state is state]:
            single = partial(_finished_one, batch)
            if state is TaskState.FAILED:
                events += map(single, alike)
            else:
                events += _together(kind, alike, [one.queue for one in alike], single)
    return events


ENDS = {
    TaskState.SUCCEEDED: "task-succeeded",
    TaskState.FAILED: "task-failed",
    TaskState.CANCELLED: "task-cancelled",
}


def _finished_one(batch: Batch, one: FinishTask) -> Event:
    data = _data(batch.lane(one.id), one.worker_id, one.attempt, queue=one.queue)
    if one.error is not None:
        data["error"] = error_in_short(one.error)
    return Event(type=ENDS[one.state], subject=to_text(one.id), data=data)


def requeued(batch: Batch, ended: Sequence[RequeueTask]) -> list[Event]:
    single = partial(_requeued_one, batch)
    events = [single(one) for one in ended if one.ended.error is not None]
    for reason in Ending:
        alike = [one for one in ended if one.ended.error is None and one.ended.ending is reason]
        if alike:
            events += _together(RETRYING, alike, _queues(batch, alike), single, reason=reason)
    return events


def _requeued_one(batch: Batch, one: RequeueTask) -> Event:
    ended = one.ended
    data = _data(batch.lane(one.id), ended.worker_id, ended.attempt)
    data["reason"] = ended.ending
    if ended.error is not None:
        data["error"] = error_in_short(ended.error)
    if one.due_at_ms is not None:
        data["due_at_ms"] = one.due_at_ms
    return Event(type=RETRYING, subject=to_text(one.id), data=data)


def revived(batch: Batch, sent: Sequence[ReviveTask]) -> list[Event]:
    single = partial(_revived_one, batch)
    return _together(RETRYING, sent, _queues(batch, sent), single, reason=RETRIED)


def _revived_one(batch: Batch, one: ReviveTask) -> Event:
    data = _data(batch.lane(one.id), None, 0)
    return Event(type=RETRYING, subject=to_text(one.id), data={**data, "reason": RETRIED})


def _queues(batch: Batch, ones: Sequence[RequeueTask | ReviveTask]) -> list[str]:
    lanes = [batch.lane(one.id) for one in ones]
    return ["" if lane is None else lane.queue for lane in lanes]


def _data(lane: Lane | None, worker_id: str | None, attempt: int, *, queue: str = "") -> Data:
    data: Data = {}
    if lane is not None:
        data["queue"], data["name"] = lane.queue, lane.name
    elif queue:
        data["queue"] = queue
    if worker_id is not None:
        data["worker_id"] = worker_id
    if attempt:
        data["attempt"] = attempt
    return data


def _together(
    kind: str,
    ones: Sequence[T],
    queues: Sequence[str],
    single: Callable[[T], Event],
    **more: str,
) -> list[Event]:
    """Make one event for each queue with more than a few tasks, else one event for each task."""
    if len(ones) <= MAX_SINGLE_EVENTS:
        return [single(one) for one in ones]
    events: list[Event] = []
    for queue, alike in _by_queue(ones, queues).items():
        if len(alike) <= MAX_SINGLE_EVENTS:
            events += [single(one) for one in alike]
        else:
            events.append(_of_many(kind, queue, alike, **more))
    return events


def _of_many(kind: str, queue: str, alike: Sequence[T], **more: str) -> Event:
    data = {
        "queue": queue,
        "count": len(alike),
        "first_id": to_text(alike[0].id),
        "last_id": to_text(alike[-1].id),
        **more,
    }
    return Event(type=kind, subject=queue, data=data)


def _by_queue(ones: Sequence[T], queues: Sequence[str]) -> dict[str, Sequence[T]]:
    if queues.count(queues[0]) == len(queues):  # nearly always, and a fast check
        return {queues[0]: ones}
    found: dict[str, list[T]] = {}
    for queue, one in zip(queues, ones, strict=True):
        found.setdefault(queue, []).append(one)
    return {**found}
