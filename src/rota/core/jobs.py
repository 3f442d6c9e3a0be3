"""What may a caller do that gets task ids elsewhere? Start, complete and fail them as jobs.

Such a caller is no registered worker: it holds a lease under its own name, for a set time.
"""

import msgspec

from rota.core import attempts
from rota.core.decisions import Decision, FinishTask, LeaseTask
from rota.core.events import CompleteJob, FailJob, StartJob
from rota.core.ids import TaskId, to_text
from rota.core.replies import JobChanged
from rota.core.snapshot import Snapshot
from rota.core.tasks import JOB_INCARNATION, Ending, Lease, Task, TaskState, shortened
from rota.errors import IllegalState, ResultConflict, StaleLease, TaskNotFound


def _known(snapshot: Snapshot, task_id: TaskId) -> Task:
    task = snapshot.tasks.get(task_id)
    if task is None:
        raise TaskNotFound(to_text(task_id))
    return task


def start(snapshot: Snapshot, event: StartJob) -> tuple[list[Decision], JobChanged]:
    """Claim that task; the same caller again gets the same answer."""
    task = _known(snapshot, event.task_id)
    text = to_text(task.id)
    if task.state is TaskState.RUNNING:
        if task.incarnation == JOB_INCARNATION and task.worker_id == event.holder:
            return [], JobChanged(task)
        raise StaleLease(text, f"task {text!r} is leased to {task.worker_id!r}")
    if task.state not in {TaskState.QUEUED, TaskState.SCHEDULED}:
        raise IllegalState(f"task {text!r} is {task.state}, so it cannot start", state=task.state)

    time_ms = task.options.timeout_ms or snapshot.rules.job_lease_ms
    lease = LeaseTask(
        id=task.id,
        was=task.state,
        incarnation=JOB_INCARNATION,
        fence=task.fence + 1,
        attempt=task.attempt + 1,
        started_at_ms=snapshot.now_ms,
        deadline_ms=snapshot.now_ms + time_ms,
        holder=event.holder,
    )
    snapshot.note_leased(lease, task.lane)
    started = msgspec.structs.replace(
        task,
        state=TaskState.RUNNING,
        fence=lease.fence,
        attempt=lease.attempt,
        incarnation=JOB_INCARNATION,
        worker_id=event.holder,
        started_at_ms=snapshot.now_ms,
        deadline_ms=lease.deadline_ms,
        due_at_ms=None,
    )
    snapshot.tasks[task.id] = started
    return [lease], JobChanged(started)


def complete(snapshot: Snapshot, event: CompleteJob) -> tuple[list[Decision], JobChanged]:
    """Finish a started job; the same result twice is fine, another is a conflict."""
    task = _known(snapshot, event.task_id)
    result = bytes(event.result)
    if task.state is TaskState.SUCCEEDED:
        if _same(task.result, result):
            return [], JobChanged(task)
        raise ResultConflict(f"task {to_text(task.id)!r} has succeeded with another result")
    lease = _job_lease(snapshot, task)
    finish = FinishTask(
        id=task.id,
        was=TaskState.RUNNING,
        state=TaskState.SUCCEEDED,
        fence=lease.fence,
        attempt=lease.attempt,
        finished_at_ms=snapshot.now_ms,
        worker_id=lease.holder,
        result=result,
        queue=lease.lane.queue,
    )
    snapshot.note_finished(finish)
    return [finish], JobChanged(snapshot.tasks[task.id])


def _same(before: bytes | None, after: bytes) -> bool:
    """Whether two results say the same, whatever their spacing and the order of their fields."""
    return _canonical(before or b"null") == _canonical(after)


def _canonical(text: bytes) -> bytes:
    return msgspec.json.encode(msgspec.json.decode(text), order="sorted")


def fail(snapshot: Snapshot, event: FailJob) -> tuple[list[Decision], JobChanged]:
    """End a started job's attempt; starting it again is the retry."""
    task = _known(snapshot, event.task_id)
    if _failed_so(task, event):
        return [], JobChanged(task)
    lease = _job_lease(snapshot, task)
    decision = attempts.fail(snapshot, lease, Ending.FAILED, event.error, worker_id=lease.holder)
    return [decision], JobChanged(snapshot.tasks[task.id])


def _failed_so(task: Task, event: FailJob) -> bool:
    """Whether the newest attempt has ended with just this error: a repeated call."""
    error = shortened(event.error)
    if task.state is TaskState.FAILED:
        return task.error == error
    waits = task.state in {TaskState.SCHEDULED, TaskState.QUEUED}
    return waits and bool(task.log) and task.log[-1].error == error


def _job_lease(snapshot: Snapshot, task: Task) -> Lease:
    lease = snapshot.leases.get(task.id)
    if lease is None:
        raise IllegalState(
            f"task {to_text(task.id)!r} is {task.state}, not started", state=task.state
        )
    if lease.incarnation != JOB_INCARNATION:
        raise StaleLease(to_text(task.id), f"task {to_text(task.id)!r} is leased to a worker")
    return lease
