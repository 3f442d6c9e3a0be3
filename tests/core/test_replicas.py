"""The rule by which a coordinator leads, follows or takes over."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.replicas import SILENT_MS, Leader, Replica, Step, is_away, next_step

OWN = 7  # the epoch at which this coordinator leads


def leader(epoch: int, expires_in_ms: int, *, is_connected: bool = True) -> Leader:
    return Leader(
        epoch=epoch,
        name="other",
        address="other:1",
        since_ms=1,
        expires_in_ms=expires_in_ms,
        is_connected=is_connected,
    )


@pytest.mark.parametrize(
    ("seen", "is_cut_off", "step"),
    [
        pytest.param(None, False, Step.TAKE_OVER, id="there was no leader yet"),
        pytest.param(leader(OWN, 1), False, Step.FOLLOW, id="another leads"),
        pytest.param(leader(OWN, 0), False, Step.TAKE_OVER, id="the lease has just ended"),
        pytest.param(leader(OWN, -9), False, Step.TAKE_OVER, id="the lease ended long ago"),
        pytest.param(leader(OWN, 1), True, Step.FOLLOW, id="only the link to it is lost"),
        pytest.param(
            leader(OWN, 1, is_connected=False),
            False,
            Step.FOLLOW,
            id="its session is lost, and its link is not",
        ),
        pytest.param(leader(OWN, 1, is_connected=False), True, Step.TAKE_OVER, id="it is gone"),
    ],
)
def test_the_next_step(seen: Leader | None, step: Step, *, is_cut_off: bool) -> None:
    assert next_step(seen, is_cut_off=is_cut_off) is step


leaders = st.builds(leader, st.integers(1, 5), st.integers(-10, 10), is_connected=st.booleans())


@given(seen=leaders, is_cut_off=st.booleans())
def test_a_leader_that_holds_its_lease_and_its_session_is_never_replaced(
    *, seen: Leader, is_cut_off: bool
) -> None:
    step = next_step(seen, is_cut_off=is_cut_off)

    if seen.expires_in_ms > 0 and seen.is_connected:
        assert step is not Step.TAKE_OVER


@given(seen=leaders, is_cut_off=st.booleans())
def test_a_leader_whose_lease_has_ended_is_replaced_by_every_other_coordinator(
    *, seen: Leader, is_cut_off: bool
) -> None:
    step = next_step(seen, is_cut_off=is_cut_off)

    if seen.expires_in_ms <= 0:
        assert step is Step.TAKE_OVER


def test_a_coordinator_is_away_when_it_has_been_silent_for_longer_than_the_limit() -> None:
    silent = Replica(name="a", host="h", version="0", started_at_ms=0, seen_ms=1_000)

    assert not is_away(silent, now_ms=1_000 + SILENT_MS)
    assert is_away(silent, now_ms=1_001 + SILENT_MS)
