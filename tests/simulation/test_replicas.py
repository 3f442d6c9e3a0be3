"""Seeded schedules of several coordinators on one store, and the mistakes they must find."""

import pytest

from tests.simulation.mutation import Mutant, seed_that_notices
from tests.simulation.replicas.mutants import MUTANTS
from tests.simulation.replicas.world import Pace, simulate

SEEDS = range(10)
TIMELY_SEEDS = range(4)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_promise_holds_whichever_replica_is_asked(seed: int) -> None:
    world = simulate(seed, Pace.ANYHOW)

    assert world.acknowledged
    assert world.accepted
    assert world.runs
    assert world.epochs


@pytest.mark.parametrize("seed", TIMELY_SEEDS)
def test_nobody_who_speaks_in_time_is_thought_gone_by_any_replica(seed: int) -> None:
    world = simulate(seed, Pace.TIMELY)

    assert world.epochs


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_replica_that_trusts_its_memory_is_found_out(mutant: Mutant[Pace]) -> None:
    seed = seed_that_notices(mutant, simulate)

    simulate(seed, mutant.profile)
