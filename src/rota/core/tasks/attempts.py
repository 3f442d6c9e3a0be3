"""The end of an attempt: by its worker, by time, or with its worker."""

from collections.abc import Iterable

from rota.core import limits
from rota.core.commands import ReportProgress, ReportResults, Result, ReturnLeases
from rota.core.context import Context
from rota.core.decisions import CloseRates, Decision, FinishTask, NoteProgress, RequeueTask
from rota.core.flows.model import listed_rates
from rota.core.ids import TaskId
from rota.core.replies import Done, OutcomeName, Outcomes
from rota.core.snapshot import Snapshot
from rota.core.tasks import model
from rota.core.tasks.model import (
    NULL,
    USED_UP,
    EndedAttempt,
    Ending,
    Lease,
    TaskError,
    TaskRecord,
    TaskState,
    start_by_ms,
    waiting_state,
)


def report(
    snapshot: Snapshot, command: ReportResults, context: Context
) -> tuple[list[Decision], Outcomes]:
    """Accept each result that comes under the current fence; name the reason for the others."""
    decisions: list[Decision] = []
    outcomes: list[OutcomeName] = []
    succeeded: list[FinishTask] = []
    leases, finished, now_ms = snapshot.leases, snapshot.finished, context.now_ms
    worker_id, incarnation = command.worker_id, command.incarnation
    running = TaskState.RUNNING
    ok = running.to(TaskState.SUCCEEDED)
    for result in command.results:
        lease = leases.get(result.task_id)
        if lease is None or lease.fence != result.fence or lease.incarnation != incarnation:
            outcomes.append(_refusal(snapshot, worker_id, result))
            continue
        if result.claim is not None and result.claim in snapshot.stale_claims:
            # The lease stays: the task is not done, and its worker may still fail it.
            outcomes.append("stale_epoch")
            continue
        outcomes.append("accepted")
        if result.ok and result.snooze_ms is None:
            finish = FinishTask(
                lease.id,
                running,
                ok,
                lease.fence,
                lease.attempt,
                now_ms,
                worker_id,
                NULL if result.result is None else result.result,
                None,
                lease.lane.queue,
                result.traceparent,
            )
            # Noted at once, so that a repeated result is seen; the rest is noted in bulk below.
            finished[lease.id] = finish
            del leases[lease.id]
            succeeded.append(finish)
        else:
            decisions.append(_not_finished(snapshot, lease, result, context, worker_id=worker_id))
            if result.rate_limited and result.snooze_ms is not None:
                decisions += _closed_rates(snapshot, lease.id, result.snooze_ms, context)
    snapshot.note_freed(incarnation, len(succeeded))
    snapshot.note_ends(succeeded)
    return [*succeeded, *decisions], Outcomes(outcomes)


def _not_finished(
    snapshot: Snapshot, lease: Lease, result: Result, context: Context, *, worker_id: str
) -> FinishTask | RequeueTask:
    if result.snooze_ms is not None:
        due_at_ms = context.now_ms + result.snooze_ms
        return requeue(
            snapshot, lease, Ending.SNOOZED, context, worker_id=worker_id, due_at_ms=due_at_ms
        )
    return fail(
        snapshot,
        lease,
        Ending.FAILED,
        result.error or TaskError(),
        context,
        worker_id=worker_id,
        retry_in_ms=result.retry_in_ms,
    )


def _closed_rates(
    snapshot: Snapshot, task_id: TaskId, for_ms: int, context: Context
) -> list[Decision]:
    """Close the rates of a task whose handler was told to come back later."""
    keys = tuple(one.key for one in listed_rates(snapshot.tasks[task_id].options.rate))
    until_ms = context.now_ms + min(for_ms, limits.MAX_RATE_CLOSED_MS)
    return [CloseRates(keys, until_ms)] if keys else []


def _refusal(snapshot: Snapshot, worker_id: str, result: Result) -> OutcomeName:
    """The reason to refuse a result without a matching lease."""
    if _was_reported(snapshot, worker_id, result):
        return "duplicate"
    return "stale" if _is_known(snapshot, result.task_id) else "unknown"


def _is_known(snapshot: Snapshot, task_id: TaskId) -> bool:
    places = (snapshot.tasks, snapshot.finished, snapshot.requeued)
    return any(task_id in place for place in places)


