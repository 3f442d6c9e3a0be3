from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.workers.eviction_guards import (
    DEFAULT_EVICTION_POLICY,
    EvictionPolicy,
    Evictions,
    HoldReason,
    amnesty_until_ms,
    evictions,
    may_eject,
    was_paused,
)
from rota.core.workers.model import WorkerRecord

INTERVAL_MS = 5_000
HOLD_MS = int(DEFAULT_EVICTION_POLICY.hold_intervals * INTERVAL_MS)
NOW_MS = 10**6


def silent(
    worker_id: str, *, last_heartbeat_ms: int = 0, interval_ms: int = INTERVAL_MS
) -> WorkerRecord:
    return WorkerRecord(
        id=worker_id,
        incarnation=1,
        node_id="n",
        last_heartbeat_ms=last_heartbeat_ms,
        started_at_ms=0,
        heartbeat_interval_ms=interval_ms,
    )


def several(count: int) -> list[WorkerRecord]:
    return [silent(f"w{number:04}", last_heartbeat_ms=number) for number in range(count)]


def test_nobody_dying_is_nothing_to_do() -> None:
    assert evictions([], fleet=50, held_since_ms=None, now_ms=NOW_MS) == Evictions()


def test_a_small_fleet_may_lose_everybody_at_once() -> None:
    verdict = evictions(several(9), fleet=9, held_since_ms=None, now_ms=NOW_MS)

    assert len(verdict.evict) == 9
    assert verdict.reason is None


def test_a_few_of_many_are_evicted_the_longest_silent_first() -> None:
    dying = [silent("b", last_heartbeat_ms=2), silent("c", last_heartbeat_ms=1), silent("a")]

    verdict = evictions(dying, fleet=20, held_since_ms=None, now_ms=NOW_MS)

    assert verdict == Evictions(evict=("a", "c", "b"))


def test_a_mass_death_is_held() -> None:
    verdict = evictions(several(4), fleet=20, held_since_ms=None, now_ms=NOW_MS)

    assert verdict == Evictions(held=True, reason=HoldReason.MASS_DEATH, held_since_ms=NOW_MS)


def test_a_hold_ends_after_its_time_and_not_before() -> None:
    dying = several(4)

    early = evictions(dying, fleet=20, held_since_ms=NOW_MS, now_ms=NOW_MS + HOLD_MS - 1)
    late = evictions(dying, fleet=20, held_since_ms=NOW_MS, now_ms=NOW_MS + HOLD_MS)

    assert early.held
    assert early.evict == ()
    assert not late.held
    assert len(late.evict) == 4


def test_each_worker_is_held_by_its_own_interval() -> None:
    dying = [*several(3), silent("slow", interval_ms=60 * INTERVAL_MS)]

    verdict = evictions(dying, fleet=20, held_since_ms=NOW_MS, now_ms=NOW_MS + HOLD_MS)

    assert verdict.evict == ("w0000", "w0001", "w0002")
    assert verdict.held


def test_one_that_falls_silent_during_a_hold_has_a_hold_of_its_own() -> None:
    dying = [*several(3), silent("later", last_heartbeat_ms=NOW_MS + 1)]

    verdict = evictions(dying, fleet=20, held_since_ms=NOW_MS, now_ms=NOW_MS + HOLD_MS)

    assert "later" not in verdict.evict
    assert verdict.held


def test_a_sweep_evicts_no_more_than_its_cap() -> None:
    policy = EvictionPolicy(sweep_cap=3, mass_death_share=1.0)

    verdict = evictions(several(7), fleet=20, held_since_ms=None, now_ms=NOW_MS, policy=policy)

    assert verdict == Evictions(evict=("w0000", "w0001", "w0002"), reason=HoldReason.SWEEP_CAP)


