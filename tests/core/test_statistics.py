import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.workers.statistics import (
    BUCKET_COUNT,
    BUCKET_MIDDLES_MS,
    EDGES_MS,
    EMPTY,
    HALF_LIFE_MS,
    PERCENTILE_ERROR,
    Outcome,
    Statistics,
    average_duration_ms,
    combine,
    decay_factor,
    decayed,
    lifetime_average_duration_ms,
    lifetime_success_rate,
    percentile,
    record,
    success_rate,
    weight,
)

DAY_MS = 86_400_000
outcomes_lists = st.lists(
    st.builds(Outcome, ok=st.booleans(), duration_ms=st.floats(0, DAY_MS)), max_size=30
)
batches_lists = st.lists(st.tuples(st.integers(-(10**6), 10**8), outcomes_lists), max_size=10)


def recorded(batches: list[tuple[int, list[Outcome]]]) -> Statistics:
    statistics = EMPTY
    for now_ms, outcomes in batches:
        statistics = record(statistics, outcomes, now_ms=now_ms)
    return statistics


def test_without_history_all_is_well_and_nothing_is_known() -> None:
    assert success_rate(EMPTY) == 1.0
    assert lifetime_success_rate(EMPTY) == 1.0
    assert average_duration_ms(EMPTY) is None
    assert lifetime_average_duration_ms(EMPTY) is None
    assert percentile(EMPTY, 0.5) is None


def test_a_batch_counts_for_lifetime_and_for_lately() -> None:
    outcomes = [Outcome(ok=True, duration_ms=100.0)] * 3 + [Outcome(ok=False, duration_ms=500.0)]

    statistics = record(EMPTY, outcomes, now_ms=1_000)

    assert (statistics.tasks_completed, statistics.tasks_failed) == (3, 1)
    assert statistics.total_duration_ms == 800.0
    assert success_rate(statistics) == lifetime_success_rate(statistics) == 0.75
    assert average_duration_ms(statistics) == lifetime_average_duration_ms(statistics) == 200.0
    assert statistics.updated_at_ms == 1_000


def test_after_a_half_life_an_old_outcome_counts_half() -> None:
    old = record(EMPTY, [Outcome(ok=False, duration_ms=900.0)], now_ms=0)

    new = record(old, [Outcome(ok=True, duration_ms=300.0)], now_ms=HALF_LIFE_MS)

    assert success_rate(new) == pytest.approx(1 / 1.5)
    assert average_duration_ms(new) == pytest.approx(750 / 1.5)
    assert lifetime_success_rate(new) == 0.5


def test_a_history_long_past_is_forgotten_but_its_counters_stay() -> None:
    old = record(EMPTY, [Outcome(ok=False, duration_ms=900.0)], now_ms=0)

    now = decayed(old, now_ms=30 * HALF_LIFE_MS)

    assert success_rate(now) == 1.0
    assert percentile(now, 0.5) is None
    assert now.tasks_failed == 1


def test_an_empty_batch_changes_nothing() -> None:
    statistics = record(EMPTY, [Outcome(ok=True, duration_ms=1.0)], now_ms=0)

    assert record(statistics, [], now_ms=99) is statistics


def test_a_small_step_back_of_the_clock_decays_nothing_twice() -> None:
    statistics = record(EMPTY, [Outcome(ok=True, duration_ms=1.0)], now_ms=1_000)

    for now_ms in (900, 1_000, 900, 1_000):
        statistics = record(statistics, [Outcome(ok=True, duration_ms=1.0)], now_ms=now_ms)

    assert weight(statistics) == 5.0


def test_after_a_large_step_back_decay_goes_on_from_the_new_time() -> None:
    ahead = record(EMPTY, [Outcome(ok=True, duration_ms=1.0)], now_ms=100 * HALF_LIFE_MS)

    put_right = decayed(ahead, now_ms=HALF_LIFE_MS)

    assert weight(put_right) == 1.0
    assert weight(decayed(put_right, now_ms=2 * HALF_LIFE_MS)) == 0.5


def test_a_negative_duration_counts_as_none() -> None:
    statistics = record(EMPTY, [Outcome(ok=True, duration_ms=-5.0)], now_ms=0)

    assert statistics.total_duration_ms == 0.0
    assert percentile(statistics, 1.0) == EDGES_MS[0]


def test_buckets_reach_from_a_twentieth_of_a_millisecond_past_a_day() -> None:
    assert EDGES_MS[0] == 0.05
    assert DAY_MS < EDGES_MS[-1] < 2 * DAY_MS
    assert BUCKET_COUNT == len(BUCKET_MIDDLES_MS) == 64
    assert pytest.approx(0.19, abs=0.01) == PERCENTILE_ERROR