def _was_reported(snapshot: Snapshot, worker_id: str, result: Result) -> bool:
    """Whether the attempt ended by this result of this worker, in this batch or before it.

    Only the same result is a repetition. Any other comes too late: an attempt that ran out of time
    has failed, and its worker must not take a late success for accepted.
    """
    wanted = (worker_id, result.fence, _outcome_of(result))
    end = snapshot.finished.get(result.task_id)
    if end is not None and (end.worker_id, end.fence, end.state) == wanted:
        return True
    task = snapshot.tasks.get(result.task_id)
    if task is not None and (task.worker_id, task.fence, task.state) == wanted:
        return True
    log = () if task is None else task.log
    if (requeued := snapshot.requeued.get(result.task_id)) is not None:
        log = (*log, requeued.ended)
    return any((line.worker_id, line.fence, line.ending) == wanted for line in log)


def _outcome_of(result: Result) -> str:
    """The state or the ending that a result leads to."""
    if result.snooze_ms is not None:
        return Ending.SNOOZED
    return TaskState.SUCCEEDED if result.ok else TaskState.FAILED


def end_lease(
    snapshot: Snapshot,
    lease: Lease,
    state: TaskState,
    context: Context,
    *,
    worker_id: str | None,
    result: bytes | None = None,
    error: TaskError | None = None,
) -> FinishTask:
    """Finish a running task."""
    finish = FinishTask(
        id=lease.id,
        was=TaskState.RUNNING,
        state=TaskState.RUNNING.to(state),
        fence=lease.fence,
        attempt=lease.attempt,
        finished_at_ms=context.now_ms,
        worker_id=worker_id,
        result=result,
        error=error,
        queue=lease.lane.queue,
    )
    snapshot.note_finished(finish)
    return finish


def end_task(
    snapshot: Snapshot,
    task: TaskRecord,
    state: TaskState,
    context: Context,
    *,
    error: TaskError | None = None,
) -> FinishTask:
    """Finish a live task from the state that it is in."""
    finish = FinishTask(
        id=task.id,
        was=task.state,
        state=task.state.to(state),
        fence=task.fence,
        attempt=task.attempt,
        finished_at_ms=context.now_ms,
        worker_id=task.worker_id,
        error=error,
        queue=task.lane.queue,
    )
    snapshot.note_finished(finish)
    return finish


def fail(
    snapshot: Snapshot,
    lease: Lease,
    ending: Ending,
    error: TaskError,
    context: Context,
    *,
    worker_id: str | None,
    retry_in_ms: int | None = None,
) -> FinishTask | RequeueTask:
    """End an attempt that is used up: another one follows, or the task has failed."""
    task = snapshot.tasks[lease.id]
    error = model.shortened(error)
    if not error.retryable or lease.attempt >= task.options.max_attempts:
        return end_lease(
            snapshot, lease, TaskState.FAILED, context, worker_id=worker_id, error=error
        )

    wait_ms = retry_in_ms
    if wait_ms is None:
        backoff = task.options.backoff or model.DEFAULT_BACKOFF
        wait_ms = model.retry_delay_ms(backoff, failed_attempts=lease.attempt, dice=context.dice())
    due_at_ms = context.now_ms + wait_ms if wait_ms > 0 else None
    return requeue(
        snapshot, lease, ending, context, worker_id=worker_id, error=error, due_at_ms=due_at_ms
    )


def requeue(
    snapshot: Snapshot,
    lease: Lease,
    ending: Ending,
    context: Context,
    *,
    worker_id: str | None,
    error: TaskError | None = None,
    due_at_ms: int | None = None,
) -> RequeueTask:
    """End a lease without finishing its task. Whether the attempt is used up follows from `ending`.

    The task waits for a worker, or first for `due_at_ms`.
    """
    ended = EndedAttempt(
        attempt=lease.attempt,
        fence=lease.fence,
        ending=ending,
        worker_id=worker_id,
        started_at_ms=lease.started_at_ms,
        ended_at_ms=context.now_ms,
        next_state=TaskState.RUNNING.to(waiting_state(due_at_ms)),
        error=error,
    )
    decision = RequeueTask(
        id=lease.id,
        fence=lease.fence,
        attempt=lease.attempt if ending in USED_UP else lease.attempt - 1,
        ended=ended,
        due_at_ms=due_at_ms,
    )
    snapshot.note_requeued(decision)
    return decision


