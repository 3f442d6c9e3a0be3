"""Seeded days of schedules on several coordinators, and the mistakes they must find."""

import pytest

from tests.simulation.mutation import Mutant, seed_that_notices
from tests.simulation.schedules.mutants import MUTANTS
from tests.simulation.schedules.world import SCHEDULES, Weather, simulate

SEEDS = range(8)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_each_time_fires_once_while_leaders_links_and_stores_fail(seed: int) -> None:
    world = simulate(seed)

    assert {name for name, _ in world.fired} == SCHEDULES.keys() - {"alone"}
    assert world.cluster.store.epoch > 1, "the leader has changed"


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_broken_rule_of_schedules_is_found_out(mutant: Mutant[Weather]) -> None:
    seed = seed_that_notices(mutant, simulate)

    simulate(seed, mutant.profile)
