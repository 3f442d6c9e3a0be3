"""The reducer: decides the effects of a command.

`reduce` is the `Reducer` of tasks and workers. It notes its decisions in the snapshot, so that the
next command of a batch sees them, and touches nothing else. Leases of waiting work are the one
exception: `rota.core.dispatch.matching` decides them for all lease calls of a batch together.
"""

from typing import assert_never

import msgspec

from rota.core.commands import (
    AcknowledgeTasks,
    AddToken,
    BeatWorker,
    CancelTasks,
    CompleteJob,
    ExpireAttempts,
    FailJob,
    LeaseWork,
    LeaveWorker,
    PauseQueue,
    PruneHistory,
    QueueDueTasks,
    RegisterWorker,
    ReportLogs,
    ReportProgress,
    ReportResults,
    RetryTasks,
    ReturnLeases,
    RevokeToken,
    SetWorkerState,
    StartJob,
    SubmitTasks,
    SweepWorkers,
    TakeInbox,
    TaskCommand,
)
from rota.core.context import Context
from rota.core.decisions import Decision
from rota.core.replies import Granted, Outcomes, Reply
from rota.core.snapshot import Snapshot
from rota.core.tasks import attempt_logs, attempts, jobs, operations
from rota.core.tasks.submission import inbox_rows, submission
from rota.core.workers import quality, registry

Decided = tuple[list[Decision], Reply]


def reduce(  # noqa: C901, PLR0911, PLR0912 - a table
    snapshot: Snapshot, command: TaskCommand, context: Context
) -> Decided:
    """Decide one command by its rule; a new kind of command is a type error here."""
    match command:
        case SubmitTasks():
            return submission.submit(snapshot, command, context)
        case ReportResults():
            return report(snapshot, command, context)
        case LeaseWork():
            worker = registry.current_worker(
                snapshot, command.worker_id, command.incarnation, by=command.by
            )
            return registry.sign_of_life(snapshot, worker, context), Granted([])
        case ReportProgress():
            return progress(snapshot, command)
        case ReportLogs():
            return logs(snapshot, command, context)
        case ReturnLeases():
            return attempts.return_leases(snapshot, command, context)
        case BeatWorker():
            return registry.beat(snapshot, command, context)
        case RegisterWorker():
            return registry.register(snapshot, command, context)
        case LeaveWorker():
            return registry.leave(snapshot, command, context)
        case SetWorkerState():
            return registry.set_state(snapshot, command, context)
        case CancelTasks():
            return operations.cancel(snapshot, command, context)
        case RetryTasks():
            return operations.retry(snapshot, command, context)
        case AcknowledgeTasks():
            return operations.acknowledge(snapshot, command, context)
        case PauseQueue():
            return operations.pause(snapshot, command, context)
        case StartJob():
            return jobs.start(snapshot, command, context)
        case CompleteJob():
            return jobs.complete(snapshot, command, context)
        case FailJob():
            return jobs.fail(snapshot, command, context)
        case AddToken():
            return operations.add_token(command)
        case RevokeToken():
            return operations.revoke_token(snapshot, command)
        case QueueDueTasks():
            return operations.queue_due(snapshot, context)
        case ExpireAttempts():
            return attempts.expire(snapshot, context)
        case SweepWorkers():
            return registry.sweep(snapshot, context)
        case TakeInbox():
            return inbox_rows.take_inbox(snapshot, context)
        case PruneHistory():
            return operations.prune(command)
        case _:
            assert_never(command)


def report(
    snapshot: Snapshot, command: ReportResults, context: Context
) -> tuple[list[Decision], Outcomes]:
    """Decide the results of a live worker, and update the worker's quality."""
    worker = registry.current_worker(
        snapshot, command.worker_id, command.incarnation, by=command.by
    )
    leases = [snapshot.leases.get(result.task_id) for result in command.results]
    decisions, outcomes = attempts.report(snapshot, command, context)
    told = snapshot.to_cancel.get(command.incarnation)
    if told:
        # A report on a cancelled task shows that the worker no longer runs it.
        through = told.intersection(result.task_id for result in command.results)
        decisions += registry.forget_cancelled(snapshot, command.incarnation, through)
    decisions += quality.learn(snapshot, command, leases, outcomes.outcomes, context)
    decisions += registry.sign_of_life(snapshot, worker, context)
    return decisions, outcomes


def progress(snapshot: Snapshot, command: ReportProgress) -> tuple[list[Decision], Outcomes]:
    """Record the progress of a worker's tasks; the caller must own the worker."""
    if command.by is not None:
        worker = registry.current_worker(
            snapshot, command.worker_id, command.incarnation, by=command.by
        )
        command = msgspec.structs.replace(command, incarnation=worker.incarnation)
    return attempts.progress(snapshot, command)


def logs(
    snapshot: Snapshot, command: ReportLogs, context: Context
) -> tuple[list[Decision], Outcomes]:
    """Keep log lines of a worker's tasks; the caller must own the worker."""
    worker = registry.current_worker(
        snapshot, command.worker_id, command.incarnation, by=command.by
    )
    return attempt_logs.keep(snapshot, command, worker, context)
