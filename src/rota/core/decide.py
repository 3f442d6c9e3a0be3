"""The one door: what follows from an event?

`decide` is a function of a snapshot and an event. It notes its decisions in the snapshot, so that
the next event of a batch sees them, and touches nothing else. Leases of waiting work are the
exception that proves the rule: they are decided for all askers of a batch together, see
`rota.core.claiming`.
"""

from typing import assert_never

from rota.core import accepting, attempts, jobs, operating, quality, registry
from rota.core.decisions import Decision
from rota.core.events import (
    AddToken,
    CancelTasks,
    CompleteJob,
    Event,
    ExpireAttempts,
    FailJob,
    Heartbeat,
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
)
from rota.core.replies import Granted, Outcomes, Reply
from rota.core.snapshot import Snapshot

Decided = tuple[list[Decision], Reply]


def decide(snapshot: Snapshot, event: Event) -> Decided:  # noqa: C901, PLR0911, PLR0912 - a table
    """Every event has its rule; a new kind of event is a type error here."""
    match event:
        case SubmitTasks():
            added, submitted = accepting.submit(snapshot, event)
            return [*added], submitted
        case ReportResults():
            return report(snapshot, event)
        case LeaseWork():
            worker = registry.current_worker(snapshot, event.worker_id, event.incarnation)
            return registry.sign_of_life(snapshot, worker), Granted([])
        case ReportProgress():
            return attempts.progress(snapshot, event)
        case ReturnLeases():
            return attempts.return_leases(snapshot, event)
        case Heartbeat():
            return registry.beat(snapshot, event)
        case RegisterWorker():
            return registry.register(snapshot, event)
        case LeaveWorker():
            return registry.leave(snapshot, event)
        case SetWorkerState():
            return registry.set_state(snapshot, event)
        case CancelTasks():
            return operating.cancel(snapshot, event)
        case RetryTasks():
            return operating.retry(snapshot, event)
        case PauseQueue():
            return operating.pause(snapshot, event)
        case StartJob():
            return jobs.start(snapshot, event)
        case CompleteJob():
            return jobs.complete(snapshot, event)
        case FailJob():
            return jobs.fail(snapshot, event)
        case AddToken():
            return operating.add_token(event)
        case RevokeToken():
            return operating.revoke_token(snapshot, event)
        case QueueDueTasks():
            return operating.queue_due(snapshot)
        case ExpireAttempts():
            return attempts.expire(snapshot)
        case SweepWorkers():
            return registry.sweep(snapshot)
        case TakeInbox():
            return accepting.take_inbox(snapshot)
        case PruneHistory():
            return operating.prune(event)
        case _:
            assert_never(event)


def report(snapshot: Snapshot, event: ReportResults) -> tuple[list[Decision], Outcomes]:
    """Results of a living worker: what they lead to, and what they say about the worker."""
    worker = registry.current_worker(snapshot, event.worker_id, event.incarnation)
    leases = [snapshot.leases.get(result.task_id) for result in event.results]
    decisions, outcomes = attempts.report(snapshot, event)
    told = snapshot.to_cancel.get(event.incarnation)
    if told:
        # Reporting on a cancelled task shows that the worker is through with it.
        through = told.intersection(result.task_id for result in event.results)
        decisions += registry.forget_cancelled(snapshot, event.incarnation, through)
    decisions += quality.learn(snapshot, event, leases, outcomes.outcomes)
    decisions += registry.sign_of_life(snapshot, worker)
    return decisions, outcomes