def test_a_hold_that_has_ended_does_not_start_again_for_those_left_by_the_cap() -> None:
    dying, fleet, sweeps = several(20), 20, 0
    policy = EvictionPolicy(sweep_cap=4)
    held_since_ms: int | None = NOW_MS

    while dying:
        now_ms = NOW_MS + HOLD_MS + sweeps
        verdict = evictions(
            dying, fleet=fleet, held_since_ms=held_since_ms, now_ms=now_ms, policy=policy
        )
        dying = [worker for worker in dying if worker.id not in verdict.evict]
        fleet -= len(verdict.evict)
        held_since_ms = verdict.held_since_ms
        sweeps += 1

    assert sweeps <= 5


def test_a_hold_from_before_the_clock_was_set_back_starts_again() -> None:
    verdict = evictions(several(4), fleet=20, held_since_ms=NOW_MS * 1_000, now_ms=NOW_MS)

    assert verdict.held_since_ms == NOW_MS


@given(st.integers(0, 300), st.integers(0, 2_000), st.integers(1, 40))
def test_every_dead_worker_is_evicted_in_the_end_and_no_sweep_passes_the_cap(
    dead: int, alive: int, sweep_cap: int
) -> None:
    policy = EvictionPolicy(sweep_cap=sweep_cap)
    dying, held_since_ms, now_ms = several(dead), None, NOW_MS

    for _ in range(dead + 2):
        fleet = alive + len(dying)
        verdict = evictions(
            dying, fleet=fleet, held_since_ms=held_since_ms, now_ms=now_ms, policy=policy
        )
        assert len(verdict.evict) <= sweep_cap or fleet < policy.minimum_fleet
        dying = [worker for worker in dying if worker.id not in verdict.evict]
        held_since_ms = verdict.held_since_ms
        now_ms += HOLD_MS

    assert dying == []


def test_a_coordinator_that_has_just_started_was_away() -> None:
    assert was_paused(previous_sweep_ms=None, now_ms=5, sweep_interval_ms=1_000)


@pytest.mark.parametrize(
    ("gap_ms", "expected"), [(-5_000, False), (1_000, False), (3_000, False), (3_001, True)]
)
def test_a_long_gap_between_sweeps_is_a_pause(gap_ms: int, expected: bool) -> None:  # noqa: FBT001
    paused = was_paused(previous_sweep_ms=NOW_MS, now_ms=NOW_MS + gap_ms, sweep_interval_ms=1_000)

    assert paused is expected


def test_amnesty_lasts_one_lease() -> None:
    assert amnesty_until_ms(resumed_at_ms=1_000, lease_ms=15_000) == 16_000


def test_one_in_ten_may_be_ejected() -> None:
    assert may_eject(fleet=20, healthy=20, ejected=1)
    assert not may_eject(fleet=20, healthy=18, ejected=2)
    assert may_eject(fleet=10, healthy=10, ejected=0)


def test_nobody_is_ejected_below_half_healthy() -> None:
    assert may_eject(fleet=100, healthy=50, ejected=0)
    assert not may_eject(fleet=100, healthy=49, ejected=0)


def test_in_a_small_fleet_all_but_the_last_may_be_ejected() -> None:
    assert may_eject(fleet=3, healthy=2, ejected=1)
    assert not may_eject(fleet=3, healthy=1, ejected=2)
    assert not may_eject(fleet=1, healthy=1, ejected=0)


@given(st.integers(0, 500))
def test_ejecting_as_long_as_it_is_allowed_leaves_somebody_to_work(fleet: int) -> None:
    healthy, ejected = fleet, 0

    while may_eject(fleet=fleet, healthy=healthy, ejected=ejected):
        healthy, ejected = healthy - 1, ejected + 1

    assert healthy >= min(fleet, 1)
    assert fleet < 10 or ejected == fleet // 10


@pytest.mark.parametrize(
    "fields",
    [
        {"mass_death_share": 1.1},
        {"ejected_share": -0.1},
        {"healthy_floor": float("nan")},
        {"minimum_fleet": 0},
        {"sweep_cap": 0},
        {"hold_intervals": float("inf")},
        {"pause_sweeps": 0.5},
    ],
)
def test_a_valve_policy_that_makes_no_sense_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="eviction policy"):
        EvictionPolicy(**fields)
