from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.dispatch.autoscaling import (
    DEFAULT_SLOTS,
    MAX_WANTED_WORKERS,
    Demand,
    PoolPolicy,
    PoolState,
    ScalePolicy,
    Term,
    assess,
    drain_ms,
    resized,
    workers_for,
)

rates = st.floats(0, 1e5)
durations = st.floats(0, 1e7)
policies = st.builds(
    ScalePolicy,
    target_ms=st.integers(1, 10**6),
    utilisation=st.floats(0.1, 1.0),
    slots=st.none() | st.integers(1, 1_000),
)


@st.composite
def demands(draw: st.DrawFn) -> Demand:
    """Anything that can be the case: only what runs has an age, only what waits an oldest."""
    depth, running = draw(st.integers(0, 10**6)), draw(st.integers(0, 10**4))
    workers = draw(st.integers(0, 100))
    capacity = workers * draw(st.integers(1, 100))
    return Demand(
        depth=depth,
        oldest_age_ms=draw(st.integers(0, 10**8)) if depth else None,
        running=running,
        running_for_ms=draw(durations) if running else None,
        submitted_per_s=draw(rates),
        finished_per_s=draw(rates),
        duration_ms=draw(st.none() | durations),
        workers=workers,
        capacity=capacity,
        free=draw(st.integers(0, capacity)),
        is_paused=draw(st.booleans()),
    )


def of(**figures: Any) -> Demand:
    """Work of a second each, with four workers of ten slots, all free."""
    usual = {"duration_ms": 1_000.0, "workers": 4, "capacity": 40, "free": 40}
    return Demand(**{**usual, **figures})


# --- how much is wanted -------------------------------------------------------------------------


def test_nothing_to_do_wants_nobody() -> None:
    judged = assess(of())

    assert (judged.wanted_workers, judged.wanted_capacity) == (0, 0.0)
    assert judged.decided_by is Term.IDLE
    assert judged.drain_ms == 0.0


def test_what_comes_in_wants_the_slots_it_keeps_busy_and_some_to_spare() -> None:
    judged = assess(of(submitted_per_s=16.0))

    assert judged.wanted_capacity == pytest.approx(16.0 * 1.0 / 0.8)
    assert judged.wanted_workers == 2
    assert judged.decided_by is Term.ARRIVALS
    assert judged.explanation == "16.00 come in a second, 1000 ms each"


def test_what_waits_wants_the_slots_that_work_it_off_in_time() -> None:
    judged = assess(of(depth=900), ScalePolicy(target_ms=30_000))

    assert judged.wanted_capacity == pytest.approx(30.0)
    assert judged.wanted_workers == 3
    assert judged.decided_by is Term.BACKLOG
    assert judged.explanation == "900 waiting, 1000 ms each, wanted within 30000 ms"


def test_a_waiting_task_never_wants_more_than_a_slot() -> None:
    judged = assess(of(depth=7, duration_ms=3_600_000.0, oldest_age_ms=10**7))

    assert judged.wanted_capacity == 7.0


def test_long_tasks_keep_their_slots_though_nothing_comes_in() -> None:
    judged = assess(of(running=20, duration_ms=600_000.0))

    assert judged.wanted_capacity == 20.0
    assert judged.decided_by is Term.RUNNING


def test_what_runs_and_what_comes_in_are_the_same_slots() -> None:
    steady = of(submitted_per_s=10.0, running=10)

    assert assess(steady).wanted_capacity == assess(of(submitted_per_s=10.0)).wanted_capacity


def test_work_that_waits_too_long_wants_more() -> None:
    in_time = assess(of(depth=300, oldest_age_ms=30_000))
    late = assess(of(depth=300, oldest_age_ms=90_000))

    assert late.wanted_capacity == pytest.approx(3 * in_time.wanted_capacity)
    assert "the oldest is 90000 ms old" in late.explanation
    assert "oldest" not in in_time.explanation


def test_one_worker_finds_out_how_long_a_task_takes() -> None:
    judged = assess(of(depth=10_000, duration_ms=None, workers=0, capacity=0, free=0))

    assert (judged.wanted_workers, judged.decided_by) == (1, Term.UNMEASURED)


def test_until_a_task_has_ended_the_age_of_those_that_run_counts() -> None:
    judged = assess(of(depth=30, duration_ms=None, running=1, running_for_ms=20_000.0))

    assert judged.wanted_capacity == pytest.approx(31 * 20_000 / 30_000)


