"""What does scaling look at? Everything that is in the store, read at one moment.

Rates are not here: they are counted in memory, by queue. How a queue's rate divides over its lanes
is taken from a sample of the tasks that were accepted, and finished, last.
"""

import time
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from msgspec import Struct

from rota.core.statistics import NEGLIGIBLE_WEIGHT, decay_factor
from rota.core.workers import Worker
from rota.engine.figures import RATE_WINDOW_S
from rota.store.database import Transaction
from rota.store.lanes import Lanes
from rota.store.queues import Queues
from rota.store.scaling import LaneWork, RecentStatistics, Scaling
from rota.store.tasks import Tasks
from rota.store.workers import Workers


class MeanDuration(NamedTuple):
    mean_ms: float
    weight: float  # how many recent outcomes it stands for


class Reading(Struct, frozen=True, kw_only=True):
    at_ms: int
    took_ms: float
    work: dict[int, LaneWork]  # by lane
    paused: set[str]
    workers: list[tuple[Worker, int]]  # with how many tasks they hold
    durations: dict[str, MeanDuration]  # by task name
    accepted: Counter[int]  # a sample, by lane
    finished: Counter[int]  # as above


def take_reading(tx: Transaction, lanes: Lanes, *, now_ms: int) -> Reading:
    started_s = time.perf_counter()
    since_ms = now_ms - RATE_WINDOW_S * 1_000
    scaling, workers = Scaling(tx), Workers(tx).every()
    held = Tasks(tx, lanes).held([one.incarnation for one in workers.values()])
    work = scaling.work()
    durations = mean_durations(scaling.statistics(), now_ms=now_ms)
    accepted = scaling.accepted(since_ms=since_ms)
    finished = scaling.finished(since_ms=since_ms)
    return Reading(
        at_ms=now_ms,
        took_ms=(time.perf_counter() - started_s) * 1_000,
        work=work,
        paused=Queues(tx).paused(),
        workers=[(one, held[one.incarnation]) for one in workers.values()],
        durations=durations,
        accepted=accepted,
        finished=finished,
    )


def mean_durations(
    statistics: Iterable[tuple[str, RecentStatistics]], *, now_ms: int
) -> dict[str, MeanDuration]:
    """How long tasks of each name take, over all workers; recent ones count for more."""
    totals: dict[str, tuple[float, float]] = {}
    for name, one in statistics:
        factor = decay_factor(now_ms - one.updated_at_ms)
        weight = (one.success_weight + one.failure_weight) * factor
        spent_ms = one.weighted_duration_ms * factor
        if weight < NEGLIGIBLE_WEIGHT:
            # Long ago, but better than knowing nothing; it yields to anything recent.
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