def test_percentiles_of_a_hundred_tasks() -> None:
    outcomes = [Outcome(ok=True, duration_ms=float(duration)) for duration in range(1, 101)]

    statistics = record(EMPTY, outcomes, now_ms=0)

    assert percentile(statistics, 0.5) == pytest.approx(50, rel=0.2)
    assert percentile(statistics, 0.95) == pytest.approx(95, rel=0.2)
    assert percentile(statistics, 0.0) == pytest.approx(1, rel=0.2)


@given(
    st.lists(st.floats(EDGES_MS[0], EDGES_MS[-1]), min_size=1, max_size=60),
    st.floats(0, 1),
)
def test_a_percentile_is_within_its_error_of_the_true_one(
    durations: list[float], quantile: float
) -> None:
    statistics = record(EMPTY, [Outcome(ok=True, duration_ms=one) for one in durations], now_ms=0)

    answer = percentile(statistics, quantile)

    wanted = quantile * len(durations)
    true = next(one for place, one in enumerate(sorted(durations), 1) if place >= wanted)
    assert answer == pytest.approx(true, rel=PERCENTILE_ERROR + 1e-9)


@given(batches_lists)
def test_percentiles_are_in_order_and_between_the_shortest_and_the_longest(
    batches: list[tuple[int, list[Outcome]]],
) -> None:
    statistics = recorded(batches)

    p50, p95, p99 = (percentile(statistics, quantile) for quantile in (0.5, 0.95, 0.99))

    if p50 is None or p95 is None or p99 is None:
        assert p50 is p95 is p99 is None
        return
    durations = [one.duration_ms for _, outcomes in batches for one in outcomes]
    error = 1 + PERCENTILE_ERROR + 1e-9
    assert min(durations) / error <= p50 <= p95 <= p99 <= max(*durations, EDGES_MS[0]) * error


@given(batches_lists)
def test_weights_stay_within_the_counters_in_any_order_of_times(
    batches: list[tuple[int, list[Outcome]]],
) -> None:
    statistics = recorded(batches)

    assert 0 <= statistics.success_weight <= statistics.tasks_completed
    assert 0 <= statistics.failure_weight <= statistics.tasks_failed
    assert 0 <= statistics.weighted_duration_ms <= statistics.total_duration_ms * (1 + 1e-9)
    assert all(bucket >= 0 for bucket in statistics.buckets)
    assert sum(statistics.buckets) == pytest.approx(weight(statistics))
    assert 0 <= success_rate(statistics) <= 1


@given(batches_lists, st.integers(-(10**9), 10**12))
def test_decaying_never_increases_anything(
    batches: list[tuple[int, list[Outcome]]], now_ms: int
) -> None:
    before = recorded(batches)

    after = decayed(before, now_ms=now_ms)

    assert after.success_weight <= before.success_weight
    assert after.failure_weight <= before.failure_weight
    assert after.weighted_duration_ms <= before.weighted_duration_ms
    assert sum(after.buckets) <= sum(before.buckets)
    assert after.tasks_completed == before.tasks_completed


@given(st.integers(-(10**15), 10**15), st.integers(1, 10**9))
def test_a_decay_factor_is_a_share(elapsed_ms: int, half_life_ms: int) -> None:
    assert 0 <= decay_factor(elapsed_ms, half_life_ms) <= 1


@given(outcomes_lists, outcomes_lists)
def test_two_batches_at_one_time_are_one_batch(first: list[Outcome], second: list[Outcome]) -> None:
    apart = record(record(EMPTY, first, now_ms=5), second, now_ms=5)
    together = record(EMPTY, first + second, now_ms=5)

    assert apart.buckets == together.buckets
    assert apart.success_weight == together.success_weight
    assert apart.total_duration_ms == pytest.approx(together.total_duration_ms)


@given(outcomes_lists, outcomes_lists, st.integers(0, 10**6))
def test_combined_names_are_as_if_recorded_under_one(
    first: list[Outcome], second: list[Outcome], later_ms: int
) -> None:
    parts = [record(EMPTY, first, now_ms=0), record(EMPTY, second, now_ms=later_ms)]

    combined = combine(parts, now_ms=later_ms)

    as_one = record(record(EMPTY, first, now_ms=0), second, now_ms=later_ms)
    assert combined.tasks_completed == as_one.tasks_completed
    assert success_rate(combined) == pytest.approx(success_rate(as_one))
    assert weight(combined) == pytest.approx(weight(decayed(as_one, now_ms=later_ms)))
    assert combined.buckets == pytest.approx(decayed(as_one, now_ms=later_ms).buckets)


def test_nothing_combined_is_no_history() -> None:
    assert combine([], now_ms=7) == Statistics(updated_at_ms=7)
    assert percentile(combine([EMPTY, EMPTY], now_ms=7), 0.5) is None


def test_statistics_survive_the_store() -> None:
    before = record(EMPTY, [Outcome(ok=True, duration_ms=12.5)], now_ms=3)

    assert msgspec.json.decode(msgspec.json.encode(before), type=Statistics) == before