def leases_of(snapshot: Snapshot, incarnation: int) -> list[Lease]:
    return [lease for lease in snapshot.leases.values() if lease.incarnation == incarnation]


def lose(
    snapshot: Snapshot, incarnation: int, context: Context, *, worker_id: str
) -> list[Decision]:
    """End the attempts of a worker that is gone. Each is used up."""
    error = TaskError(
        type="worker_lost", message=f"worker {worker_id!r} was lost while it ran this task"
    )
    return [
        fail(snapshot, lease, Ending.LOST, error, context, worker_id=worker_id, retry_in_ms=0)
        for lease in leases_of(snapshot, incarnation)
    ]


def release(
    snapshot: Snapshot, leases: Iterable[Lease], context: Context, *, worker_id: str
) -> list[Decision]:
    """Queue the tasks of returned leases again. No attempt is used up."""
    return [
        requeue(snapshot, lease, Ending.RELEASED, context, worker_id=worker_id) for lease in leases
    ]


def return_leases(
    snapshot: Snapshot, command: ReturnLeases, context: Context
) -> tuple[list[Decision], Done]:
    """Take back leases whose answer got lost, unless the worker has been granted them again."""
    returned = [
        lease
        for task_id, fence in command.leases
        if (lease := snapshot.leases.get(task_id)) is not None
        and task_id not in snapshot.repeated
        and lease.fence == fence
        and lease.incarnation == command.incarnation
    ]
    decisions = release(snapshot, returned, context, worker_id=command.worker_id)
    return decisions, Done(len(returned))


def expire(snapshot: Snapshot, context: Context) -> tuple[list[Decision], Done]:
    """End attempts that run past their deadline, and tasks that did not start in time."""
    decisions: list[Decision] = []
    for task_id in snapshot.overdue:
        lease = snapshot.leases.get(task_id)
        if lease is None or lease.deadline_ms is None or lease.deadline_ms > context.now_ms:
            continue
        error = TaskError(
            type="timeout",
            message=f"ran past its {lease.deadline_ms - lease.started_at_ms} ms",
        )
        worker_id = snapshot.tasks[task_id].worker_id
        decisions.append(
            fail(snapshot, lease, Ending.TIMED_OUT, error, context, worker_id=worker_id)
        )
    for task_id in snapshot.unstarted:
        task = snapshot.tasks.get(task_id)
        if task is not None and _is_past_start(task, now_ms=context.now_ms):
            decisions.append(_expired(snapshot, task, context))
    return decisions, Done(len(decisions))


def _expired(snapshot: Snapshot, task: TaskRecord, context: Context) -> FinishTask:
    """End a task that did not start in time. A discarded task has not failed."""
    message = f"not started within {task.options.start_within_ms} ms"
    error = TaskError(type="start_timeout", message=message, retryable=False)
    is_discarded = task.options.on_expiry == "discard"
    state = TaskState.CANCELLED if is_discarded else TaskState.FAILED
    return end_task(snapshot, task, state, context, error=error)


def _is_past_start(task: TaskRecord, *, now_ms: int) -> bool:
    """Whether a task waits past its start limit, and has not started since the limit began."""
    limit_ms = start_by_ms(task.options, created_at_ms=task.created_at_ms)
    is_waiting = task.state in {TaskState.QUEUED, TaskState.SCHEDULED}
    if limit_ms is None or now_ms < limit_ms or not is_waiting:
        return False
    began_ms = task.options.retried_at_ms or 0
    return all(
        line.ending is Ending.RELEASED or (line.started_at_ms or 0) < began_ms for line in task.log
    )


def progress(snapshot: Snapshot, command: ReportProgress) -> tuple[list[Decision], Outcomes]:
    decisions: list[Decision] = []
    outcomes: list[OutcomeName] = []
    for item in command.items:
        lease = snapshot.leases.get(item.task_id)
        if lease is None:
            outcomes.append("stale" if _is_known(snapshot, item.task_id) else "unknown")
        elif lease.fence != item.fence or command.incarnation not in {None, lease.incarnation}:
            outcomes.append("stale")
        else:
            outcomes.append("accepted")
            if item.progress is not None or item.partial is not None:
                decisions.append(NoteProgress(lease.id, lease.fence, item.progress, item.partial))
    return decisions, Outcomes(outcomes)