def test_a_paused_queue_wants_only_what_runs() -> None:
    idle = assess(of(depth=500, submitted_per_s=9.0, is_paused=True))
    busy = assess(of(depth=500, running=3, duration_ms=60_000.0, is_paused=True))

    assert (idle.wanted_workers, idle.decided_by, idle.drain_ms) == (0, Term.PAUSED, None)
    assert (busy.wanted_capacity, busy.decided_by) == (3.0, Term.RUNNING)


@given(demands(), policies)
def test_work_that_waits_wants_somebody(demand: Demand, policy: ScalePolicy) -> None:
    judged = assess(demand, policy)

    assert 0 <= judged.wanted_workers <= MAX_WANTED_WORKERS
    if demand.depth and not demand.is_paused:
        assert judged.wanted_workers >= 1
    assert (judged.wanted_workers == 0) == (judged.wanted_capacity == 0.0)


@pytest.mark.parametrize("field", ["depth", "oldest_age_ms", "submitted_per_s", "running"])
@given(demand=demands(), policy=policies, more=st.integers(1, 10**6))
def test_more_work_never_wants_fewer_workers(
    field: str, demand: Demand, policy: ScalePolicy, more: int
) -> None:
    if field == "running" and demand.running_for_ms is None:
        demand = msgspec.structs.replace(demand, running_for_ms=1_000.0)
    before = getattr(demand, field) or 0
    larger = msgspec.structs.replace(demand, **{field: before + more})

    assert assess(larger, policy).wanted_workers >= assess(demand, policy).wanted_workers


@given(demands(), st.integers(1, 10**5), st.integers(1, 10**5))
def test_more_patience_never_wants_more_workers(demand: Demand, soon: int, later: int) -> None:
    hasty, patient = (
        assess(demand, ScalePolicy(target_ms=target_ms)) for target_ms in (soon, soon + later)
    )

    assert patient.wanted_workers <= hasty.wanted_workers


@given(demands(), policies)
def test_the_slots_that_are_wanted_work_the_backlog_off_in_time(
    demand: Demand, policy: ScalePolicy
) -> None:
    judged = assess(demand, policy)
    if demand.is_paused or demand.duration_ms is None or demand.duration_ms > policy.target_ms:
        return

    assert demand.depth * demand.duration_ms <= judged.wanted_capacity * policy.target_ms * 1.0001


# --- the other figures --------------------------------------------------------------------------


@given(demands())
def test_utilisation_is_a_share(demand: Demand) -> None:
    utilisation = assess(demand).utilisation

    assert (utilisation is None) == (demand.capacity == 0)
    assert utilisation is None or 0 <= utilisation <= 1


def test_a_backlog_that_nobody_works_off_has_no_end() -> None:
    nobody = of(depth=10, workers=0, capacity=0, free=0, finished_per_s=5.0)

    assert drain_ms(nobody) is None
    assert drain_ms(of(depth=10)) is None


def test_a_backlog_takes_as_long_as_the_pace_says() -> None:
    measured = of(depth=100, finished_per_s=5.0)
    grown = of(depth=100, finished_per_s=5.0, running=40)

    assert drain_ms(measured) == 20_000.0
    assert drain_ms(grown) == 2_500.0


def test_workers_are_counted_in_their_own_slots() -> None:
    work = of(depth=30_000, duration_ms=100.0)

    assert assess(work).wanted_workers == 10
    assert assess(work, ScalePolicy(slots=4)).wanted_workers == 25
    nobody = msgspec.structs.replace(work, workers=0, capacity=0, free=0)
    assert assess(nobody).wanted_workers == 100 / DEFAULT_SLOTS


@pytest.mark.parametrize(
    ("slots", "workers"),
    [(0.0, 0), (0.001, 1), (4.0, 1), (4.0 + 1e-12, 1), (4.1, 2), (1e30, 10**4)],
)
def test_a_part_of_a_worker_is_a_worker(slots: float, workers: int) -> None:
    assert workers_for(slots, 4) == workers


@pytest.mark.parametrize("wrong", [{"target_ms": 0}, {"utilisation": 1.1}, {"slots": 0}])
def test_a_policy_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="scaling needs"):
        ScalePolicy(**wrong)


# --- a pool -------------------------------------------------------------------------------------

POLICY = PoolPolicy(minimum=1, maximum=8, shrink_after_ms=30_000, cool_down_ms=3_000)


def sizes(policy: PoolPolicy, *wanted: tuple[int, int], size: int = 1) -> list[int]:
    """The size after each stretch of seconds in which so many were wanted."""
    state, now_ms, seen = PoolState(size=size), 0, []
    for seconds, count in wanted:
        for _ in range(seconds):
            state = resized(state, count, now_ms=now_ms, policy=policy)
            now_ms += 1_000
        seen.append(state.size)
    return seen


