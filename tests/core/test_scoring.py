from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.workers.scoring import DEFAULT_SCORING_POLICY, ScoringPolicy, score
from rota.core.workers.statistics import EMPTY, HALF_LIFE_MS, Outcome, Statistics, record

GROWN_MS = DEFAULT_SCORING_POLICY.slow_start_ms
LIFETIME = ScoringPolicy(lifetime=True)


def history(*, completed: int, failed: int, duration_ms: float) -> Statistics:
    outcomes = [Outcome(ok=True, duration_ms=duration_ms)] * completed
    outcomes += [Outcome(ok=False, duration_ms=duration_ms)] * failed
    return record(EMPTY, outcomes, now_ms=0)


@pytest.mark.parametrize("policy", [LIFETIME, DEFAULT_SCORING_POLICY])
def test_the_seeds_two_workers_have_the_seeds_scores(policy: ScoringPolicy) -> None:
    a = history(completed=45, failed=5, duration_ms=5_000)
    b = history(completed=10, failed=0, duration_ms=3_000)

    score_a = score(free=8, maximum=10, statistics=a, age_ms=GROWN_MS, policy=policy)
    score_b = score(free=4, maximum=5, statistics=b, age_ms=GROWN_MS, policy=policy)

    assert score_a.total == pytest.approx(0.71)
    assert score_b.total == pytest.approx(0.4 + 0.3 + 0.2 / 3)
    assert (score_a.capacity, score_a.success, score_a.speed) == pytest.approx((0.8, 0.9, 0.2))


def test_a_grown_worker_without_history_has_full_marks() -> None:
    assert score(free=3, maximum=3, statistics=EMPTY, age_ms=GROWN_MS).total == pytest.approx(1.0)


def test_a_newcomer_starts_at_the_floor_and_grows_to_full_marks() -> None:
    totals = [
        score(free=1, maximum=1, statistics=EMPTY, age_ms=age_ms).total
        for age_ms in (-5, 0, GROWN_MS // 2, GROWN_MS, 10 * GROWN_MS)
    ]

    assert totals == pytest.approx([0.5, 0.5, 0.75, 1.0, 1.0])


def test_a_newcomer_that_never_grows_up_does_not_beat_a_worker_that_is_half_busy() -> None:
    veteran = history(completed=50, failed=0, duration_ms=5_000)

    newcomer_score = score(free=10, maximum=10, statistics=EMPTY, age_ms=0)
    veteran_score = score(free=5, maximum=10, statistics=veteran, age_ms=GROWN_MS)

    assert newcomer_score.total < veteran_score.total


def test_without_a_slow_start_every_age_counts_in_full() -> None:
    policy = ScoringPolicy(slow_start_ms=0)

    assert score(free=1, maximum=1, statistics=EMPTY, age_ms=0, policy=policy).slow_start == 1.0


def test_the_lifetime_score_knows_no_slow_start_and_forgets_nothing() -> None:
    old = record(EMPTY, [Outcome(ok=False, duration_ms=10.0)] * 50, now_ms=0)
    mended = record(old, [Outcome(ok=True, duration_ms=10.0)] * 50, now_ms=20 * HALF_LIFE_MS)

    lifetime = score(free=1, maximum=1, statistics=mended, age_ms=0, policy=LIFETIME)
    lately = score(free=1, maximum=1, statistics=mended, age_ms=GROWN_MS)

    assert lifetime.total == pytest.approx(0.5 + 0.3 * 0.5 + 0.2)
    assert lately.total == pytest.approx(1.0, abs=1e-4)


def test_a_worker_that_holds_more_than_it_has_room_for_has_no_capacity() -> None:
    assert score(free=-2, maximum=4, statistics=EMPTY, age_ms=GROWN_MS).capacity == 0.0


@given(
    free=st.integers(-5, 50),
    maximum=st.integers(1, 50),
    completed=st.integers(0, 40),
    failed=st.integers(0, 40),
    duration_ms=st.floats(0, 10**7),
    age_ms=st.integers(-(10**6), 10**6),
    lifetime=st.booleans(),
)
def test_a_score_is_its_parts_and_stays_between_zero_and_one(
    **case: Any,
) -> None:
    statistics = history(**{key: case[key] for key in ("completed", "failed", "duration_ms")})
    policy = LIFETIME if case["lifetime"] else DEFAULT_SCORING_POLICY
    numbers = {key: case[key] for key in ("free", "maximum", "age_ms")}

    rated = score(statistics=statistics, policy=policy, **numbers)

    parts = (rated.capacity, rated.success, rated.speed)
    assert all(0 <= part <= 1 for part in parts)
    assert 0 < rated.slow_start <= 1
    assert 0 <= rated.total <= 1 + 1e-9
    added = 0.5 * rated.capacity + 0.3 * rated.success + 0.2 * rated.speed
    assert rated.total == pytest.approx(added * rated.slow_start)


@pytest.mark.parametrize(
    "fields",
    [
        {"capacity_weight": 0.9},
        {"capacity_weight": -0.5, "success_weight": 1.3},
        {"reference_ms": 0},
        {"slow_start_ms": -1},
        {"slow_start_floor": 0},
        {"slow_start_floor": 1.1},
    ],
)
def test_a_scoring_policy_that_makes_no_sense_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must|needs"):
        ScoringPolicy(**fields)
