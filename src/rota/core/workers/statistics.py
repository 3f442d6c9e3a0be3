"""Decayed and lifetime statistics of a worker's results by task name.

Theory of operation. Lifetime counters only rise. Beside them are decayed weights: an outcome
counts 1 when it is recorded and half as much after each half-life, so old glory and old shame both
fade. All weights decay by one factor, once per batch, when new outcomes come in; shares and
percentiles need no decay when read, because the factor cancels out.

Durations also fall into a histogram whose buckets double every `BUCKETS_PER_DOUBLING`, from
0.05 ms to 30 hours. A percentile is the geometric middle of its bucket, so it is off by at most
`PERCENTILE_ERROR` (19 %) either way; below the first edge it reads as that edge, beyond the last
as a little more than that. Sixty-four numbers hold any amount of history.
"""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
from msgspec import Struct

HALF_LIFE_MS = 300_000  # long enough for tasks of a minute, short enough to notice a bad deploy
NEGLIGIBLE_WEIGHT = 1e-6  # one outcome after twenty half-lives: forgotten, as if never seen

BUCKETS_PER_DOUBLING = 2
SMALLEST_EDGE_MS = 0.05
EDGES_MS = tuple(SMALLEST_EDGE_MS * 2 ** (step / BUCKETS_PER_DOUBLING) for step in range(63))
BUCKET_COUNT = len(EDGES_MS) + 1  # one before the first edge, one after the last
HALF_BUCKET = 2 ** (1 / (2 * BUCKETS_PER_DOUBLING))
PERCENTILE_ERROR = HALF_BUCKET - 1
BUCKET_MIDDLES_MS = (SMALLEST_EDGE_MS, *(edge * HALF_BUCKET for edge in EDGES_MS))


class Outcome(NamedTuple):
    ok: bool
    duration_ms: float


# Stored as an array: new fields go to the end.
class Statistics(Struct, frozen=True, kw_only=True, array_like=True):
    tasks_completed: int = 0
    tasks_failed: int = 0
    total_duration_ms: float = 0.0  # of completed and failed ones, as all durations here
    success_weight: float = 0.0
    failure_weight: float = 0.0
    weighted_duration_ms: float = 0.0
    buckets: tuple[float, ...] = ()  # weights by duration; empty, or BUCKET_COUNT of them
    updated_at_ms: int = 0


EMPTY = Statistics()


# How often each outcome came: success, and duration in ms.
ResultCounts = dict[tuple[bool, float], int]


def record(
    statistics: Statistics,
    outcomes: Sequence[Outcome],
    *,
    now_ms: int,
    half_life_ms: int = HALF_LIFE_MS,
) -> Statistics:
    """Add a batch of outcomes, all counted as of now."""
    counts: ResultCounts = {**Counter(outcomes)}
    return record_counts(statistics, counts, now_ms=now_ms, half_life_ms=half_life_ms)


def record_counts(
    statistics: Statistics, counts: ResultCounts, *, now_ms: int, half_life_ms: int = HALF_LIFE_MS
) -> Statistics:
    """Add a batch of outcomes, each with how often it came."""
    if not counts:
        return statistics

    before = decayed(statistics, now_ms=now_ms, half_life_ms=half_life_ms)
    buckets = list(before.buckets) or [0.0] * BUCKET_COUNT
    assert len(buckets) == BUCKET_COUNT

    completed, failed, spent_ms = 0, 0, 0.0
    for (ok, duration_ms), count in counts.items():
        if ok:
            completed += count
        else:
            failed += count
        buckets[bisect_right(EDGES_MS, duration_ms)] += count
        # A clock set back during the task would make it less.
        spent_ms += max(0.0, duration_ms) * count
    assert math.isfinite(spent_ms)

    return Statistics(
        tasks_completed=before.tasks_completed + completed,
        tasks_failed=before.tasks_failed + failed,
        total_duration_ms=before.total_duration_ms + spent_ms,
        success_weight=before.success_weight + completed,
        failure_weight=before.failure_weight + failed,
        weighted_duration_ms=before.weighted_duration_ms + spent_ms,
        buckets=tuple(buckets),
        updated_at_ms=before.updated_at_ms,
    )


