"""Counts what a committed batch did, and logs what operators need to know."""

import structlog

from rota.core.decisions import LeaseTask, NoteWatch, RemoveWorker, RequeueTask
from rota.core.replies import Outcomes, Taken
from rota.engine.commit.batch import BatchResult
from rota.engine.metrics.metrics import Metrics
from rota.engine.shards.shard_engine import count_shard_work

log = structlog.get_logger("rota.engine")


def count_batch(metrics: Metrics, result: BatchResult, *, events: int) -> None:
    decisions = result.decisions
    metrics.batches += 1
    metrics.batched_events += events
    metrics.forgotten += result.applied.forgotten
    metrics.events += len(result.events.events)
    metrics.leased += len(decisions.get(LeaseTask, ()))
    metrics.note_submitted(result.tally.submitted, result.now_ms)
    metrics.note_finished(result.tally.finished, result.now_ms)
    if result.replicas:
        metrics.note_others(result.replicas, result.now_ms)
    for requeued in decisions.get(RequeueTask, ()):
        metrics.requeued[requeued.ended.ending] += 1
    for removed in decisions.get(RemoveWorker, ()):
        metrics.evicted_workers += removed.reason != "left"
        log.info("worker_removed", worker_id=removed.worker_id, reason=removed.reason)
    for noted in decisions.get(NoteWatch, ()):
        if noted.held_because is not None:
            metrics.held_sweeps[noted.held_because] += 1
            log.warning("evictions_held", reason=noted.held_because)
    count_shard_work(metrics, result.shards)
    for outcome in result.outcomes:
        if isinstance(outcome, Taken):
            note_taken(metrics, outcome)
        elif isinstance(outcome, Outcomes):
            metrics.refused_results.update(one for one in outcome.outcomes if one != "accepted")


def note_taken(metrics: Metrics, taken: Taken) -> None:
    """Count and log what was taken from the inbox: its callers do not wait for a reply."""
    refused = len(taken.refused)
    metrics.inbox["duplicate"] += taken.duplicates
    metrics.inbox["refused"] += refused
    metrics.inbox["accepted"] += taken.count - taken.duplicates - refused
    for key, error in taken.refused:
        log.warning(
            "inbox_task_refused",
            key=key,
            reason=error.type,
            problem=error.message,
        )
