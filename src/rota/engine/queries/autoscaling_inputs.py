"""Reads the inputs of autoscaling from the store, all at one moment.

Rates are not among them: the metrics count these in memory, by queue. A sample of the tasks that
were accepted and finished last tells how a queue's rate divides over its lanes.
"""

import time
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from msgspec import Struct

from rota.core.workers.statistics import NEGLIGIBLE_WEIGHT, decay_factor
from rota.engine.metrics.rates import RATE_WINDOW_S
from rota.engine.queries.workers import WorkerLoad, loads_of
from rota.store.database import Transaction
from rota.store.scaling import LaneWork, RecentStatistics, ScalingStore
from rota.store.tasks.lanes import Lanes
from rota.store.tasks.queues import QueueStore
from rota.store.workers import WorkerStore


class MeanDuration(NamedTuple):
    mean_ms: float
    weight: float  # the number of recent outcomes behind the mean


class ScaleInputs(Struct, frozen=True, kw_only=True):
    at_ms: int
    took_ms: float
    work: dict[int, LaneWork]  # by lane
    paused: set[str]
    workers: list[WorkerLoad]
    durations: dict[str, MeanDuration]  # by task name
    accepted: Counter[int]  # a sample, by lane
    finished: Counter[int]  # a sample, by lane


def read_inputs(tx: Transaction, lanes: Lanes, *, now_ms: int) -> ScaleInputs:
    started_s = time.perf_counter()
    since_ms = now_ms - RATE_WINDOW_S * 1_000
    scaling = ScalingStore(tx)
    workers = loads_of(tx, lanes, WorkerStore(tx).all().values())
    work = scaling.work()
    durations = mean_durations(scaling.statistics(), now_ms=now_ms)
    accepted = scaling.submitted(since_ms=since_ms)
    finished = scaling.finished(since_ms=since_ms)
    return ScaleInputs(
        at_ms=now_ms,
        took_ms=(time.perf_counter() - started_s) * 1_000,
        work=work,
        paused=QueueStore(tx).paused(),
        workers=workers,
        durations=durations,
        accepted=accepted,
        finished=finished,
    )


def mean_durations(
    statistics: Iterable[tuple[str, RecentStatistics]], *, now_ms: int
) -> dict[str, MeanDuration]:
    """Return the mean duration of tasks by name, over all workers; recent tasks weigh more."""
    totals: dict[str, tuple[float, float]] = {}
    for name, one in statistics:
        factor = decay_factor(now_ms - one.updated_at_ms)
        weight = (one.success_weight + one.failure_weight) * factor
        spent_ms = one.weighted_duration_ms * factor
        if weight < NEGLIGIBLE_WEIGHT:
            # Old outcomes are better than none; any recent outcome outweighs them.
            count = one.tasks_completed + one.tasks_failed
            weight = NEGLIGIBLE_WEIGHT if count else 0.0
            spent_ms = weight * one.total_duration_ms / count if count else 0.0
        weight_before, spent_before_ms = totals.get(name, (0.0, 0.0))
        totals[name] = (weight_before + weight, spent_before_ms + spent_ms)
    return {
        name: MeanDuration(spent_ms / weight, weight)
        for name, (weight, spent_ms) in totals.items()
        if weight > 0
    }
