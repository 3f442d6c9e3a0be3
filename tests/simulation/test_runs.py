"""Bad days of runs and sub-workflows. `ROTA_RUN_SCHEDULES=10000` for more of them."""

import os

import pytest

from tests.simulation.mutation import Mutant, seed_that_notices
from tests.simulation.runs import profiles
from tests.simulation.runs.mutants import MUTANTS
from tests.simulation.runs.profiles import PROFILES, Profile, profile_of
from tests.simulation.runs.world import simulate

SCHEDULES = int(os.environ.get("ROTA_RUN_SCHEDULES", "400"))
SCHEDULES_A_CHUNK = 100


@pytest.mark.parametrize("first", range(0, SCHEDULES, SCHEDULES_A_CHUNK))
@pytest.mark.slow
def test_every_promise_about_runs_holds_whatever_befalls_them(first: int) -> None:
    for seed in range(first, min(first + SCHEDULES_A_CHUNK, SCHEDULES)):
        simulate(seed, profile_of(seed))


def test_a_schedule_of_each_kind_holds() -> None:
    for seed in range(len(PROFILES)):
        simulate(seed, profile_of(seed))


def test_the_same_seed_is_the_same_schedule() -> None:
    assert simulate(3, profiles.EVERYTHING) == simulate(3, profiles.EVERYTHING)


def test_work_is_undone_and_stale_answers_are_refused() -> None:
    """Otherwise it would not be known that the rules do anything."""
    assert sum(simulate(seed, profiles.FAILING).undone for seed in range(20)) > 0
    assert sum(simulate(seed, profiles.ANSWERED_TWICE).refused for seed in range(20)) > 0


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_broken_rule_is_noticed_and_the_whole_one_is_not(mutant: Mutant[Profile]) -> None:
    seed = seed_that_notices(mutant, simulate)

    simulate(seed, mutant.profile)
