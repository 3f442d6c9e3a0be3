"""Jobs: tasks that a caller starts, completes and fails by id, without being a worker.

The caller holds a lease under its own name, for a set time. Only the binding that started a job may
complete or fail it; a token that is bound to a worker id must be bound to that of the holder.
"""

import msgspec

from rota.core import access
from rota.core.access import Caller
from rota.core.commands import CompleteJob, FailJob, StartJob
from rota.core.context import Context
from rota.core.decisions import Decision, LeaseTask
from rota.core.ids import TaskId, to_text
from rota.core.replies import JobChanged
from rota.core.snapshot import Snapshot
from rota.core.tasks import attempts
from rota.core.tasks.model import JOB_INCARNATION, Ending, Lease, TaskRecord, TaskState, shortened
from rota.errors import Forbidden, IllegalState, KeyBusy, ResultConflict, StaleLease, TaskNotFound


def _known(snapshot: Snapshot, task_id: TaskId) -> TaskRecord:
    task = snapshot.tasks.get(task_id)
    if task is None:
        raise TaskNotFound(to_text(task_id))
    return task


def start(
    snapshot: Snapshot, command: StartJob, context: Context
) -> tuple[list[Decision], JobChanged]:
    """Lease a task to the caller. The same caller again gets the same answer."""
    task = _known(snapshot, command.task_id)
    text = to_text(task.id)
    if task.state is TaskState.RUNNING:
        if task.incarnation == JOB_INCARNATION and task.worker_id == command.holder:
            check_starter(_job_lease(snapshot, task), command.by)
            return [], JobChanged(task)
        raise StaleLease(text, f"task {text!r} is leased to {task.worker_id!r}")
    if not task.state.may_become(TaskState.RUNNING):
        raise IllegalState(f"task {text!r} is {task.state}, so it cannot start", state=task.state)
    _take_slots(snapshot, task)

    time_ms = task.options.timeout_ms or context.rules.job_lease_ms
    lease = LeaseTask(
        id=task.id,
        was=task.state,
        incarnation=JOB_INCARNATION,
        fence=task.fence + 1,
        attempt=task.attempt + 1,
        started_at_ms=context.now_ms,
        deadline_ms=context.now_ms + time_ms,
        holder=command.holder,
        owner=access.owner_of(command.by),
    )
    snapshot.note_leased(lease, task.lane)
    started = msgspec.structs.replace(
        task,
        state=task.state.to(TaskState.RUNNING),
        fence=lease.fence,
        attempt=lease.attempt,
        incarnation=JOB_INCARNATION,
        worker_id=command.holder,
        started_at_ms=context.now_ms,
        deadline_ms=lease.deadline_ms,
        due_at_ms=None,
    )
    snapshot.tasks[task.id] = started
    return [lease], JobChanged(started)


def _take_slots(snapshot: Snapshot, task: TaskRecord) -> None:
    """Take the slots of a job's limits. A job that finds one of them full does not start."""
    keys = snapshot.job_slots.get(task.id, ())
    for key in keys:
        if snapshot.slot_room[key] <= 0:
            raise KeyBusy(
                f"task {to_text(task.id)!r} cannot start: no slot of the limit {key!r} is free",
                key=key,
                holder=None,
            )
    for key in keys:
        snapshot.slot_room[key] -= 1


def complete(
    snapshot: Snapshot, command: CompleteJob, context: Context
) -> tuple[list[Decision], JobChanged]:
    """Finish a started job. The same result again is accepted, another is a conflict."""
    task = _known(snapshot, command.task_id)
    result = bytes(command.result)
    if task.state is TaskState.SUCCEEDED:
        _check_holder(command.by, task.worker_id)
        if _same(task.result, result):
            return [], JobChanged(task)
        raise ResultConflict(f"task {to_text(task.id)!r} has succeeded with another result")
    lease = _own_lease(snapshot, task, command.by)
    finish = attempts.end_lease(
        snapshot, lease, TaskState.SUCCEEDED, context, worker_id=lease.holder, result=result
    )
    return [finish], JobChanged(snapshot.tasks[task.id])


def _same(before: bytes | None, after: bytes) -> bool:
    """Whether two results are the same JSON value, whatever their spacing and field order."""
    return _canonical(before or b"null") == _canonical(after)


def _canonical(text: bytes) -> bytes:
    return msgspec.json.encode(msgspec.json.decode(text), order="sorted")


def fail(
    snapshot: Snapshot, command: FailJob, context: Context
) -> tuple[list[Decision], JobChanged]:
    """End the attempt of a started job. The caller retries it by starting it again."""
    task = _known(snapshot, command.task_id)
    if _is_repeated(task, command):
        _check_holder(command.by, _last_holder(task))
        return [], JobChanged(task)
    lease = _own_lease(snapshot, task, command.by)
    decision = attempts.fail(
        snapshot, lease, Ending.FAILED, command.error, context, worker_id=lease.holder
    )
    return [decision], JobChanged(snapshot.tasks[task.id])


def _is_repeated(task: TaskRecord, command: FailJob) -> bool:
    """Whether the newest attempt has ended with exactly this error."""
    error = shortened(command.error)
    if task.state is TaskState.FAILED:
        return task.error == error
    waits = task.state in {TaskState.SCHEDULED, TaskState.QUEUED}
    return waits and bool(task.log) and task.log[-1].error == error


def _last_holder(task: TaskRecord) -> str | None:
    if task.worker_id is None and task.log:
        return task.log[-1].worker_id
    return task.worker_id


def _job_lease(snapshot: Snapshot, task: TaskRecord) -> Lease:
    lease = snapshot.leases.get(task.id)
    if lease is None:
        raise IllegalState(
            f"task {to_text(task.id)!r} is {task.state}, not started", state=task.state
        )
    if lease.incarnation != JOB_INCARNATION:
        raise StaleLease(to_text(task.id), f"task {to_text(task.id)!r} is leased to a worker")
    return lease


def _own_lease(snapshot: Snapshot, task: TaskRecord, by: Caller | None) -> Lease:
    """The lease of a started job, if the caller holds it."""
    lease = _job_lease(snapshot, task)
    _check_holder(by, lease.holder)
    check_starter(lease, by)
    return lease


def _check_holder(by: Caller | None, holder: str | None) -> None:
    """Refuse a caller that is bound to another worker id than the one that started the job."""
    if by is not None and by.worker_id not in {None, holder}:
        raise Forbidden(
            f"token {by.name!r} is bound to worker {by.worker_id!r}, which does not hold this job",
            worker_id=by.worker_id,
        )


def check_starter(lease: Lease, by: Caller | None) -> None:
    """Refuse a caller of another binding than the one that started the job."""
    if lease.owner is not None and not access.is_owner(by, lease.owner):
        text = to_text(lease.id)
        raise Forbidden(f"task {text!r} was started with a token of another binding", task_id=text)
