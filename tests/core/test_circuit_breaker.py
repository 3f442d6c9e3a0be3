from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.workers.circuit_breaker import (
    BREAKER_TRANSITIONS,
    CLOSED_BREAKER,
    DEFAULT_BREAKER_POLICY,
    Breaker,
    BreakerPolicy,
    BreakerState,
    allowance,
    current_state,
    observe,
    open_ms,
)
from rota.core.workers.statistics import EMPTY, Outcome, Statistics, record

OPEN_MS = DEFAULT_BREAKER_POLICY.open_ms
ROW = DEFAULT_BREAKER_POLICY.failures_in_a_row


class Pair:
    """A breaker and its statistics, fed with the same batches."""

    def __init__(self) -> None:
        self.breaker: Breaker = CLOSED_BREAKER
        self.statistics: Statistics = EMPTY

    def feed(self, succeeded: int, failed: int, *, now_ms: int) -> None:
        outcomes = [Outcome(ok=True, duration_ms=1.0)] * succeeded
        outcomes += [Outcome(ok=False, duration_ms=1.0)] * failed
        self.statistics = record(self.statistics, outcomes, now_ms=now_ms)
        self.breaker = observe(
            self.breaker,
            succeeded=succeeded,
            failed=failed,
            statistics=self.statistics,
            now_ms=now_ms,
        )

    def state(self, now_ms: int) -> BreakerState:
        return current_state(self.breaker, now_ms=now_ms)


def test_a_new_breaker_is_closed_and_limits_nothing() -> None:
    assert allowance(CLOSED_BREAKER, now_ms=0) is None


def test_a_few_failures_do_not_open_a_breaker() -> None:
    pair = Pair()

    pair.feed(0, ROW - 1, now_ms=0)

    assert pair.state(0) is BreakerState.CLOSED


def test_a_row_of_failures_opens_it_however_much_success_went_before() -> None:
    pair = Pair()
    pair.feed(10_000, 0, now_ms=0)

    for now_ms in range(ROW):
        pair.feed(0, 1, now_ms=now_ms)

    assert pair.state(ROW) is BreakerState.OPEN
    assert allowance(pair.breaker, now_ms=ROW) == 0


def test_a_success_breaks_the_row() -> None:
    pair = Pair()
    pair.feed(100, 0, now_ms=0)

    pair.feed(0, ROW - 1, now_ms=1)
    pair.feed(1, 0, now_ms=2)
    pair.feed(0, ROW - 1, now_ms=3)

    assert pair.state(3) is BreakerState.CLOSED


def test_a_large_share_of_failures_opens_it_without_a_row() -> None:
    pair = Pair()

    # Ten batches have decayed to a little under twenty samples; the eleventh makes them enough.
    for now_ms in range(11):
        pair.feed(1, 1, now_ms=now_ms)

    assert pair.state(10) is BreakerState.OPEN


def test_a_success_alone_never_opens_it() -> None:
    pair = Pair()
    pair.statistics = record(EMPTY, [Outcome(ok=False, duration_ms=1.0)] * 50, now_ms=0)

    pair.feed(1, 0, now_ms=1)

    assert pair.state(1) is BreakerState.CLOSED


def test_time_alone_makes_an_open_breaker_half_open() -> None:
    pair = Pair()
    pair.feed(0, ROW, now_ms=1_000)

    assert allowance(pair.breaker, now_ms=1_000 + OPEN_MS - 1) == 0
    assert allowance(pair.breaker, now_ms=1_000 + OPEN_MS) == 1
    assert pair.state(1_000 + OPEN_MS) is BreakerState.HALF_OPEN
    assert pair.breaker.state is BreakerState.OPEN


def test_late_outcomes_tell_an_open_breaker_nothing() -> None:
    pair = Pair()
    pair.feed(0, ROW, now_ms=0)
    opened = pair.breaker

    pair.feed(3, 0, now_ms=1)
    pair.feed(0, 3, now_ms=2)

    assert pair.breaker is opened


