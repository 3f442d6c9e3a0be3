"""The quality of a worker, learned from the results that it reports.

Poor quality lowers a worker's score and, past a limit, keeps it from tasks of one name for a while.
It never frees a lease: a worker that does badly is still alive.
"""

from collections import Counter
from collections.abc import Sequence

from rota.core.commands import ReportResults
from rota.core.context import Context
from rota.core.decisions import NoteQuality
from rota.core.replies import OutcomeName
from rota.core.snapshot import Quality, Snapshot
from rota.core.tasks.model import Lease
from rota.core.workers import circuit_breaker, eviction_guards, statistics
from rota.core.workers.circuit_breaker import BreakerState
from rota.core.workers.model import Health, WorkerRecord, WorkerState
from rota.core.workers.registry import health_of
from rota.core.workers.statistics import ResultCounts


def learn(
    snapshot: Snapshot,
    command: ReportResults,
    leases: Sequence[Lease | None],
    outcomes: Sequence[OutcomeName],
    context: Context,
) -> list[NoteQuality]:
    """Add the accepted results of one report to the worker's quality, one entry a task name."""
    # Tasks that were leased together have run for the same time: few kinds, however many results.
    alike = Counter(
        [
            (lease.lane.name, result.ok, lease.started_at_ms)
            for result, lease, outcome in zip(command.results, leases, outcomes, strict=True)
            if outcome == "accepted" and lease is not None and result.snooze_ms is None
        ]
    )
    by_name: dict[str, ResultCounts] = {}
    for (name, ok, started_at_ms), count in alike.items():
        by_name.setdefault(name, {})[ok, context.now_ms - started_at_ms] = count
    return [
        _learned(snapshot, command.worker_id, name, seen, context) for name, seen in by_name.items()
    ]


def _learned(
    snapshot: Snapshot, worker_id: str, name: str, seen: ResultCounts, context: Context
) -> NoteQuality:
    before = snapshot.qualities.get((worker_id, name), Quality())
    after = statistics.record_counts(before.statistics, seen, now_ms=context.now_ms)
    succeeded = sum(count for (ok, _), count in seen.items() if ok)
    breaker = circuit_breaker.observe(
        before.breaker,
        succeeded=succeeded,
        failed=sum(seen.values()) - succeeded,
        statistics=after,
        now_ms=context.now_ms,
        policy=context.rules.breaker,
    )
    opens = breaker.state is BreakerState.OPEN and before.breaker.state is not BreakerState.OPEN
    if opens and not _may_eject(snapshot, name, context):
        breaker = before.breaker
    snapshot.qualities[worker_id, name] = Quality(after, breaker)
    return NoteQuality(worker_id, name, after, breaker)


def _may_eject(snapshot: Snapshot, name: str, context: Context) -> bool:
    """Whether enough other workers can run tasks of this name."""
    able = [
        worker
        for worker in snapshot.workers.values()
        if worker.tasks is None or name in worker.tasks
    ]
    ejected = {worker.id for worker in able if _is_ejected(snapshot, worker, name)}
    healthy = sum(worker.id not in ejected and _is_sound(worker, context) for worker in able)
    return eviction_guards.may_eject(
        fleet=len(able), healthy=healthy, ejected=len(ejected), policy=context.rules.eviction
    )


def _is_ejected(snapshot: Snapshot, worker: WorkerRecord, name: str) -> bool:
    quality = snapshot.qualities.get((worker.id, name))
    return quality is not None and quality.breaker.state is BreakerState.OPEN


def _is_sound(worker: WorkerRecord, context: Context) -> bool:
    is_healthy = health_of(worker, context) is Health.HEALTHY
    return worker.state is WorkerState.ACTIVE and is_healthy
