"""The reducer: decides the effects of a command.

`reduce` is a function of a snapshot and a command. It notes its decisions in the snapshot, so that
the next command of a batch sees them, and touches nothing else. Leases of waiting work are the one
exception: `rota.core.dispatch.matching` decides them for all lease calls of a batch together.
"""

from typing import assert_never

import msgspec

from rota.core.commands import (
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
from rota.core.decisions import Decision
from rota.core.replies import Granted, Outcomes, Reply
from rota.core.snapshot import Snapshot
from rota.core.tasks import attempts, jobs, operations, submission
from rota.core.workers import quality, registry

Decided = tuple[list[Decision], Reply]


def reduce(snapshot: Snapshot, event: TaskCommand) -> Decided:  # noqa: C901, PLR0911, PLR0912 - a table
    """Decide one command by its rule; a new kind of command is a type error here."""
    match event:
        case SubmitTasks():
            added, submitted = submission.submit(snapshot, event)
            return [*added], submitted
        case ReportResults():
            return report(snapshot, event)
        case LeaseWork():
            worker = registry.current_worker(
                snapshot, event.worker_id, event.incarnation, by=event.by
            )
            return registry.sign_of_life(snapshot, worker), Granted([])
        case ReportProgress():
            return progress(snapshot, event)
        case ReturnLeases():
            return attempts.return_leases(snapshot, event)
        case BeatWorker():
            return registry.beat(snapshot, event)
        case RegisterWorker():
            return registry.register(snapshot, event)
        case LeaveWorker():
            return registry.leave(snapshot, event)
        case SetWorkerState():
            return registry.set_state(snapshot, event)
        case CancelTasks():
            return operations.cancel(snapshot, event)
        case RetryTasks():
            return operations.retry(snapshot, event)
        case PauseQueue():
            return operations.pause(snapshot, event)
        case StartJob():
            return jobs.start(snapshot, event)
        case CompleteJob():
            return jobs.complete(snapshot, event)
        case FailJob():
            return jobs.fail(snapshot, event)
        case AddToken():
            return operations.add_token(event)
        case RevokeToken():
            return operations.revoke_token(snapshot, event)
        case QueueDueTasks():
            return operations.queue_due(snapshot)
        case ExpireAttempts():
            return attempts.expire(snapshot)
        case SweepWorkers():
            return registry.sweep(snapshot)
        case TakeInbox():
            return submission.take_inbox(snapshot)
        case PruneHistory():
            return operations.prune(event)
        case _:
            assert_never(event)


def report(snapshot: Snapshot, event: ReportResults) -> tuple[list[Decision], Outcomes]:
    """Decide the results of a live worker, and update the worker's quality."""
    worker = registry.current_worker(snapshot, event.worker_id, event.incarnation, by=event.by)
    leases = [snapshot.leases.get(result.task_id) for result in event.results]
    decisions, outcomes = attempts.report(snapshot, event)
    told = snapshot.to_cancel.get(event.incarnation)
    if told:
        # A report on a cancelled task shows that the worker no longer runs it.
        through = told.intersection(result.task_id for result in event.results)
        decisions += registry.forget_cancelled(snapshot, event.incarnation, through)
    decisions += quality.learn(snapshot, event, leases, outcomes.outcomes)
    decisions += registry.sign_of_life(snapshot, worker)
    return decisions, outcomes


def progress(snapshot: Snapshot, event: ReportProgress) -> tuple[list[Decision], Outcomes]:
    """Record the progress of a worker's tasks; the caller must own the worker."""
    if event.by is not None:
        worker = registry.current_worker(snapshot, event.worker_id, event.incarnation, by=event.by)
        event = msgspec.structs.replace(event, incarnation=worker.incarnation)
    return attempts.progress(snapshot, event)
