import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.sdk.locks import LONGEST_PAUSE_S, LockLease


def lease(ttl_s: float = 30.0, sent_at: float = 100.0) -> LockLease:
    return LockLease(fence=7, ttl_s=ttl_s, sent_at=sent_at)


def test_a_lock_is_ours_for_its_time_from_the_question_on() -> None:
    one = lease()

    assert one.is_held(129.3)
    assert not one.is_held(129.5)  # a little early, since clocks differ


def test_it_is_renewed_three_times_in_its_time() -> None:
    one = lease()
    assert one.next_at == 110.0

    one.renew(sent_at=112.0)

    assert one.next_at == 122.0
    assert one.ends_at == pytest.approx(141.4)


def test_an_answer_that_comes_late_takes_nothing_away() -> None:
    one = lease()
    one.renew(sent_at=120.0)

    one.renew(sent_at=110.0)

    assert one.ends_at == pytest.approx(149.4)


@pytest.mark.parametrize(("ttl_s", "pause_s"), [(30.0, LONGEST_PAUSE_S), (3.0, 0.3)])
def test_a_renewal_without_an_answer_is_tried_again_soon(ttl_s: float, pause_s: float) -> None:
    one = lease(ttl_s)

    one.fail(now=101.0)

    assert one.next_at == pytest.approx(101.0 + pause_s)
    assert one.ends_at == pytest.approx(100.0 + 0.98 * ttl_s)


def test_what_the_coordinator_says_counts_at_once() -> None:
    one = lease()

    one.is_lost = True

    assert not one.is_held(100.0)


@given(st.lists(st.tuples(st.sampled_from(["renew", "fail"]), st.floats(0.0, 12.0)), max_size=20))
def test_the_next_try_is_never_later_than_the_end(steps: list[tuple[str, float]]) -> None:
    one, now = lease(), 100.0
    for kind, passed_s in steps:
        now += passed_s
        if kind == "renew":
            one.renew(sent_at=now)
        else:
            one.fail(now=now)
        assert one.next_at <= one.ends_at <= one.renewed_at + 30.0
