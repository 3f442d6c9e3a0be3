from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.workers.model import (
    DEFAULT_HEALTH_POLICY,
    MAXIMUM_BEATS_PER_SECOND,
    WORKER_TRANSITIONS,
    Health,
    HealthPolicy,
    WorkerRecord,
    WorkerState,
    can_serve,
    health,
    lease_ms,
    stretched_interval_ms,
)

WORST_LAST = [Health.HEALTHY, Health.DEGRADED, Health.UNHEALTHY]


def worker(**changes: Any) -> WorkerRecord:
    fields = {"id": "w1", "incarnation": 1, "node_id": "n1"}
    return WorkerRecord(**{**fields, "last_heartbeat_ms": 0, "started_at_ms": 0, **changes})


@pytest.mark.parametrize(
    ("age_ms", "expected"),
    [
        (-60_000, Health.HEALTHY),
        (0, Health.HEALTHY),
        (10_000, Health.HEALTHY),
        (10_001, Health.DEGRADED),
        (15_000, Health.DEGRADED),
        (15_001, Health.UNHEALTHY),
    ],
)
def test_health_is_the_age_of_the_last_beat_in_intervals(age_ms: int, expected: Health) -> None:
    assert health(age_ms=age_ms, interval_ms=5_000) is expected


def test_an_interval_of_five_minutes_gives_ten_and_fifteen_minutes() -> None:
    minute_ms = 60_000

    assert health(age_ms=10 * minute_ms, interval_ms=5 * minute_ms) is Health.HEALTHY
    assert health(age_ms=15 * minute_ms, interval_ms=5 * minute_ms) is Health.DEGRADED
    assert health(age_ms=15 * minute_ms + 1, interval_ms=5 * minute_ms) is Health.UNHEALTHY


@given(st.integers(-(10**6), 10**7), st.integers(0, 10**7), st.integers(1, 10**6))
def test_health_never_improves_with_age(age_ms: int, older_by_ms: int, interval_ms: int) -> None:
    younger = health(age_ms=age_ms, interval_ms=interval_ms)
    older = health(age_ms=age_ms + older_by_ms, interval_ms=interval_ms)

    assert WORST_LAST.index(younger) <= WORST_LAST.index(older)


@given(
    st.integers(0, 10**6),
    st.integers(1, 10**5),
    st.floats(0.1, 10),
    st.floats(0, 10),
)
def test_leases_end_exactly_when_a_worker_becomes_unhealthy(
    age_ms: int, interval_ms: int, degraded_after: float, and_then: float
) -> None:
    policy = HealthPolicy(degraded_after=degraded_after, unhealthy_after=degraded_after + and_then)

    is_dead = health(age_ms=age_ms, interval_ms=interval_ms, policy=policy) is Health.UNHEALTHY

    assert is_dead == (age_ms > lease_ms(interval_ms, policy))


@pytest.mark.parametrize(
    ("degraded_after", "unhealthy_after"),
    [(0.0, 3.0), (-1.0, 3.0), (3.0, 2.0), (float("nan"), 3.0), (2.0, float("inf"))],
)
def test_a_health_policy_out_of_order_is_refused(
    degraded_after: float, unhealthy_after: float
) -> None:
    with pytest.raises(ValueError, match="degraded_after"):
        HealthPolicy(degraded_after=degraded_after, unhealthy_after=unhealthy_after)


def test_a_default_lease_lasts_three_intervals() -> None:
    assert lease_ms(5_000, DEFAULT_HEALTH_POLICY) == 15_000


def test_every_worker_state_reaches_the_two_others() -> None:
    for state in WorkerState:
        assert WORKER_TRANSITIONS[state] == set(WorkerState) - {state}


def test_a_worker_without_lists_serves_any_queue_and_name() -> None:
    assert can_serve(worker(), queue="mail", name="send", requires=())


def test_a_worker_serves_only_the_queues_and_names_it_listed() -> None:
    chosen = worker(queues=("mail",), tasks=("send",))

    assert can_serve(chosen, queue="mail", name="send", requires=())
    assert not can_serve(chosen, queue="film", name="send", requires=())
    assert not can_serve(chosen, queue="mail", name="read", requires=())


def test_a_worker_with_an_empty_list_serves_nothing() -> None:
    assert not can_serve(worker(queues=()), queue="mail", name="send", requires=())
    assert not can_serve(worker(tasks=()), queue="mail", name="send", requires=())


@given(st.sets(st.sampled_from("abcd")), st.sets(st.sampled_from("abcd")))
def test_all_required_capabilities_are_needed(has: set[str], requires: set[str]) -> None:
    able = worker(capabilities=tuple(has))

    assert can_serve(able, queue="q", name="n", requires=requires) == (requires <= has)


@pytest.mark.parametrize("labels", [None, {"zone": "a"}, ["spot"]])
def test_a_worker_survives_the_store(labels: dict[str, str] | list[str] | None) -> None:
    before = worker(labels=labels, capabilities=("gpu",), load={"lag_ms": 3})

    assert msgspec.json.decode(msgspec.json.encode(before), type=WorkerRecord) == before


def test_small_fleets_beat_as_they_ask() -> None:
    assert stretched_interval_ms(100, 200) == 100
    assert stretched_interval_ms(5_000, 10_000) == 5_000


def test_large_fleets_are_stretched() -> None:
    assert stretched_interval_ms(100, 400) == 200
    assert stretched_interval_ms(5_000, 20_000) == 10_000


@given(st.integers(100, 10**6), st.integers(0, 10**6))
def test_a_fleet_stays_under_the_bound_and_nobody_is_hurried(requested_ms: int, fleet: int) -> None:
    interval_ms = stretched_interval_ms(requested_ms, fleet)

    assert interval_ms >= requested_ms
    assert fleet * 1_000 <= MAXIMUM_BEATS_PER_SECOND * interval_ms