def decayed(statistics: Statistics, *, now_ms: int, half_life_ms: int = HALF_LIFE_MS) -> Statistics:
    """The same history as it weighs now; lifetime counters stay as they are."""
    factor = decay_factor(now_ms - statistics.updated_at_ms, half_life_ms)
    is_forgotten = weight(statistics) * factor < NEGLIGIBLE_WEIGHT
    if is_forgotten:
        factor = 0.0
    return msgspec.structs.replace(
        statistics,
        success_weight=statistics.success_weight * factor,
        failure_weight=statistics.failure_weight * factor,
        weighted_duration_ms=statistics.weighted_duration_ms * factor,
        buckets=() if is_forgotten else tuple([one * factor for one in statistics.buckets]),
        updated_at_ms=_later_ms(statistics.updated_at_ms, now_ms, half_life_ms),
    )


def decay_factor(elapsed_ms: int, half_life_ms: int = HALF_LIFE_MS) -> float:
    """The part of a weight that is left after a while; at most 1, even if time ran back."""
    assert half_life_ms > 0

    return 1.0 if elapsed_ms <= 0 else 0.5 ** (elapsed_ms / half_life_ms)


def _later_ms(updated_at_ms: int, now_ms: int, half_life_ms: int) -> int:
    # Replicas' clocks differ a little; following each step back would decay the same time twice.
    # A large step back is a clock put right, and waiting for it to catch up would stop all decay.
    is_small_step_back = updated_at_ms - half_life_ms <= now_ms <= updated_at_ms
    return updated_at_ms if is_small_step_back else now_ms


def combine(
    parts: Iterable[Statistics], *, now_ms: int, half_life_ms: int = HALF_LIFE_MS
) -> Statistics:
    """Several histories as one, such as all task names of a worker, each weighing as of now."""
    aged = [decayed(part, now_ms=now_ms, half_life_ms=half_life_ms) for part in parts]
    histograms = [part.buckets for part in aged if part.buckets]
    return Statistics(
        tasks_completed=sum(part.tasks_completed for part in aged),
        tasks_failed=sum(part.tasks_failed for part in aged),
        total_duration_ms=math.fsum(part.total_duration_ms for part in aged),
        success_weight=math.fsum(part.success_weight for part in aged),
        failure_weight=math.fsum(part.failure_weight for part in aged),
        weighted_duration_ms=math.fsum(part.weighted_duration_ms for part in aged),
        buckets=tuple(map(math.fsum, zip(*histograms, strict=True))),
        updated_at_ms=max((part.updated_at_ms for part in aged), default=now_ms),
    )


def percentile(statistics: Statistics, quantile: float) -> float | None:
    """The duration that this share of recent tasks stayed within; None without history."""
    assert 0 <= quantile <= 1

    wanted = quantile * sum(statistics.buckets)
    reached, answer_ms = 0.0, None
    for bucket, middle_ms in zip(statistics.buckets, BUCKET_MIDDLES_MS, strict=False):
        if bucket > 0:
            reached, answer_ms = reached + bucket, middle_ms
            if reached >= wanted:
                break
    return answer_ms


def weight(statistics: Statistics) -> float:
    """The number of recent outcomes that the decayed weights amount to."""
    return statistics.success_weight + statistics.failure_weight


def success_rate(statistics: Statistics) -> float:
    """The share of recent outcomes that were successes; 1.0 without history."""
    total = weight(statistics)
    return statistics.success_weight / total if total > 0 else 1.0


def lifetime_success_rate(statistics: Statistics) -> float:
    total = statistics.tasks_completed + statistics.tasks_failed
    return statistics.tasks_completed / total if total else 1.0


def average_duration_ms(statistics: Statistics) -> float | None:
    """The recent average; None without history."""
    total = weight(statistics)
    return statistics.weighted_duration_ms / total if total > 0 else None


def lifetime_average_duration_ms(statistics: Statistics) -> float | None:
    total = statistics.tasks_completed + statistics.tasks_failed
    return statistics.total_duration_ms / total if total else None
