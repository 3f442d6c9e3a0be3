"""Counts what a committed batch did, and logs what operators need to know."""

from collections.abc import Mapping
from typing import Any

import structlog

from rota.core.decisions import (
    Decision,
    LeaseTask,
    NoteWatch,
    PutWorker,
    RemoveWorker,
    RequeueTask,
)
from rota.core.replies import Granted, Outcomes, Submitted, Taken
from rota.core.workers.model import WorkerRecord
from rota.engine.commit.batch import Batch
from rota.engine.metrics.metrics import Metrics
from rota.errors import KeyBusy, QueueFull

log = structlog.get_logger("rota.engine")
shards_log = structlog.get_logger("rota.shards")

COUNTED: frozenset[type[Any]] = frozenset({RequeueTask, PutWorker, RemoveWorker, NoteWatch})


def count_batch(metrics: Metrics, batch: Batch) -> None:
    decisions, now_ms = batch.decisions, batch.context.now_ms
    metrics.batches += 1
    metrics.batched_events += len(batch.commands)
    metrics.forgotten += batch.forgotten
    metrics.events += batch.last_seq - batch.state.last_seq
    if LeaseTask in decisions:
        metrics.leased += len(decisions[LeaseTask])
    metrics.note_counts(batch.counts, now_ms)
    if not COUNTED.isdisjoint(decisions):
        _count_decisions(metrics, decisions, now_ms)
    count_rare(metrics, batch)
    _count_outcomes(metrics, batch)


def _count_decisions(
    metrics: Metrics, decisions: Mapping[type[Decision], list[Any]], now_ms: int
) -> None:
    for requeued in decisions.get(RequeueTask, ()):
        metrics.requeued[requeued.ended.ending] += 1
    for put in decisions.get(PutWorker, ()):
        if put.worker.started_at_ms == now_ms:  # not the same process over another connection
            log_arrival(put.worker)
    for removed in decisions.get(RemoveWorker, ()):
        metrics.evicted_workers += removed.reason != "left"
        log.info("worker_removed", worker_id=removed.worker_id, reason=removed.reason)
    for noted in decisions.get(NoteWatch, ()):
        if noted.held_because is not None:
            metrics.held_sweeps[noted.held_because] += 1
            log.warning("evictions_held", reason=noted.held_because)


def _count_outcomes(metrics: Metrics, batch: Batch) -> None:
    for outcome in batch.outcomes:
        kind = type(outcome)
        if kind is Submitted or kind is Granted:  # nearly always
            continue
        if isinstance(outcome, Taken):
            note_taken(metrics, outcome)
        elif isinstance(outcome, QueueFull | KeyBusy):
            metrics.refusals[outcome.code] += 1
        elif isinstance(outcome, Outcomes):
            metrics.refused_results.update([one for one in outcome.outcomes if one != "accepted"])


def log_arrival(worker: WorkerRecord) -> None:
    log.info(
        "worker_registered",
        worker_id=worker.id,
        node_id=worker.node_id,
        slots=worker.max_concurrent_tasks,
        queues="all" if worker.queues is None else ",".join(sorted(worker.queues)),
        tasks="all" if worker.tasks is None else len(worker.tasks),
    )


def count_rare(metrics: Metrics, batch: Batch) -> None:
    """Count what few batches have: firings, refusals of limits, and changes of services."""
    if batch.firings:
        metrics.firings.update(batch.firings)
        metrics.firing_delay_ms.update(batch.late_ms)
    if batch.refusals:
        metrics.refusals.update(batch.refusals)
    if batch.service_changes or batch.service_gauges or batch.fenced:
        count_services(metrics, batch)


def count_services(metrics: Metrics, batch: Batch) -> None:
    for name, changes in batch.service_changes.items():
        metrics.service(name).note(changes)
        for rebalanced in changes.rebalances:
            shards_log.info(
                "shards_rebalanced",
                service=name,
                moved=rebalanced.moved,
                placed=rebalanced.placed,
            )
        for removed in changes.removed:
            shards_log.info(
                "member_removed", service=name, worker_id=removed.worker_id, reason=removed.reason
            )
    for name, gauges in batch.service_gauges.items():
        metrics.service(name).note_gauges(gauges)
    for name in batch.fenced:
        metrics.fenced_effects += 1
        if name in metrics.services:  # a caller can invent names; count only existing services
            metrics.services[name].fenced_effects += 1


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
