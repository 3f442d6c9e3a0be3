"""The score of a worker as a choice for the next task.

A score is a weighted sum of three parts, each from 0 to 1: free capacity, share of successes, and
speed. A worker without history has full marks for the last two, which alone would make one that
crashes and comes back under a new id the permanent favourite. So a newcomer's total is scaled by a
slow start that rises with its age. The scale never reaches zero: the only worker with room is
chosen, however young. Workers of one age are scaled alike, so a fleet that starts together is
ranked as if there were no slow start.
"""

import math

from msgspec import Struct

from rota.core.workers.statistics import (
    Statistics,
    average_duration_ms,
    lifetime_average_duration_ms,
    lifetime_success_rate,
    success_rate,
)


class ScoringPolicy(Struct, frozen=True, kw_only=True):
    capacity_weight: float = 0.5
    success_weight: float = 0.3
    speed_weight: float = 0.2
    reference_ms: float = 1_000.0  # tasks that take this long, or less, have full marks for speed
    slow_start_ms: int = 30_000  # the age from which a worker counts in full; 0: at once
    # A newcomer without history counts like a fast, flawless worker whose slots are all taken.
    slow_start_floor: float = 0.5
    lifetime: bool = False  # score everything that ever happened, with no slow start

    def __post_init__(self) -> None:
        weights = (self.capacity_weight, self.success_weight, self.speed_weight)
        if min(weights) < 0 or not math.isclose(sum(weights), 1.0):
            raise ValueError("score weights must not be negative and must add up to 1")
        if not 0 < self.reference_ms < math.inf:
            raise ValueError("reference_ms must be above 0")
        if self.slow_start_ms < 0 or not 0 < self.slow_start_floor <= 1:
            raise ValueError("slow start needs slow_start_ms >= 0 and 0 < slow_start_floor <= 1")


DEFAULT_SCORING_POLICY = ScoringPolicy()


class Score(Struct, frozen=True, kw_only=True):
    """A total and its parts: (weight * part, added up over the three parts) * slow_start."""

    total: float
    capacity: float
    success: float
    speed: float
    slow_start: float  # 1.0 once the worker counts in full
    capacity_weight: float = 0.5  # lets `selection` lower the total while it fills the worker


def score(
    *,
    free: int,
    maximum: int,
    statistics: Statistics,
    age_ms: int,
    policy: ScoringPolicy = DEFAULT_SCORING_POLICY,
) -> Score:
    """Rate a worker; `age_ms` counts from the start of its present incarnation."""
    assert maximum > 0

    # A worker that came back with fewer slots may hold more tasks than it now has room for.
    capacity = min(1.0, max(0.0, free / maximum))
    success = lifetime_success_rate(statistics) if policy.lifetime else success_rate(statistics)
    speed = _speed(statistics, policy)
    slow_start = _slow_start(age_ms, policy)
    total = slow_start * (
        policy.capacity_weight * capacity
        + policy.success_weight * success
        + policy.speed_weight * speed
    )
    return Score(
        total=total,
        capacity=capacity,
        success=success,
        speed=speed,
        slow_start=slow_start,
        capacity_weight=policy.capacity_weight,
    )


def _speed(statistics: Statistics, policy: ScoringPolicy) -> float:
    average_of = lifetime_average_duration_ms if policy.lifetime else average_duration_ms
    average_ms = average_of(statistics)
    if average_ms is None or average_ms <= policy.reference_ms:
        return 1.0
    return policy.reference_ms / average_ms


def _slow_start(age_ms: int, policy: ScoringPolicy) -> float:
    if policy.lifetime or age_ms >= policy.slow_start_ms:
        return 1.0
    # A negative age means that the clock was set back; such a worker counts as brand new.
    grown = max(0, age_ms) / policy.slow_start_ms
    return policy.slow_start_floor + (1.0 - policy.slow_start_floor) * grown