def test_a_pool_grows_at_once_and_as_far_as_is_wanted() -> None:
    assert sizes(POLICY, (1, 5), (1, 6)) == [5, 6]


def test_a_pool_stays_within_its_bounds() -> None:
    assert sizes(POLICY, (1, 99), (300, 0)) == [8, 1]


def test_a_pool_shrinks_one_by_one_after_a_time_of_lower_need() -> None:
    assert sizes(POLICY, (1, 4), (30, 1), (1, 1), (3, 1), (3, 1), (300, 1)) == [4, 4, 3, 2, 1, 1]


def test_a_need_in_between_keeps_the_pool() -> None:
    assert sizes(POLICY, (1, 4), (29, 1), (1, 4), (29, 1)) == [4, 4, 4, 4]


def test_a_pool_shrinks_no_further_than_to_what_was_wanted_meanwhile() -> None:
    assert sizes(POLICY, (1, 8), (20, 6), (11, 1), (10, 1), (60, 1)) == [8, 8, 7, 6, 1]


def test_a_burst_after_a_change_does_not_wait_for_the_cool_down() -> None:
    assert sizes(POLICY, (1, 4), (31, 1), (1, 7)) == [4, 3, 7]


@pytest.mark.parametrize("wrong", [{"minimum": 3, "maximum": 2}, {"minimum": 0, "maximum": 0}])
def test_a_pool_without_room_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="a pool needs"):
        PoolPolicy(**wrong)


pool_policies = st.builds(
    lambda minimum, more, after, cool: PoolPolicy(
        minimum=minimum, maximum=minimum + more, shrink_after_ms=after, cool_down_ms=cool
    ),
    st.integers(0, 5),
    st.integers(1, 10),
    st.integers(0, 20_000),
    st.integers(0, 20_000),
)
needs = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 10_000)), max_size=60)


def history(policy: PoolPolicy, steps: list[tuple[int, int]]) -> list[tuple[int, int, PoolState]]:
    """Each moment with what was wanted in it and the state that it led to."""
    state, now_ms = PoolState(size=policy.minimum), 0
    seen = []
    for wanted, pause_ms in steps:
        now_ms += pause_ms
        state = resized(state, wanted, now_ms=now_ms, policy=policy)
        seen.append((now_ms, wanted, state))
    return seen


@given(pool_policies, needs)
def test_a_pool_is_never_below_its_minimum_above_its_maximum_or_short_of_the_need(
    policy: PoolPolicy, steps: list[tuple[int, int]]
) -> None:
    for _, wanted, state in history(policy, steps):
        assert policy.minimum <= state.size <= policy.maximum
        assert state.size >= min(wanted, policy.maximum)


@given(pool_policies, needs)
def test_a_pool_lets_go_of_one_at_a_time_that_nobody_wanted_for_long_enough(
    policy: PoolPolicy, steps: list[tuple[int, int]]
) -> None:
    seen = history(policy, steps)
    for place, ((_, _, before), (now_ms, _, after)) in enumerate(pairwise(seen), start=1):
        if after.size >= before.size:
            continue
        assert after.size == before.size - 1
        lately = [
            wanted
            for at_ms, wanted, _ in seen[: place + 1]
            if now_ms - at_ms < policy.shrink_after_ms
        ]
        assert max(lately, default=0) <= after.size or after.size == policy.minimum
        changes = [one.changed_at_ms for _, _, one in seen[:place] if one.changed_at_ms is not None]
        assert not changes or now_ms - changes[-1] >= policy.cool_down_ms


@given(pool_policies, needs, st.integers(0, 20))
def test_a_constant_load_ends_all_changes(
    policy: PoolPolicy, steps: list[tuple[int, int]], wanted: int
) -> None:
    long_ms = policy.shrink_after_ms + policy.cool_down_ms + 1
    constant = [(wanted, long_ms)] * (2 * policy.maximum + 2)

    tail = [state.size for _, _, state in history(policy, steps + constant + constant)]

    assert set(tail[-len(constant) :]) == {max(policy.minimum, min(wanted, policy.maximum))}


@given(st.lists(st.integers(0, 3), min_size=1, max_size=100))
def test_a_load_that_jitters_below_its_peak_changes_nothing(noise: list[int]) -> None:
    steps = [pair for below in noise for pair in ((8, 1_000), (8 - below, 1_000))]

    assert {state.size for _, _, state in history(POLICY, steps)} == {8}