def test_a_probe_that_succeeds_closes_it_and_the_past_is_forgiven() -> None:
    pair = Pair()
    pair.feed(0, 2 * ROW, now_ms=0)

    pair.feed(1, 0, now_ms=OPEN_MS)
    pair.feed(1, 1, now_ms=OPEN_MS + 1)

    assert pair.state(OPEN_MS + 1) is BreakerState.CLOSED


def test_a_forgiven_worker_that_fails_again_trips_again_for_longer() -> None:
    pair = Pair()
    pair.feed(0, ROW, now_ms=0)
    pair.feed(1, 0, now_ms=OPEN_MS)

    pair.feed(0, ROW, now_ms=OPEN_MS + 1)

    assert pair.breaker.trips == 2
    assert pair.state(OPEN_MS + 1 + 2 * OPEN_MS - 1) is BreakerState.OPEN
    assert pair.state(OPEN_MS + 1 + 2 * OPEN_MS) is BreakerState.HALF_OPEN


def test_a_probe_that_fails_reopens_it_for_longer() -> None:
    pair = Pair()
    pair.feed(0, ROW, now_ms=0)

    pair.feed(0, 1, now_ms=OPEN_MS)

    assert pair.breaker.trips == 2
    assert pair.state(OPEN_MS) is BreakerState.OPEN


def test_a_breaker_that_held_for_long_starts_from_the_first_trip() -> None:
    pair = Pair()
    pair.feed(0, ROW, now_ms=0)
    pair.feed(1, 0, now_ms=OPEN_MS)

    pair.feed(0, ROW, now_ms=OPEN_MS + DEFAULT_BREAKER_POLICY.maximum_open_ms + 1)

    assert pair.breaker.trips == 1


def test_a_clock_set_far_back_does_not_keep_a_breaker_open_for_ever() -> None:
    pair = Pair()
    pair.feed(0, ROW, now_ms=10**12)

    assert pair.state(10**12 - 1) is BreakerState.OPEN
    assert pair.state(0) is BreakerState.HALF_OPEN


@given(st.integers(0, 10_000))
def test_the_open_time_grows_and_has_an_end(trips: int) -> None:
    assert OPEN_MS <= open_ms(trips) <= open_ms(trips + 1) <= DEFAULT_BREAKER_POLICY.maximum_open_ms


batches = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30_000)), max_size=30
)


@given(batches)
def test_any_series_of_batches_follows_the_table(series: list[tuple[int, int, int]]) -> None:
    pair, now_ms = Pair(), 0

    for succeeded, failed, later_ms in series:
        now_ms += later_ms
        before = pair.state(now_ms)
        pair.feed(succeeded, failed, now_ms=now_ms)
        after = pair.state(now_ms)

        assert after is before or after in BREAKER_TRANSITIONS[before]
        assert pair.breaker.state is not BreakerState.HALF_OPEN


@given(batches)
def test_a_worker_that_always_succeeds_is_never_cut_off(
    series: list[tuple[int, int, int]],
) -> None:
    pair, now_ms = Pair(), 0

    for succeeded, _, later_ms in series:
        now_ms += later_ms
        pair.feed(succeeded, 0, now_ms=now_ms)

        assert pair.breaker is CLOSED_BREAKER


def test_a_breaker_survives_the_store() -> None:
    pair = Pair()
    pair.feed(0, ROW, now_ms=5)

    assert msgspec.json.decode(msgspec.json.encode(pair.breaker), type=Breaker) == pair.breaker


@pytest.mark.parametrize(
    "fields",
    [
        {"failures_in_a_row": 0},
        {"minimum_samples": 0},
        {"failure_share": 0},
        {"failure_share": 1.5},
        {"open_ms": 0},
        {"open_ms": 10, "maximum_open_ms": 9},
        {"growth": 0.5},
        {"growth": 11},
    ],
)
def test_a_breaker_policy_that_makes_no_sense_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a breaker needs"):
        BreakerPolicy(**fields)
