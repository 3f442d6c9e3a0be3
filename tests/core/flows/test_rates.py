"""Rates against a log of the starts that they let through."""

from hypothesis import given
from hypothesis import strategies as st

from rota.core.flows import rates
from rota.core.flows.model import LimitRecord, RateMode

GAPS = st.lists(st.integers(0, 400), min_size=1, max_size=80)


def record(mode: RateMode, limit: int, per_ms: int, burst: int = 1) -> LimitRecord:
    return LimitRecord(key="r", kind="rate", limit=limit, per_ms=per_ms, burst=burst, mode=mode)


def let_through(one: LimitRecord, gaps_ms: list[int], *, eager: int = 3) -> list[int]:
    """Try a few starts at each moment, and return the times of those that were free."""
    now_ms, starts = 1_000_000, []
    for gap_ms in gaps_ms:
        now_ms += gap_ms
        for _ in range(eager):
            if rates.opens_at_ms(one, 1, now_ms=now_ms) is None:
                rates.start(one, 1, now_ms=now_ms)
                starts.append(now_ms)
    return starts


def busiest(starts: list[int], per_ms: int) -> int:
    """The most starts in any period."""
    return max(
        (sum(first <= one < first + per_ms for one in starts) for first in starts), default=0
    )


@given(GAPS, st.integers(1, 9), st.integers(1, 2_000))
def test_a_smooth_rate_never_exceeds_its_limit_in_any_period(
    gaps_ms: list[int], limit: int, per_ms: int
) -> None:
    starts = let_through(record("smooth", limit, per_ms), gaps_ms)

    assert busiest(starts, per_ms) <= limit


@given(GAPS, st.integers(1, 9), st.integers(1, 2_000), st.integers(1, 5))
def test_a_burst_is_all_that_comes_on_top(
    gaps_ms: list[int], limit: int, per_ms: int, burst: int
) -> None:
    starts = let_through(record("smooth", limit, per_ms, burst), gaps_ms, eager=9)

    assert busiest(starts, per_ms) <= limit + burst - 1


@given(GAPS, st.integers(1, 9), st.integers(1, 2_000))
def test_a_window_lets_through_just_what_the_log_allows(
    gaps_ms: list[int], limit: int, per_ms: int
) -> None:
    one, now_ms = record("window", limit, per_ms), 1_000_000
    log: list[int] = []
    for gap_ms in gaps_ms:
        now_ms += gap_ms
        recent = [start for start in log if start > now_ms - per_ms]
        opens_at_ms = rates.opens_at_ms(one, 1, now_ms=now_ms)

        assert (opens_at_ms is None) == (len(recent) < limit)
        if opens_at_ms is None:
            rates.start(one, 1, now_ms=now_ms)
            log.append(now_ms)
        else:
            assert opens_at_ms == recent[-limit] + per_ms


@given(GAPS, st.sampled_from(["smooth", "window"]), st.integers(1, 5), st.integers(1, 2_000))
def test_a_closed_rate_opens_when_it_says(
    gaps_ms: list[int], mode: RateMode, limit: int, per_ms: int
) -> None:
    one, now_ms = record(mode, limit, per_ms), 1_000_000
    for gap_ms in gaps_ms:
        now_ms += gap_ms
        opens_at_ms = rates.opens_at_ms(one, 1, now_ms=now_ms)
        if opens_at_ms is not None:
            assert opens_at_ms > now_ms
            assert rates.opens_at_ms(one, 1, now_ms=opens_at_ms - 1) is not None
            assert rates.opens_at_ms(one, 1, now_ms=opens_at_ms) is None
        else:
            rates.start(one, 1, now_ms=now_ms)


@given(st.integers(1, 5), st.integers(1, 2_000), st.integers(1, 10**9))
def test_a_clock_that_was_set_back_closes_a_rate_for_one_step_at_most(
    limit: int, per_ms: int, back_ms: int
) -> None:
    one, now_ms = record("smooth", limit, per_ms), 10**12
    rates.start(one, 1, now_ms=now_ms)

    opens_at_ms = rates.opens_at_ms(one, 1, now_ms=now_ms - back_ms)

    assert opens_at_ms is None or opens_at_ms <= now_ms - back_ms + 1 + per_ms
