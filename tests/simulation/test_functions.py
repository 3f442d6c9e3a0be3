"""Functions in schedules derived from seeds, and broken rules that these must notice."""

import pytest

from tests.simulation.functions.mutants import ANY, MUTANTS
from tests.simulation.functions.races import RACE_MUTANTS, RACES, simulate_race
from tests.simulation.functions.world import Profile, simulate
from tests.simulation.mutation import Mutant, seed_that_notices

SEEDS = 300


def test_a_function_ends_in_one_way_under_crashes_repeats_and_any_order() -> None:
    for seed in range(SEEDS):
        simulate(seed, ANY)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: one.name)
def test_a_broken_rule_of_functions_is_noticed(mutant: Mutant[Profile]) -> None:
    seed = seed_that_notices(mutant, simulate)

    simulate(seed, mutant.profile)


def test_a_function_that_races_fails_and_is_cancelled_keeps_the_rules() -> None:
    for seed in range(SEEDS):
        simulate_race(seed, RACES)


@pytest.mark.parametrize("mutant", RACE_MUTANTS, ids=lambda one: one.name)
def test_a_broken_rule_of_races_is_noticed(mutant: Mutant[Profile]) -> None:
    seed = seed_that_notices(mutant, simulate_race)

    simulate_race(seed, mutant.profile)
