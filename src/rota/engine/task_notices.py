"""What is the outside told of tasks? Singly of a few, and of many in one go, queue by queue.

Theory of operation. Nothing is loaded for the sake of a notice: it says what the batch knows
anyway. Up to a handful of tasks of a queue that fare alike are told of singly, more of them by one
notice with a count, so that a commit of a thousand tasks costs hardly more than one of ten. What
failed, and what is tried again because it did, is always told of by itself.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from rota.core.decisions import AddTask, FinishTask, LeaseTask, RequeueTask, ReviveTask
from rota.core.ids import TaskId, to_text
from rota.core.limits import MAX_SINGLE_EVENTS
from rota.core.notices import Notice, error_in_short
from rota.core.tasks import JOB_INCARNATION, Ending, Lane, Task, TaskState
from rota.engine.happened import Happened

T = TypeVar("T", AddTask, FinishTask, RequeueTask, ReviveTask, Task)
Data = dict[str, Any]

RETRYING = "task-retrying"
RETRIED = "retried"  # the reason of those that did not end by themselves


def submitted(happened: Happened, added: Sequence[AddTask]) -> list[Notice]:
    if len(added) <= MAX_SINGLE_EVENTS:
        return [_submitted_one(one) for one in added]
    if len(happened.tally.submitted) == 1:
        return [_of_many("task-submitted", added[0].task.queue, added)]
    queues = [one.task.queue for one in added]
    return _together("task-submitted", added, queues, _submitted_one)


def _submitted_one(one: AddTask) -> Notice:
    data: Data = {"queue": one.task.queue, "name": one.task.name}
    if one.due_at_ms is not None:
        data["due_at_ms"] = one.due_at_ms
    return Notice(type="task-submitted", subject=to_text(one.id), data=data)


def started(happened: Happened, leases: Sequence[LeaseTask]) -> list[Notice]:
    granted = happened.granted
    if len(leases) <= MAX_SINGLE_EVENTS:
        notices = [_started_one(task, worker_id) for worker_id, tasks in granted for task in tasks]
        jobs = _jobs(happened, leases, known=len(notices))
        return notices + [_started_one(task, task.worker_id) for task in jobs]
    tasks = [task for _, tasks in granted for task in tasks]
    tasks += _jobs(happened, leases, known=len(tasks))
    workers: dict[TaskId, str] = {}

    def single(task: Task) -> Notice:
        if not workers:  # only now: of many together it is not said
            workers.update({one.id: worker_id for worker_id, given in granted for one in given})
        return _started_one(task, workers.get(task.id, task.worker_id))

    return _together("task-started", tasks, [task.lane.queue for task in tasks], single)


def _jobs(happened: Happened, leases: Sequence[LeaseTask], *, known: int) -> list[Task]:
    """Those that were not given to workers but started as jobs: they are known whole."""
    if known == len(leases):
        return []
    tasks = happened.snapshot.tasks
    return [tasks[one.id] for one in leases if one.incarnation == JOB_INCARNATION]


def _started_one(task: Task, worker_id: str | None) -> Notice:
    lane = task.lane
    data: Data = {"queue": lane.queue, "name": lane.name, "attempt": task.attempt}
    if worker_id is not None:
        data["worker_id"] = worker_id
    if task.run is not None:
        data["run_id"] = to_text(task.run)
    return Notice(type="task-started", subject=to_text(task.id), data=data)


def finished(happened: Happened, ended: Sequence[FinishTask]) -> list[Notice]:
    if len(ended) <= MAX_SINGLE_EVENTS:
        return [_finished_one(happened, one) for one in ended]
    if len(happened.tally.finished) == 1 and ended[0].state is not TaskState.FAILED:
        return [_of_many(ENDS[ended[0].state], ended[0].queue, ended)]
    notices: list[Notice] = []
    for state, kind in ENDS.items():
        if alike := [one for one in ended if one.state is state]:
            single = partial(_finished_one, happened)
            if state is TaskState.FAILED:
                notices += map(single, alike)
            else:
                notices += _together(kind, alike, [one.queue for one in alike], single)
    return notices


ENDS = {
    TaskState.SUCCEEDED: "task-succeeded",
    TaskState.FAILED: "task-failed",
    TaskState.CANCELLED: "task-cancelled",
}


def _finished_one(happened: Happened, one: FinishTask) -> Notice:
    data = _data(happened.lane(one.id), one.worker_id, one.attempt, queue=one.queue)
    if one.error is not None:
        data["error"] = error_in_short(one.error)
    return Notice(type=ENDS[one.state], subject=to_text(one.id), data=data)


def requeued(happened: Happened, ended: Sequence[RequeueTask]) -> list[Notice]:
    single = partial(_requeued_one, happened)
    notices = [single(one) for one in ended if one.ended.error is not None]
    for reason in Ending:
        alike = [one for one in ended if one.ended.error is None and one.ended.ending is reason]
        if alike:
            notices += _together(RETRYING, alike, _queues(happened, alike), single, reason=reason)
    return notices


def _requeued_one(happened: Happened, one: RequeueTask) -> Notice:
    ended = one.ended
    data = _data(happened.lane(one.id), ended.worker_id, ended.attempt)
    data["reason"] = ended.ending
    if ended.error is not None:
        data["error"] = error_in_short(ended.error)
    if one.due_at_ms is not None:
        data["due_at_ms"] = one.due_at_ms
    return Notice(type=RETRYING, subject=to_text(one.id), data=data)


def revived(happened: Happened, sent: Sequence[ReviveTask]) -> list[Notice]:
    single = partial(_revived_one, happened)
    return _together(RETRYING, sent, _queues(happened, sent), single, reason=RETRIED)


def _revived_one(happened: Happened, one: ReviveTask) -> Notice:
    data = _data(happened.lane(one.id), None, 0)
    return Notice(type=RETRYING, subject=to_text(one.id), data={**data, "reason": RETRIED})


def _queues(happened: Happened, ones: Sequence[RequeueTask | ReviveTask]) -> list[str]:
    lanes = [happened.lane(one.id) for one in ones]
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
    single: Callable[[T], Notice],
    **more: str,
) -> list[Notice]:
    """One notice for each queue that has more than a handful, and one for each of the others."""
    if len(ones) <= MAX_SINGLE_EVENTS:
        return [single(one) for one in ones]
    notices: list[Notice] = []
    for queue, alike in _by_queue(ones, queues).items():
        if len(alike) <= MAX_SINGLE_EVENTS:
            notices += [single(one) for one in alike]
        else:
            notices.append(_of_many(kind, queue, alike, **more))
    return notices


def _of_many(kind: str, queue: str, alike: Sequence[T], **more: str) -> Notice:
    data = {
        "queue": queue,
        "count": len(alike),
        "first_id": to_text(alike[0].id),
        "last_id": to_text(alike[-1].id),
        **more,
    }
    return Notice(type=kind, subject=queue, data=data)


def _by_queue(ones: Sequence[T], queues: Sequence[str]) -> dict[str, Sequence[T]]:
    if queues.count(queues[0]) == len(queues):  # nearly always, and quickly seen
        return {queues[0]: ones}
    found: dict[str, list[T]] = {}
    for queue, one in zip(queues, ones, strict=True):
        found.setdefault(queue, []).append(one)
    return {**found}
