"""Seeded schedules of several coordinators on one store, and the mistakes they must find."""

from collections import Counter
from functools import cache

import pytest

from tests.simulation.mutation import Mutant, seed_that_notices
from tests.simulation.replicas.mutants import MUTANTS
from tests.simulation.replicas.world import Pace, World, simulate

SEEDS = range(12)
TIMELY_SEEDS = range(6)


@cache
def outcome_of(seed: int) -> World:
    return simulate(seed, Pace.ANYHOW)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_promise_holds_while_leaders_links_and_stores_fail(seed: int) -> None:
    world = outcome_of(seed)

    assert world.acknowledged
    assert world.accepted
    assert world.runs
    assert world.written
    assert world.locks
    assert world.epochs
    assert world.cluster.store.epoch > 1, "the leader has changed"


def test_every_fault_occurs_in_some_schedule() -> None:
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        seen.update(outcome_of(seed).faults.seen)

    assert seen.keys() == {
        "cut_store",
        "die_after_commit",
        "die_before_commit",
        "fail_commit",
        "isolate",
        "kill_any",
        "lose_link",
        "lose_reply_of_commit",
        "part_coordinators",
        "starve_renewal",
        "stop_any",
    }


def test_a_schedule_is_the_same_each_time() -> None:
    one, other = outcome_of(SEEDS[0]), simulate(SEEDS[0], Pace.ANYHOW)

    assert one.acknowledged == other.acknowledged
    assert one.accepted == other.accepted
    assert one.cluster.loop.rounds == other.cluster.loop.rounds


@pytest.mark.parametrize("seed", TIMELY_SEEDS)
def test_no_client_that_speaks_in_time_is_thought_gone_when_the_leader_changes(seed: int) -> None:
    world = simulate(seed, Pace.TIMELY)

    assert world.epochs
    assert world.cluster.store.epoch > 1, "the leader has changed"


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_broken_rule_of_leadership_is_found_out(mutant: Mutant[Pace]) -> None:
    seed = seed_that_notices(mutant, simulate)

    simulate(seed, mutant.profile)
