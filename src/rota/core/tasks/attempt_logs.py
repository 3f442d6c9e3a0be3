"""Which log lines of workers are kept: those of attempts that they run, or have just ended."""

from msgspec import Struct

from rota.core import limits
from rota.core.commands import AttemptLines, ReportLogs
from rota.core.context import Context
from rota.core.decisions import Decision, ForgetLogs, KeepLines
from rota.core.replies import OutcomeName, Outcomes
from rota.core.snapshot import Snapshot
from rota.core.tasks import logs
from rota.core.tasks.logs import TaskLogs
from rota.core.workers.model import WorkerRecord


class _End(Struct, frozen=True):
    """The end of the newest attempt of a task that does not run."""

    fence: int
    attempt: int
    worker_id: str | None
    started_at_ms: int | None
    ended_at_ms: int | None


def keep(
    snapshot: Snapshot, command: ReportLogs, worker: WorkerRecord, context: Context
) -> tuple[list[Decision], Outcomes]:
    """Keep the lines of each attempt within its bounds; name the reason for refused ones."""
    decisions: list[Decision] = []
    outcomes: list[OutcomeName] = []
    for item in command.items:
        attempt = _attempt_of(snapshot, item, worker, context)
        if attempt is None:
            outcomes.append("stale" if _is_known(snapshot, item) else "unknown")
            continue
        outcomes.append("accepted")
        known = snapshot.logs.setdefault(item.task_id, TaskLogs())
        before, forget_before = logs.begin(known, item.fence, attempt=attempt)
        lines, after = logs.take(before, item.lines, first=item.first, left_out=item.dropped)
        if after == before:
            continue
        if forget_before is not None:
            decisions.append(ForgetLogs(item.task_id, forget_before))
            for fence in [one for one in known.attempts if one < forget_before]:
                del known.attempts[fence]
        known.attempts[item.fence] = after
        decisions.append(KeepLines(item.task_id, item.fence, lines, after))
    return decisions, Outcomes(outcomes)


def _attempt_of(
    snapshot: Snapshot, item: AttemptLines, worker: WorkerRecord, context: Context
) -> int | None:
    """The number of the attempt, if the worker runs it or has run it until a moment ago.

    A timeout or a cancellation ends an attempt before its worker knows: its last lines come late.
    """
    lease = snapshot.leases.get(item.task_id)
    if lease is not None:
        is_held = lease.fence == item.fence and lease.incarnation == worker.incarnation
        return lease.attempt if is_held else None
    end = _end_of(snapshot, item)
    if end is None or (end.fence, end.worker_id) != (item.fence, worker.id):
        return None
    # Another owner may have registered the id since.
    is_later = end.started_at_ms is not None and end.started_at_ms < worker.started_at_ms
    is_over = end.ended_at_ms is None or context.now_ms - end.ended_at_ms > limits.MAX_LATE_LOG_MS
    return None if is_later or is_over else end.attempt


def _end_of(snapshot: Snapshot, item: AttemptLines) -> _End | None:
    finish = snapshot.finished.get(item.task_id)
    if finish is not None:
        return _End(finish.fence, finish.attempt, finish.worker_id, None, finish.finished_at_ms)
    requeued = snapshot.requeued.get(item.task_id)
    task = snapshot.tasks.get(item.task_id)
    if task is not None and task.finished_at_ms is not None:
        return _End(
            task.fence, task.attempt, task.worker_id, task.started_at_ms, task.finished_at_ms
        )
    last = requeued.ended if requeued is not None else None
    if last is None and task is not None and task.log:
        last = task.log[-1]
    if last is None:
        return None
    return _End(last.fence, last.attempt, last.worker_id, last.started_at_ms, last.ended_at_ms)


def _is_known(snapshot: Snapshot, item: AttemptLines) -> bool:
    places = (snapshot.leases, snapshot.tasks, snapshot.finished, snapshot.requeued)
    return any(item.task_id in place for place in places)
