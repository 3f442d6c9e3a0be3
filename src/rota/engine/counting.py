"""What did a committed batch do? Counted for metrics, and logged where somebody wants to know."""

import structlog

from rota.core.decisions import LeaseTask, NoteWatch, RemoveWorker, RequeueTask
from rota.core.replies import Outcomes, Taken
from rota.engine.batch import BatchResult
from rota.engine.figures import Figures
from rota.engine.inbox import note_taken
from rota.engine.shards import count_shard_work

log = structlog.get_logger("rota.engine")


def count_batch(figures: Figures, result: BatchResult, *, events: int) -> None:
    decisions = result.decisions
    figures.batches += 1
    figures.batched_events += events
    figures.forgotten += result.applied.forgotten
    figures.notices += len(result.told.notices)
    figures.leased += len(decisions.get(LeaseTask, ()))
    figures.note_submitted(result.tally.submitted, result.now_ms)
    figures.note_finished(result.tally.finished, result.now_ms)
    if result.replicas:
        figures.note_others(result.replicas, result.now_ms)
    for requeued in decisions.get(RequeueTask, ()):
        figures.requeued[requeued.ended.ending] += 1
    for removed in decisions.get(RemoveWorker, ()):
        figures.evicted_workers += removed.reason != "left"
        log.info("worker removed", worker_id=removed.worker_id, reason=removed.reason)
    for noted in decisions.get(NoteWatch, ()):
        if noted.held_because is not None:
            figures.held_sweeps[noted.held_because] += 1
            log.warning("evictions held back", reason=noted.held_because)
    count_shard_work(figures, result.shards)
    for outcome in result.outcomes:
        if isinstance(outcome, Taken):
            note_taken(figures, outcome)
        elif isinstance(outcome, Outcomes):
            figures.refused_results.update(one for one in outcome.outcomes if one != "accepted")
